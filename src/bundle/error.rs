//! Why a set of files was refused, as facts; `sentence` has the words.
//!
//! Nothing of a file's text is in here but names from certificates, escaped.

use std::fmt;

use super::sentence::Sentence;
use super::{Fingerprint, KeyEncoding, KeyType};
use crate::paths::{Paths, Role};
use crate::pem::{self, Label};
use crate::trust::CrlFile;

/// Why no [`Bundle`](super::Bundle) was made.
///
/// Shown alone, it starts with what the file is for (`certificate file: …`); [`BundleError::display_with`] puts
/// the path there. Certificates are counted from 1, lines too. Where key and certificate come from one file, its
/// role is [`Role::Cert`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BundleError {
    /// The file is not sound PEM.
    Pem {
        /// Which file.
        role: Role,
        /// What is wrong with it.
        error: pem::Error,
    },
    /// No certificate where one is needed.
    NoCertificate {
        /// Which file.
        role: Role,
        /// What is there instead.
        found: Found,
    },
    /// No private key where one is needed.
    NoKey {
        /// Which file.
        role: Role,
        /// What is there instead.
        found: Found,
    },
    /// More than one private key: which is meant cannot be known.
    SeveralKeys {
        /// Which file.
        role: Role,
        /// The lines where they start.
        lines: Vec<usize>,
        /// Which of them belongs to the leaf, counted from 1.
        fitting: Option<usize>,
    },
    /// A CERTIFICATE block that holds no certificate.
    NotACertificate {
        /// Which file.
        role: Role,
        /// Which certificate of it.
        position: usize,
        /// The line where it starts, if it came as text.
        line: Option<usize>,
    },
    /// The first certificate is one, but rustls cannot serve it: an old X.509 version, or damaged extensions.
    UnusableLeaf {
        /// Its X.509 version; rustls needs 3.
        version: u32,
    },
    /// The private key is not the DER it should be.
    DamagedKey {
        /// Which file.
        role: Role,
        /// The line where it starts, if it came as text.
        line: Option<usize>,
        /// Its kind, if as much can be told and only the key itself is unusable.
        key_type: Option<KeyType>,
    },
    /// The private key is written in another form than its label says.
    KeyEncodingDiffers {
        /// Which file.
        role: Role,
        /// The line where it starts, if it came as text.
        line: Option<usize>,
        /// What the label says.
        labelled: KeyEncoding,
        /// What it is.
        found: KeyEncoding,
    },
    /// The crypto provider cannot use keys of this kind.
    UnsupportedKey {
        /// Which file.
        role: Role,
        /// The kind.
        key_type: KeyType,
    },
    /// The key is too short to be safe.
    KeyTooSmall {
        /// Which file.
        role: Role,
        /// Its kind and size.
        key_type: KeyType,
        /// The least size, in bits.
        minimum: u32,
    },
    /// The private key belongs to another certificate.
    KeyMismatch {
        /// Which file holds the key.
        key_role: Role,
        /// The SHA-256 of the `SubjectPublicKeyInfo` of the private key.
        key: Fingerprint,
        /// The SHA-256 of the `SubjectPublicKeyInfo` of the leaf.
        leaf: Fingerprint,
    },
    /// The private key belongs to a certificate that is not the first.
    LeafNotFirst {
        /// Which certificate it belongs to.
        position: usize,
        /// How many there are.
        certificates: usize,
    },
    /// A private key in the file of the certificates that verify the peer.
    KeyInCaFile {
        /// The line where it starts.
        line: usize,
    },
    /// A certificate in the CA file that must not issue others.
    NotACa {
        /// Which certificate.
        position: usize,
        /// The line where it starts.
        line: usize,
        /// Its subject, escaped.
        subject: String,
        /// What is missing.
        missing: CaRule,
    },
    /// A certificate in the CA file that rustls cannot use as a trust anchor.
    UnusableAnchor {
        /// Which certificate.
        position: usize,
        /// The line where it starts.
        line: usize,
    },
    /// A CRL file is neither sound PEM nor the DER of a list.
    CrlPem {
        /// Which file.
        file: CrlFile,
        /// What is wrong with it.
        error: pem::Error,
    },
    /// No revocation list in a CRL file.
    NoCrl {
        /// Which file.
        file: CrlFile,
        /// What is there instead.
        found: Found,
    },
    /// Something in a CRL file that is no revocation list, or one that rustls cannot use.
    UnusableCrl {
        /// Which file.
        file: CrlFile,
        /// Which list of the file.
        position: usize,
        /// The line where it starts, if it came as text.
        line: Option<usize>,
    },
}

