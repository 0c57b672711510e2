//! Credentials, where all programs on Google Cloud find them.

use std::path::{Path, PathBuf};

use posthaste_engine::Cause;
use serde::Deserialize;

use crate::requests::refusal::Refusal;

/// The server of a machine on Google Cloud that gives tokens to what runs there.
const METADATA: &str = "metadata.google.internal";
/// Where a person's login asks for tokens, unless its file names another place.
const TOKEN_URI: &str = "https://oauth2.googleapis.com/token";
/// A file of credentials has some 2 000 bytes.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// The variables of the environment that say where credentials are.
#[derive(Debug, Clone, Default)]
pub(super) struct Environment {
    /// `GOOGLE_APPLICATION_CREDENTIALS`.
    pub(super) credentials_file: Option<PathBuf>,
    /// The login that `gcloud auth application-default login` writes.
    pub(super) gcloud_file: Option<PathBuf>,
    /// `HOST:PORT` of the server of the machine.
    pub(super) metadata: String,
    /// `GOOGLE_CLOUD_QUOTA_PROJECT`.
    pub(super) quota_project: Option<String>,
    /// `PUBSUB_EMULATOR_HOST`: its `HOST:PORT`.
    pub(super) emulator: Option<String>,
}

impl Environment {
    /// That of this process.
    pub(super) fn of_process() -> Self {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let text = |name: &str| set(name).and_then(|value| value.into_string().ok());
        let gcloud = set("CLOUDSDK_CONFIG").map(PathBuf::from);
        let home = || set("HOME").map(|home| PathBuf::from(home).join(".config/gcloud"));
        let gcloud = gcloud.or_else(home);
        Self {
            credentials_file: set("GOOGLE_APPLICATION_CREDENTIALS").map(PathBuf::from),
            gcloud_file: gcloud.map(|gcloud| gcloud.join("application_default_credentials.json")),
            metadata: text("GCE_METADATA_HOST").unwrap_or_else(|| METADATA.to_owned()),
            quota_project: text("GOOGLE_CLOUD_QUOTA_PROJECT"),
            emulator: text("PUBSUB_EMULATOR_HOST"),
        }
    }
}

/// The ways to a token. They are secret, and have no `Debug`.
pub(super) enum Credentials {
    ServiceAccount(ServiceAccount),
    AuthorizedUser(AuthorizedUser),
    /// The server of the machine, by its `HOST:PORT`.
    Machine(String),
}

/// The key of an account that is no person's.
#[derive(Deserialize)]
pub(super) struct ServiceAccount {
    pub(super) client_email: String,
    pub(super) private_key: String,
    pub(super) private_key_id: Option<String>,
}

/// The login of a person.
#[derive(Deserialize)]
pub(super) struct AuthorizedUser {
    pub(super) client_id: String,
    pub(super) client_secret: String,
    pub(super) refresh_token: String,
    pub(super) quota_project_id: Option<String>,
    #[serde(default = "token_uri")]
    pub(super) token_uri: String,
}

fn token_uri() -> String {
    TOKEN_URI.to_owned()
}

/// The content of a file.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum File {
    ServiceAccount(ServiceAccount),
    AuthorizedUser(AuthorizedUser),
    #[serde(other)]
    Other,
}

/// Looks for credentials.
#[derive(Debug)]
pub(super) struct Search {
    /// The file that the address names.
    given: Option<PathBuf>,
    environment: Environment,
}

impl Search {
    pub(super) fn new(given: Option<PathBuf>, environment: Environment) -> Self {
        Self { given, environment }
    }

    /// The first of: the file of the address, that of the environment, that of `gcloud`, and the
    /// server of the machine.
    ///
    /// # Errors
    /// A file holds none.
    pub(super) async fn find(&self) -> Result<Credentials, Refusal> {
        let environment = &self.environment;
        let named = self
            .given
            .as_ref()
            .or(environment.credentials_file.as_ref());
        let (file, is_named) = match (named, &environment.gcloud_file) {
            (Some(file), _) => (file.clone(), true),
            (None, Some(file)) => (file.clone(), false),
            (None, None) => return Ok(Credentials::Machine(environment.metadata.clone())),
        };
        let reading = tokio::task::spawn_blocking(move || (read(&file), file)).await;
        let (content, file) = reading.map_err(|_| {
            Refusal::of_service(Cause::Unknown, "reading the file of credentials broke down")
        })?;
        match content {
            Ok(content) => self.parse(&file, &content),
            Err(error) if !is_named && error.kind() == std::io::ErrorKind::NotFound => {
                Ok(Credentials::Machine(environment.metadata.clone()))
            }
            Err(error) => Err(wrong(&file, &error.to_string())),
        }
    }

