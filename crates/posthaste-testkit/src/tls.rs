//! A certificate authority for tests of TLS.

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use tempfile::TempDir;

/// A key of RSA, the same for the whole process, in PKCS #8. It is OpenSSL's, since `ring` makes
/// none.
///
/// # Panics
///
/// When OpenSSL's program is not there: `apt-get install openssl`.
#[must_use]
pub fn rsa_key_pem() -> &'static str {
    static KEY: LazyLock<String> = LazyLock::new(|| {
        let of_2048_bits = ["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"];
        let mut openssl = Command::new("openssl");
        let made = openssl.arg("genpkey").args(of_2048_bits).output();
        let made = made.unwrap_or_else(|error| panic!("openssl: {error}: apt-get install openssl"));
        assert!(made.status.success(), "{made:?}");
        String::from_utf8(made.stdout).expect("a key as text")
    });
    &KEY
}

/// A certificate authority of its own, whose files disappear with it.
///
/// A second one is what a negative test needs: it never signed the server's certificate.
#[derive(Debug)]
pub struct TestCa {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: TempDir,
}

/// A server's certificate and private key, as PEM.
#[derive(Debug, Clone)]
pub struct ServerCertificate {
    /// The certificate, followed by nothing: the authority signs directly.
    pub certificate_pem: String,
    /// The private key in PKCS #8.
    pub key_pem: String,
}

impl TestCa {
    /// Makes an authority and writes its certificate to [`Self::certificate_file`].
    ///
    /// # Panics
    ///
    /// When the temporary folder cannot be written.
    #[must_use]
    pub fn new() -> Self {
        let mut params = CertificateParams::default();
        // A name of its own: a client that trusts another authority then says "unknown issuer", as
        // it does in real life, instead of "bad signature".
        let name = format!("Posthaste test authority {}", uuid::Uuid::new_v4());
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().expect("generate a key");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("sign the authority");
        let folder = tempfile::Builder::new()
            .prefix("ph-ca-")
            .tempdir()
            .expect("make a folder");
        let ca = Self { issuer, folder };
        fs::write(ca.certificate_file(), ca.issuer.pem()).expect("write the certificate");
        ca
    }

    /// The authority's certificate as a PEM file, as `sslrootcert` wants it.
    #[must_use]
    pub fn certificate_file(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// A folder for further files of a test, which lives as long as the authority.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Writes a key in PEM of this account of Google to a file of this name in
    /// [`folder`](Self::folder), and answers its path.
    ///
    /// # Panics
    ///
    /// When it cannot be written.
    pub fn account_file(&self, name: &str, account: &str, key_pem: &str) -> String {
        let file = self.folder().join(name);
        let key = json!({
            "type": "service_account",
            "project_id": "shop",
            "private_key_id": "key-1",
            "private_key": key_pem,
            "client_email": account,
            "token_uri": "https://oauth2.googleapis.com/token",
        });
        fs::write(&file, key.to_string()).expect("write to a temporary folder");
        file.display().to_string()
    }

    /// A server certificate for exactly these names: DNS names, or IP addresses in text form. A
    /// client may show it too.
    ///
    /// # Panics
    ///
    /// When a name is neither.
    #[must_use]
    pub fn server_certificate(&self, names: &[&str]) -> ServerCertificate {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(names).expect("names of the certificate");
        params
            .distinguished_name
            .push(DnType::CommonName, "Posthaste test server");
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let key = KeyPair::generate().expect("generate a key");
        let certificate = params
            .signed_by(&key, &self.issuer)
            .expect("sign a certificate");
        ServerCertificate {
            certificate_pem: certificate.pem(),
            key_pem: key.serialize_pem(),
        }
    }
}

impl Default for TestCa {
    fn default() -> Self {
        Self::new()
    }
}