impl BundleError {
    /// The same sentence with the paths of `paths` instead of what the files are for.
    ///
    /// ```
    /// use rustls_reload::{BundleError, Paths, Role, pem};
    ///
    /// let error = BundleError::Pem { role: Role::Cert, error: pem::parse(b"").unwrap_err() };
    /// assert_eq!(error.to_string(), "certificate file: the file is empty");
    /// let paths = Paths::secret("/etc/tls");
    /// assert_eq!(error.display_with(&paths).to_string(), "/etc/tls/tls.crt: the file is empty");
    /// ```
    pub fn display_with<'a>(&'a self, paths: &'a Paths) -> impl fmt::Display + 'a {
        Sentence { error: self, paths: Some(paths) }
    }

    /// The file it is about. A mismatch is about two; this is the one with the key.
    pub fn role(&self) -> Role {
        match self {
            Self::Pem { role, .. }
            | Self::NoCertificate { role, .. }
            | Self::NoKey { role, .. }
            | Self::SeveralKeys { role, .. }
            | Self::NotACertificate { role, .. }
            | Self::DamagedKey { role, .. }
            | Self::KeyEncodingDiffers { role, .. }
            | Self::UnsupportedKey { role, .. }
            | Self::KeyTooSmall { role, .. }
            | Self::KeyMismatch { key_role: role, .. } => *role,
            Self::UnusableLeaf { .. } | Self::LeafNotFirst { .. } => Role::Cert,
            Self::KeyInCaFile { .. } | Self::NotACa { .. } | Self::UnusableAnchor { .. } => Role::Ca,
            Self::CrlPem { .. } | Self::NoCrl { .. } | Self::UnusableCrl { .. } => Role::Crl,
        }
    }

    /// Which of the CRL files, if it is about one.
    pub(super) fn crl_file(&self) -> Option<&CrlFile> {
        match self {
            Self::CrlPem { file, .. } | Self::NoCrl { file, .. } | Self::UnusableCrl { file, .. } => {
                Some(file)
            }
            _ => None,
        }
    }

    /// A short, stable name of the kind of failure, for a metric's label.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Pem { error, .. } | Self::CrlPem { error, .. } => error.problem().reason(),
            Self::NoCertificate { .. } => "no_certificate",
            Self::NoKey { .. } => "no_key",
            Self::SeveralKeys { .. } => "several_keys",
            Self::NotACertificate { .. } => "bad_certificate",
            Self::UnusableLeaf { .. } => "unusable_leaf",
            Self::DamagedKey { .. } => "bad_key",
            Self::KeyEncodingDiffers { .. } => "key_encoding",
            Self::UnsupportedKey { .. } => "unsupported_key",
            Self::KeyTooSmall { .. } => "key_too_small",
            Self::KeyMismatch { .. } => "key_mismatch",
            Self::LeafNotFirst { .. } => "leaf_not_first",
            Self::KeyInCaFile { .. } => "key_in_ca_file",
            Self::NotACa { .. } => "not_a_ca",
            Self::UnusableAnchor { .. } => "unusable_anchor",
            Self::NoCrl { .. } => "no_crl",
            Self::UnusableCrl { .. } => "bad_crl",
        }
    }
}

impl std::error::Error for BundleError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        // The sentence of a PEM error is already part of ours.
        None
    }
}

impl fmt::Display for BundleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sentence = Sentence { error: self, paths: None };
        sentence.fmt(f)
    }
}

/// Which rule for an issuer a certificate does not meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CaRule {
    /// basicConstraints with CA:TRUE (RFC 5280 §4.2.1.9).
    BasicConstraints,
    /// keyCertSign, where keyUsage is there (RFC 5280 §4.2.1.3).
    KeyCertSign,
}

impl fmt::Display for CaRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BasicConstraints => "basicConstraints does not say CA:TRUE",
            Self::KeyCertSign => "keyUsage lacks keyCertSign",
        })
    }
}

/// The blocks of a file, counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Found {
    /// How many certificates.
    pub certificates: usize,
    /// How many private keys.
    pub private_keys: usize,
    /// How many revocation lists.
    pub crls: usize,
    /// Which other labels, each once.
    pub others: Vec<Label>,
}

impl Found {
    pub(crate) fn in_blocks(blocks: &[pem::Block]) -> Self {
        let mut found = Self::default();
        for block in blocks {
            match block.label() {
                Label::Certificate => found.certificates = found.certificates.saturating_add(1),
                Label::Crl => found.crls = found.crls.saturating_add(1),
                label if label.is_private_key() => found.private_keys = found.private_keys.saturating_add(1),
                label if !found.others.contains(&label) => found.others.push(label),
                _ => {}
            }
        }
        found
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counted =
            [(self.certificates, "certificate"), (self.private_keys, "private key"), (self.crls, "X509 CRL")];
        let mut separator = "";
        for (count, what) in counted.into_iter().filter(|(count, _)| *count > 0) {
            write!(f, "{separator}{count} {what}{}", if count == 1 { "" } else { "s" })?;
            separator = ", ";
        }
        for label in &self.others {
            write!(f, "{separator}{label}")?;
            separator = ", ";
        }
        Ok(())
    }
}
