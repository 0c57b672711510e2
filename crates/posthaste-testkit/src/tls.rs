//! A certificate authority for tests of TLS.

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A key of RSA that is nobody's, in PKCS #8: what makes keys here makes none of these.
pub const RSA_KEY_PEM: &str = include_str!("tls/rsa_key.pem");

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