    fn parse(&self, file: &Path, content: &[u8]) -> Result<Credentials, Refusal> {
        match serde_json::from_slice(content) {
            Ok(File::ServiceAccount(account)) => Ok(Credentials::ServiceAccount(account)),
            Ok(File::AuthorizedUser(mut user)) => {
                let quota = self.environment.quota_project.clone();
                user.quota_project_id = quota.or(user.quota_project_id);
                Ok(Credentials::AuthorizedUser(user))
            }
            Ok(File::Other) => Err(wrong(
                file,
                "its `type` is another than `service_account` and `authorized_user`, which this \
                 sink takes",
            )),
            // The words of the error repeat what stands there.
            Err(error) => {
                let (line, column) = (error.line(), error.column());
                let fault = format!("no credentials in JSON: line {line}, column {column}");
                Err(wrong(file, &fault))
            }
        }
    }
}

fn read(file: &Path) -> std::io::Result<Vec<u8>> {
    use std::io::Read as _;
    let mut content = Vec::new();
    let file = std::fs::File::open(file)?;
    file.take(FILE_BYTES_MAX).read_to_end(&mut content)?;
    Ok(content)
}

fn wrong(file: &Path, fault: &str) -> Refusal {
    let reason = format!("the credentials in `{}`: {fault}", file.display());
    Refusal::of_service(Cause::Denied, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(given: Option<&Path>, environment: &Environment) -> Result<Credentials, String> {
        let search = Search::new(given.map(Path::to_owned), environment.clone());
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let found = runtime.unwrap().block_on(search.find());
        found.map_err(|refusal| refusal.reason)
    }

    #[test]
    fn credentials_are_found_in_their_order() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, id: &str| {
            let file = folder.path().join(name);
            let content = serde_json::json!({
                "type": "authorized_user",
                "client_id": id,
                "client_secret": "s3cret",
                "refresh_token": "s3cret",
                "account": "",
            });
            std::fs::write(&file, content.to_string()).unwrap();
            file
        };
        let (given, of_environment, gcloud) = (
            write("a", "given"),
            write("b", "environment"),
            write("c", "gcloud"),
        );
        let id = |given: Option<&Path>, environment: &Environment| match found(given, environment)
            .unwrap_or_else(|reason| panic!("{reason}"))
        {
            Credentials::AuthorizedUser(user) => {
                assert_eq!(user.token_uri, TOKEN_URI);
                user.client_id
            }
            Credentials::ServiceAccount(_) => "an account".to_owned(),
            Credentials::Machine(host) => host,
        };
        let mut environment = Environment {
            credentials_file: Some(of_environment),
            gcloud_file: Some(gcloud.clone()),
            metadata: "machine".to_owned(),
            ..Environment::default()
        };
        assert_eq!(id(Some(&given), &environment), "given");
        assert_eq!(id(None, &environment), "environment");
        environment.credentials_file = None;
        assert_eq!(id(None, &environment), "gcloud");
        std::fs::remove_file(gcloud).unwrap();
        assert_eq!(id(None, &environment), "machine");
        environment.gcloud_file = None;
        assert_eq!(id(None, &environment), "machine");
    }

    #[test]
    fn a_file_without_credentials_names_the_fault_and_no_secret() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("key.json");
        let environment = Environment::default();
        for (content, words) in [
            ("s3cret", "line 1"),
            (r#"{"type":"external_account"}"#, "its `type` is another"),
            (r#"{"type":"service_account"}"#, "no credentials in JSON"),
            (
                r#"{"type":"service_account","client_email":{"a":"s3cret"}}"#,
                "no credentials",
            ),
        ] {
            std::fs::write(&file, content).unwrap();
            let said = found(Some(&file), &environment).err().unwrap();
            assert!(said.contains(words) && said.contains("key.json"), "{said}");
            assert!(!said.contains("s3cret"), "{said}");
        }
        std::fs::remove_file(&file).unwrap();
        // A file that is named must be there.
        assert!(found(Some(&file), &environment).is_err());
    }
}
