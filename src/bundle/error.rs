//! Why a set of files was refused, as facts; the sentences are made when they are shown.
//!
//! Nothing of a file's text is in here but names from certificates, escaped.

use std::fmt;

use super::{Fingerprint, KeyEncoding, KeyType};
use crate::paths::{Paths, Role};
use crate::pem::{self, Label};

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
    /// No revocation list in the CRL file.
    NoCrl {
        /// What is there instead.
        found: Found,
    },
    /// Something in the CRL file that is no revocation list, or one that rustls cannot use.
    UnusableCrl {
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
            Self::NoCrl { .. } | Self::UnusableCrl { .. } => Role::Crl,
        }
    }

    /// A short, stable name of the kind of failure, for a metric's label.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Pem { error, .. } => error.problem().reason(),
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

/// The one place where the sentences are written.
struct Sentence<'a> {
    error: &'a BundleError,
    paths: Option<&'a Paths>,
}

impl Sentence<'_> {
    fn name(&self, role: Role) -> String {
        match self.paths.and_then(|paths| paths.get(role)) {
            Some(path) => path.display().to_string(),
            None => role.to_string(),
        }
    }
}

impl fmt::Display for Sentence<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.name(self.error.role()))?;
        match self.error {
            BundleError::Pem { error, .. } => error.fmt(f),
            BundleError::NoCertificate { role, found } => {
                write!(f, "no certificate found{}{}", But(found), missing_certificate_advice(*role, found))
            }
            BundleError::NoKey { role, found } => {
                write!(f, "no private key found{}{}", But(found), missing_key_advice(*role, found))
            }
            BundleError::SeveralKeys { lines, fitting, .. } => {
                write!(f, "{} private keys (lines {}), expected one", lines.len(), Listed(lines))?;
                match fitting {
                    Some(fitting) => write!(f, ": number {fitting} fits the certificate, remove the others"),
                    None => f.write_str(", and none of them fits the certificate"),
                }
            }
            BundleError::NotACertificate { position, line, .. } => {
                write!(f, "{}certificate {position} is not a certificate: its DER is damaged", Line(*line))
            }
            BundleError::UnusableLeaf { version: 3 } => {
                f.write_str("the leaf cannot be served by rustls: its extensions are damaged")
            }
            BundleError::UnusableLeaf { version } => {
                write!(
                    f,
                    "the leaf is X.509 version {version}, expected 3: issue it with a subjectAltName extension"
                )
            }
            BundleError::DamagedKey { line, key_type, .. } => match key_type {
                Some(key_type) => {
                    write!(
                        f,
                        "{}the {key_type} private key is damaged: the crypto provider refuses it",
                        Line(*line)
                    )
                }
                None => write!(f, "{}the private key is damaged: its DER is not a key", Line(*line)),
            },
            BundleError::KeyEncodingDiffers { line, labelled, found, .. } => write!(
                f,
                "{}the label says {labelled} but the contents are {found}: was the label edited? \
                 (openssl pkey -in OLD -out NEW)",
                Line(*line)
            ),
            BundleError::UnsupportedKey { key_type, .. } => write!(
                f,
                "unsupported key type {key_type}: the crypto provider in use cannot sign with it{}",
                unsupported_advice(*key_type)
            ),
            BundleError::KeyTooSmall { key_type, minimum, .. } => match key_type {
                KeyType::Rsa { bits } => {
                    write!(f, "RSA key has {bits} bits, {minimum} needed: make a new key")
                }
                _ => write!(f, "{key_type} key is too small, {minimum} bits needed: make a new key"),
            },
            BundleError::KeyMismatch { key_role, key, leaf } => {
                let certificate = match key_role {
                    Role::Cert => "the same file".to_owned(),
                    _ if self.paths.is_none() => format!("the {}", Role::Cert),
                    _ => self.name(Role::Cert),
                };
                write!(
                    f,
                    "the private key does not belong to the leaf in {certificate}: \
                     public key SHA-256 {key}, but the leaf has {leaf}"
                )
            }
            BundleError::LeafNotFirst { position, certificates } => write!(
                f,
                "the key matches certificate {position} of {certificates}; the leaf must come first"
            ),
            BundleError::KeyInCaFile { line } => write!(
                f,
                "line {line}: private key in a file of CA certificates: remove it, and replace the key if others read it"
            ),
            BundleError::NotACa { position, line, subject, missing } => {
                write!(f, "line {line}: certificate {position} ({subject}) is not a CA: {missing}")
            }
            BundleError::UnusableAnchor { position, line } => {
                write!(
                    f,
                    "line {line}: certificate {position} cannot be a trust anchor: rustls does not read it"
                )
            }
            BundleError::NoCrl { found } => write!(f, "no X509 CRL found{}", But(found)),
            BundleError::UnusableCrl { position, line } => {
                write!(
                    f,
                    "{}revocation list {position} is damaged or of a kind that rustls cannot use",
                    Line(*line)
                )
            }
        }
    }
}

fn missing_certificate_advice(role: Role, found: &Found) -> &'static str {
    if role == Role::Cert && found.private_keys > 0 {
        ": were the two paths swapped?"
    } else if found.others.contains(&Label::CertificateRequest) {
        ": a request is what the CA gets, expected CERTIFICATE, what it returns"
    } else {
        ", expected CERTIFICATE"
    }
}

fn missing_key_advice(role: Role, found: &Found) -> &'static str {
    if role == Role::Key && found.certificates > 0 {
        ": were the two paths swapped?"
    } else if found.others.contains(&Label::PublicKey) {
        ": a public key cannot sign, expected PRIVATE KEY"
    } else {
        ", expected PRIVATE KEY, RSA PRIVATE KEY or EC PRIVATE KEY"
    }
}

fn unsupported_advice(key_type: KeyType) -> &'static str {
    match key_type {
        KeyType::EcdsaExplicit => {
            "; explicit EC parameters are not supported: name the curve (openssl ec -param_enc named_curve)"
        }
        KeyType::RsaPss { .. } => "; use a plain RSA key, which signs with PSS as well",
        _ => "; every provider has ECDSA P-256 and P-384, Ed25519 and RSA 2048 to 4096",
    }
}

/// `, but 2 certificates`, or nothing where nothing was found.
struct But<'a>(&'a Found);

impl fmt::Display for But<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self.0 == Found::default() {
            true => Ok(()),
            false => write!(f, ", but {}", self.0),
        }
    }
}

/// `line N: `, or nothing.
struct Line(Option<usize>);

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(line) => write!(f, "line {line}: "),
            None => Ok(()),
        }
    }
}

/// `1, 6 and 9`.
struct Listed<'a>(&'a [usize]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, line) in self.0.iter().enumerate() {
            let separator = match at {
                0 => "",
                _ if at.saturating_add(1) == self.0.len() => " and ",
                _ => ", ",
            };
            write!(f, "{separator}{line}")?;
        }
        Ok(())
    }
}
