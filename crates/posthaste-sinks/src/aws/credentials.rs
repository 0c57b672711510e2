//! Credentials are looked at before they sign a request: the SDK panics over an id that makes no
//! header, as one with a line break at its end.

use aws_credential_types::{
    Credentials,
    provider::{ProvideCredentials, SharedCredentialsProvider, error::CredentialsError, future},
};

use super::fault::NoHeader;

/// Those of another provider, if they can sign a request.
#[derive(Debug)]
pub(super) struct Signing(pub(super) SharedCredentialsProvider);

impl ProvideCredentials for Signing {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        future::ProvideCredentials::new(async {
            let found = self.0.provide_credentials().await?;
            match make_headers(&found) {
                Ok(()) => Ok(found),
                Err(fault) => Err(CredentialsError::invalid_configuration(fault)),
            }
        })
    }

    fn fallback_on_interrupt(&self) -> Option<Credentials> {
        let found = self.0.fallback_on_interrupt();
        found.filter(|found| make_headers(found).is_ok())
    }
}

fn make_headers(credentials: &Credentials) -> Result<(), NoHeader> {
    let parts = [
        (
            "the id of the access key",
            Some(credentials.access_key_id()),
        ),
        ("the session token", credentials.session_token()),
    ];
    for (part, text) in parts {
        let may_stand = |byte: u8| byte.is_ascii_graphic() || byte == b' ';
        if !text.unwrap_or_default().bytes().all(may_stand) {
            return Err(NoHeader(part));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::requests::refusal::Refusal;

    #[tokio::test]
    async fn credentials_with_a_line_break_are_refused_and_not_shown() {
        for (id, token, part) in [
            ("AKIA", None, None),
            ("AKIA", Some("t+/="), None),
            ("AKIAs3cret\n", None, Some("the id of the access key")),
            ("AKIA", Some("s3\ncret"), Some("the session token")),
            ("ä", None, Some("the id of the access key")),
        ] {
            let given = Credentials::new(id, "s", token.map(str::to_owned), None, "a test");
            let signing = Signing(SharedCredentialsProvider::new(given));
            match (signing.provide_credentials().await, part) {
                (Ok(found), None) => assert_eq!(found.access_key_id(), id),
                (Err(error), Some(part)) => {
                    let said = Refusal::of_credentials(&error).reason;
                    assert!(said.contains(part) && said.contains("remove it"), "{said}");
                    assert!(!said.contains("s3"), "{said}");
                }
                other => panic!("{other:?}"),
            }
        }
    }
}
