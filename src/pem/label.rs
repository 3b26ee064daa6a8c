//! The labels of PEM blocks (RFC 7468, and what OpenSSL and OpenSSH write besides).

use std::fmt;

/// What a BEGIN line calls its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Label {
    /// `CERTIFICATE`: X.509, read.
    Certificate,
    /// `PRIVATE KEY`: PKCS#8, read.
    Pkcs8Key,
    /// `RSA PRIVATE KEY`: PKCS#1, read.
    Pkcs1Key,
    /// `EC PRIVATE KEY`: SEC1, read.
    Sec1Key,
    /// `X509 CRL`, read.
    Crl,
    /// `CERTIFICATE REQUEST` or `NEW CERTIFICATE REQUEST`: not read, it certifies nothing.
    CertificateRequest,
    /// `PUBLIC KEY`: not read.
    PublicKey,
    /// `EC PARAMETERS`: not read, the key that follows names its curve again.
    EcParameters,
    /// `DH PARAMETERS`: not read, rustls has no use for it.
    DhParameters,
    /// `ENCRYPTED PRIVATE KEY`: an error.
    EncryptedKey,
    /// `OPENSSH PRIVATE KEY`: an error.
    OpensshKey,
    /// `DSA PRIVATE KEY`: an error.
    DsaKey,
    /// `TRUSTED CERTIFICATE`: OpenSSL's certificate with trust settings, an error.
    TrustedCertificate,
    /// `X509 CERTIFICATE`: an old name of `CERTIFICATE`, an error.
    X509Certificate,
    /// `PKCS7`, `PKCS #7 SIGNED DATA` or `CMS`: may hold certificates, an error.
    Pkcs7,
    /// Any other, without `CERTIFICATE` and `PRIVATE KEY` in it: not read.
    Other,
    /// Any other with `CERTIFICATE` in it: an error.
    OtherCertificate,
    /// Any other with `PRIVATE KEY` in it: an error.
    OtherKey,
}

impl Label {
    /// Which label `text` is.
    pub(super) fn from_text(text: &[u8]) -> Self {
        match text {
            b"CERTIFICATE" => Self::Certificate,
            b"PRIVATE KEY" => Self::Pkcs8Key,
            b"RSA PRIVATE KEY" => Self::Pkcs1Key,
            b"EC PRIVATE KEY" => Self::Sec1Key,
            b"X509 CRL" => Self::Crl,
            b"CERTIFICATE REQUEST" | b"NEW CERTIFICATE REQUEST" => Self::CertificateRequest,
            b"PUBLIC KEY" => Self::PublicKey,
            b"EC PARAMETERS" => Self::EcParameters,
            b"DH PARAMETERS" => Self::DhParameters,
            b"ENCRYPTED PRIVATE KEY" => Self::EncryptedKey,
            b"OPENSSH PRIVATE KEY" => Self::OpensshKey,
            b"DSA PRIVATE KEY" => Self::DsaKey,
            b"TRUSTED CERTIFICATE" => Self::TrustedCertificate,
            b"X509 CERTIFICATE" | b"X.509 CERTIFICATE" => Self::X509Certificate,
            b"PKCS7" | b"PKCS #7 SIGNED DATA" | b"CMS" => Self::Pkcs7,
            other if super::scan::contains(other, b"PRIVATE KEY") => Self::OtherKey,
            other if super::scan::contains(other, b"CERTIFICATE") => Self::OtherCertificate,
            _ => Self::Other,
        }
    }

    /// Whether the block is a private key that is read.
    pub fn is_private_key(self) -> bool {
        matches!(self, Self::Pkcs8Key | Self::Pkcs1Key | Self::Sec1Key)
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Certificate => "CERTIFICATE",
            Self::Pkcs8Key => "PRIVATE KEY",
            Self::Pkcs1Key => "RSA PRIVATE KEY",
            Self::Sec1Key => "EC PRIVATE KEY",
            Self::Crl => "X509 CRL",
            Self::CertificateRequest => "CERTIFICATE REQUEST",
            Self::PublicKey => "PUBLIC KEY",
            Self::EcParameters => "EC PARAMETERS",
            Self::DhParameters => "DH PARAMETERS",
            Self::EncryptedKey => "ENCRYPTED PRIVATE KEY",
            Self::OpensshKey => "OPENSSH PRIVATE KEY",
            Self::DsaKey => "DSA PRIVATE KEY",
            Self::TrustedCertificate => "TRUSTED CERTIFICATE",
            Self::X509Certificate => "X509 CERTIFICATE",
            Self::Pkcs7 => "PKCS7",
            Self::Other => "unknown label",
            Self::OtherCertificate => "unknown label with CERTIFICATE in it",
            Self::OtherKey => "unknown label with PRIVATE KEY in it",
        })
    }
}
