//! Signatures of requests, as [Standard Webhooks] has them.
//!
//! [Standard Webhooks]: https://github.com/standard-webhooks/standard-webhooks

use base64::{Engine as _, engine::general_purpose::STANDARD};
use ring::hmac;

/// Stands before each secret.
const PREFIX: &str = "whsec_";

/// The bytes of a secret, by the specification.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// The secrets by which requests are signed. Its `Debug` shows none.
#[derive(Debug, Clone, Default)]
pub(super) struct Signer(Vec<hmac::Key>);

impl Signer {
    /// The secrets of an option, with commas or white space between them.
    ///
    /// # Errors
    /// The mistake, in words that repeat nothing.
    pub(super) fn new(secrets: &str) -> Result<Self, &'static str> {
        const FORM: &str = "`secret` is `whsec_` with base64 of 24 to 64 bytes behind it, as \
                            `openssl rand -base64 32` gives it; several have commas between them";
        let words = secrets.split([',', ' ', '\t', '\r', '\n']);
        let keys = words
            .filter(|word| !word.is_empty())
            .map(|word| -> Result<_, &'static str> {
                let bytes = word
                    .strip_prefix(PREFIX)
                    .and_then(|text| STANDARD.decode(text).ok())
                    .filter(|bytes| SECRET_BYTES.contains(&bytes.len()))
                    .ok_or(FORM)?;
                Ok(hmac::Key::new(hmac::HMAC_SHA256, &bytes))
            });
        let keys: Vec<_> = keys.collect::<Result<_, _>>()?;
        match keys.is_empty() {
            true => Err(FORM),
            false => Ok(Self(keys)),
        }
    }

    /// How many signatures a request has.
    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    /// The signatures of a request, one for each secret; none without a secret.
    pub(super) fn sign(&self, id: &str, timestamp: u64, body: &[u8]) -> Option<String> {
        let signatures = self.0.iter().map(|key| {
            let mut context = hmac::Context::with_key(key);
            context.update(format!("{id}.{timestamp}.").as_bytes());
            context.update(body);
            format!("v1,{}", STANDARD.encode(context.sign()))
        });
        let signatures: Vec<_> = signatures.collect();
        (!signatures.is_empty()).then(|| signatures.join(" "))
    }

    /// Bytes that its header has at the most.
    pub(super) fn header_bytes(&self) -> usize {
        // `v1,`, base64 of 32 bytes, and a space.
        self.0.len() * (3 + 44 + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the specification's reference libraries.
    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    #[test]
    fn the_example_of_the_specification_is_signed_so() {
        let signer = Signer::new(SECRET).unwrap();
        let body = br#"{"test": 2432232314}"#;
        let signed = signer.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body);
        let expected = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
        assert_eq!(signed.as_deref(), Some(expected));
        assert_eq!(Signer::default().sign("id", 1, body), None);
    }

    #[test]
    fn each_secret_signs() {
        let other = format!("whsec_{}", STANDARD.encode([7; 64]));
        let signer = Signer::new(&format!("{SECRET}, {other}\n")).unwrap();
        let signed = signer.sign("id", 1, b"").unwrap();
        let each: Vec<_> = signed.split(' ').collect();
        assert_eq!((each.len(), signer.count()), (2, 2));
        assert_ne!(each[0], each[1]);
        assert_eq!(
            Some(each[1].to_owned()),
            Signer::new(&other).unwrap().sign("id", 1, b"")
        );
        assert!(signed.len() <= signer.header_bytes());
    }

    #[test]
    fn a_wrong_secret_is_not_repeated() {
        let short = format!("whsec_{}", STANDARD.encode([7; 23]));
        let long = format!("whsec_{}", STANDARD.encode([7; 65]));
        for wrong in ["", " , ", "secret", "whsec_", "whsec_!", &*short, &*long] {
            let said = Signer::new(wrong).unwrap_err();
            assert!(said.contains("24 to 64 bytes"), "{wrong}: {said}");
        }
    }
}
