//! What was let pass, and should be known.

use std::fmt;

use super::sentence::file_name;
use super::{Date, KeyType, Purpose, Validity};
use crate::paths::{Paths, Role};
use crate::pem::Label;
use crate::trust::CrlFile;

/// Something odd in the files that did not refuse them.
///
/// Certificates are counted from 1 within their file, lines too.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// A block that was not used.
    SkippedBlock {
        /// Which file.
        role: Role,
        /// What it is.
        label: Label,
        /// The line where it starts.
        line: usize,
    },
    /// A private key in the certificate file, although another file holds the key. It was not used, and
    /// certificate files are often readable by everybody.
    KeyInCertificateFile {
        /// The line where it starts.
        line: usize,
    },
    /// The provider does not tell the public key of its private keys: whether key and leaf fit was not checked.
    KeyNotCompared,
    /// The leaf is not valid any more.
    LeafExpired {
        /// When it was.
        validity: Validity,
    },
    /// The leaf is not valid yet.
    LeafNotYetValid {
        /// When it will be.
        validity: Validity,
    },
    /// The leaf is a CA certificate; peers that check that refuse it.
    LeafIsCa,
    /// The leaf's extended key usage lacks a purpose. A server needs no clientAuth, a client no serverAuth.
    PurposeMissing(Purpose),
    /// A certificate of the chain after the leaf is out of its validity.
    ChainOutOfValidity {
        /// Which certificate.
        position: usize,
    },
    /// A certificate of the chain comes before the one it issued. TLS 1.2 wants order (RFC 5246 §7.4.2); most
    /// peers sort.
    ChainOutOfOrder {
        /// Which certificate.
        position: usize,
    },
    /// A self-signed certificate after the leaf: peers have their own roots, it costs bytes only.
    RootInChain {
        /// Which certificate.
        position: usize,
    },
    /// A certificate that is in its file already.
    DuplicateCertificate {
        /// Which file.
        role: Role,
        /// Which certificate.
        position: usize,
    },
    /// A certificate of the chain that issued none of the others, going by names.
    UnrelatedCertificate {
        /// Which certificate.
        position: usize,
    },
    /// A short key, not the leaf's.
    WeakKey {
        /// Which file.
        role: Role,
        /// Which certificate.
        position: usize,
        /// Kind and size.
        key_type: KeyType,
    },
    /// A signature with a broken hash (SHA-1, MD5); rustls peers refuse it.
    WeakSignature {
        /// Which file.
        role: Role,
        /// Which certificate.
        position: usize,
        /// The algorithm.
        algorithm: &'static str,
    },
    /// A trust anchor out of its validity. rustls does not look at an anchor's dates: it stays trusted.
    AnchorOutOfValidity {
        /// Which certificate.
        position: usize,
        /// Its subject, escaped.
        subject: String,
    },
    /// A trust anchor of X.509 version 1: without extensions, nothing limits what it may issue.
    AnchorVersion1 {
        /// Which certificate.
        position: usize,
        /// Its subject, escaped.
        subject: String,
    },
    /// A block in a CRL file that was not used.
    SkippedInCrl {
        /// Which file.
        file: CrlFile,
        /// What it is.
        label: Label,
        /// The line where it starts.
        line: usize,
    },
    /// A newer revocation list is due. This one stays in force, unless expired lists are to refuse everybody.
    CrlExpired {
        /// Which file.
        file: CrlFile,
        /// Which list of the file.
        position: usize,
        /// When it was due, in seconds since 1970.
        next_update: i64,
    },
    /// A revocation list that is not used, for there is a newer one of the same issuer, or the same once more.
    CrlSuperseded {
        /// Which file.
        file: CrlFile,
        /// Which list of the file.
        position: usize,
    },
    /// An OCSP response that is not stapled.
    OcspUnusable(OcspProblem),
}

impl Warning {
    /// The file it is about.
    pub fn role(&self) -> Role {
        match self {
            Self::SkippedBlock { role, .. }
            | Self::DuplicateCertificate { role, .. }
            | Self::WeakKey { role, .. }
            | Self::WeakSignature { role, .. } => *role,
            Self::KeyNotCompared => Role::Key,
            Self::AnchorOutOfValidity { .. } | Self::AnchorVersion1 { .. } => Role::Ca,
            Self::SkippedInCrl { .. } | Self::CrlExpired { .. } | Self::CrlSuperseded { .. } => Role::Crl,
            Self::OcspUnusable(_) => Role::Ocsp,
            _ => Role::Cert,
        }
    }

    /// Which of the CRL files, if it is about one.
    fn crl_file(&self) -> Option<&CrlFile> {
        match self {
            Self::SkippedInCrl { file, .. }
            | Self::CrlExpired { file, .. }
            | Self::CrlSuperseded { file, .. } => Some(file),
            _ => None,
        }
    }

    /// The same sentence with the path of `paths` instead of what the file is for.
    pub fn display_with<'a>(&'a self, paths: &'a Paths) -> impl fmt::Display + 'a {
        Named { warning: self, paths }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", file_name(self.role(), self.crl_file(), None), Sentence(self))
    }
}

/// A warning behind the path of its file.
struct Named<'a> {
    warning: &'a Warning,
    paths: &'a Paths,
}

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { warning, paths } = self;
        let file = file_name(warning.role(), warning.crl_file(), Some(paths));
        write!(f, "{file}: {}", Sentence(warning))
    }
}

