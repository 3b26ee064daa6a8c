//! What a [`BundleError`] says: the file first, what was found, what was expected, and the likely slip.

use std::fmt;

use super::error::{BundleError, Found};
use super::key::KeyType;
use crate::paths::{Paths, Role};
use crate::pem::Label;
use crate::trust::CrlFile;

/// The one place where the sentences are written.
pub(super) struct Sentence<'a> {
    pub(super) error: &'a BundleError,
    pub(super) paths: Option<&'a Paths>,
}

/// The path of a file, or what it is for.
pub(super) fn file_name(role: Role, crl: Option<&CrlFile>, paths: Option<&Paths>) -> String {
    let configured = || match (crl, paths) {
        // Which of the paths it came from is not known.
        (Some(CrlFile::Number(_)), _) => None,
        (_, paths) => paths.and_then(|paths| paths.get(role)),
    };
    match (crl.and_then(CrlFile::path).or_else(configured), crl) {
        (Some(path), _) => path.display().to_string(),
        (None, Some(crl)) => crl.to_string(),
        (None, None) => role.to_string(),
    }
}

impl fmt::Display for Sentence<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let role = self.error.role();
        f.write_str(&file_name(role, self.error.crl_file(), self.paths))?;
        f.write_str(": ")?;
        match self.error {
            BundleError::Pem { error, .. } | BundleError::CrlPem { error, .. } => error.fmt(f),
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
                    None => f.write_str(": remove all but the one that belongs to the certificate"),
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
            BundleError::UnsupportedKey { key_type: KeyType::EcdsaExplicit, .. } => f.write_str(
                "explicit EC parameters are not supported: name the curve \
                 (openssl ec -in OLD -out NEW -param_enc named_curve) and issue the certificate again",
            ),
            BundleError::UnsupportedKey { key_type, .. } => write!(
                f,
                "unsupported key type {key_type}: the crypto provider in use cannot sign with it; {}",
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
                    _ => file_name(Role::Cert, None, self.paths),
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
            BundleError::NoCrl { found, .. } => write!(f, "no X509 CRL found{}", But(found)),
            BundleError::UnusableCrl { position, line, .. } => {
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
        KeyType::RsaPss { .. } => "use a plain RSA key, which signs with PSS as well",
        _ => "every provider has ECDSA P-256 and P-384, Ed25519 and RSA 2048 to 4096",
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

/// `1, 6 and 9`, or the first few.
struct Listed<'a>(&'a [usize]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, line) in self.0.iter().take(MOST_LISTED).enumerate() {
            let separator = match at {
                0 => "",
                _ if at.saturating_add(1) == self.0.len() => " and ",
                _ => ", ",
            };
            write!(f, "{separator}{line}")?;
        }
        if self.0.len() > MOST_LISTED {
            f.write_str(" and more")?;
        }
        Ok(())
    }
}

const MOST_LISTED: usize = 4;