/// What a warning says, behind the file.
struct Sentence<'a>(&'a Warning);

impl fmt::Display for Sentence<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Warning::SkippedBlock { label, line, .. } | Warning::SkippedInCrl { label, line, .. } => {
                write!(f, "line {line}: {label} is not used")
            }
            Warning::KeyInCertificateFile { line } => {
                write!(f, "line {line}: a private key that is not used: is this file readable by others?")
            }
            Warning::KeyNotCompared => {
                f.write_str("the crypto provider does not tell whether the key fits the certificate")
            }
            Warning::LeafExpired { validity } => {
                write!(f, "the leaf expired at {}", Date(validity.not_after))
            }
            Warning::LeafNotYetValid { validity } => {
                write!(f, "the leaf is not valid before {}", Date(validity.not_before))
            }
            Warning::LeafIsCa => f.write_str("the leaf is a CA certificate"),
            Warning::PurposeMissing(purpose) => {
                write!(f, "the extended key usage of the leaf lacks {purpose}")
            }
            Warning::ChainOutOfValidity { position } => {
                write!(f, "certificate {position} is expired or not yet valid")
            }
            Warning::ChainOutOfOrder { position } => {
                write!(f, "certificate {position} is out of order: it comes before the one it issued")
            }
            Warning::RootInChain { position } => {
                write!(f, "certificate {position} is a root: peers do not need it")
            }
            Warning::DuplicateCertificate { position, .. } => {
                write!(f, "certificate {position} is there twice")
            }
            Warning::UnrelatedCertificate { position } => {
                write!(f, "certificate {position} did not issue any certificate of the chain")
            }
            Warning::WeakKey { position, key_type, .. } => {
                write!(f, "certificate {position} has a weak key: {key_type}")
            }
            Warning::WeakSignature { position, algorithm, .. } => {
                write!(f, "certificate {position} has a weak signature: {algorithm}")
            }
            Warning::AnchorOutOfValidity { position, subject } => {
                write!(f, "certificate {position} ({subject}) is expired or not yet valid; it stays trusted")
            }
            Warning::AnchorVersion1 { position, subject } => {
                write!(f, "certificate {position} ({subject}) is of X.509 version 1: nothing limits it")
            }
            Warning::CrlExpired { position, next_update, .. } => write!(
                f,
                "revocation list {position} expired at {}: is its download late?",
                Date(*next_update)
            ),
            Warning::CrlSuperseded { position, .. } => {
                write!(f, "revocation list {position} is not used: a newer one of its issuer is there")
            }
            Warning::OcspUnusable(problem) => write!(f, "{problem}: nothing is stapled"),
        }
    }
}

/// Why an OCSP response is not stapled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OcspProblem {
    /// It is configured, and not there.
    #[error("the file is missing")]
    Missing,
    /// Nothing in it.
    #[error("the file is empty")]
    Empty,
    /// PEM, or anything else.
    #[error("not an OCSP response in DER")]
    NotOcsp,
    /// The responder answered with an error (RFC 6960 §4.2.1).
    #[error("the responder answered with status {0}, expected 0 (successful)")]
    Status(u8),
    /// Successful, but not of the basic type, the only one there is (RFC 6960 §4.2.1).
    #[error("not a basic OCSP response")]
    NotBasic,
    /// Of the basic type, but its DER is not what RFC 6960 says.
    #[error("the basic OCSP response is damaged")]
    Damaged,
    /// It is not about the leaf: the serial number differs or, where they are told by SHA-256, the issuer.
    #[error("the response is for another certificate: is it from before the renewal?")]
    OtherCertificate,
    /// The CA has revoked the leaf.
    #[error(
        "THE CERTIFICATE IS REVOKED since {since} (Unix time), peers that ask will refuse it: replace it and its key"
    )]
    #[non_exhaustive]
    Revoked {
        /// Since when, in seconds since 1970.
        since: i64,
    },
    /// The responder does not know the leaf.
    #[error("the responder does not know the certificate: is it the responder of this CA?")]
    Unknown,
    /// It is of the future.
    #[error("the response is not valid before {this_update} (Unix time): is the clock wrong?")]
    #[non_exhaustive]
    NotYetValid {
        /// From when on, in seconds since 1970.
        this_update: i64,
    },
    /// A newer one is due.
    #[error("the response is stale since {}: is its download late?", Date(*next_update))]
    #[non_exhaustive]
    Stale {
        /// When it was due, in seconds since 1970.
        next_update: i64,
    },
    /// It does not say how long it is good: a file of it could be of any age.
    #[error("the response has no next update, so its age cannot be judged")]
    NoNextUpdate,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_comes_first_by_role_or_by_path() {
        let warning = Warning::AnchorVersion1 { position: 2, subject: "CN=old".to_owned() };
        let sentence = "certificate 2 (CN=old) is of X.509 version 1: nothing limits it";
        assert_eq!(warning.to_string(), format!("CA file: {sentence}"));
        let with_ca = Paths::secret("/etc/tls");
        assert_eq!(warning.display_with(&with_ca).to_string(), format!("/etc/tls/ca.crt: {sentence}"));
        let without = Paths::certbot("/etc/tls");
        assert_eq!(warning.display_with(&without).to_string(), format!("CA file: {sentence}"));
    }
}
