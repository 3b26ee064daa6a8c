//! From PEM blocks to a chain and the keys beside it: which block is what, before anything is judged.

use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;
use zeroize::Zeroizing;

use super::{BundleError, Found, Warning, no_certificate};
use crate::paths::Role;
use crate::pem::{self, Block, Label};

/// A chain and every key that might be its own.
pub(super) struct Identity {
    pub(super) chain: Chain,
    /// At least one.
    pub(super) keys: Vec<Key>,
}

impl Identity {
    /// Of a certificate file and a key file, or of one file that is both.
    pub(super) fn from_pem(
        cert: &[u8],
        key: Option<&[u8]>,
        warnings: &mut Vec<Warning>,
    ) -> Result<Self, BundleError> {
        let mut chain = Chain::default();
        let mut keys = Vec::new();
        let cert_blocks = blocks(Role::Cert, cert)?;
        let found = Found::in_blocks(&cert_blocks);
        // Two names of one file, which is both.
        let key = key.filter(|key| found.private_keys == 0 || *key != cert);
        for block in cert_blocks {
            match block.label() {
                Label::Certificate => chain.push(block),
                label if label.is_private_key() && key.is_none() => keys.extend(Key::new(Role::Cert, &block)),
                label if label.is_private_key() => {
                    warnings.push(Warning::KeyInCertificateFile { line: block.line() });
                }
                _ => skip(Role::Cert, &block, warnings),
            }
        }
        if chain.certificates.is_empty() {
            return Err(BundleError::NoCertificate { role: Role::Cert, found });
        }
        let Some(key) = key else {
            return Self { chain, keys }.with_a_key(Role::Cert, found);
        };
        let key_blocks = blocks(Role::Key, key)?;
        let found = Found::in_blocks(&key_blocks);
        for block in key_blocks {
            match block.label().is_private_key() {
                true => keys.extend(Key::new(Role::Key, &block)),
                false => skip(Role::Key, &block, warnings),
            }
        }
        Self { chain, keys }.with_a_key(Role::Key, found)
    }

    pub(super) fn from_der(
        certificates: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Self, BundleError> {
        let der = Zeroizing::new(key);
        if certificates.is_empty() {
            return Err(no_certificate());
        }
        Ok(Self {
            chain: Chain { lines: vec![None; certificates.len()], certificates },
            keys: vec![Key { role: Role::Key, line: None, der }],
        })
    }

    fn with_a_key(self, role: Role, found: Found) -> Result<Self, BundleError> {
        match self.keys.is_empty() {
            true => Err(BundleError::NoKey { role, found }),
            false => Ok(self),
        }
    }
}

/// The certificates as they are sent, and where each was found.
#[derive(Default)]
pub(super) struct Chain {
    pub(super) certificates: Vec<CertificateDer<'static>>,
    lines: Vec<Option<usize>>,
}

impl Chain {
    fn push(&mut self, block: Block) {
        let line = block.line();
        if let Some(certificate) = block.into_certificate() {
            self.certificates.push(certificate);
            self.lines.push(Some(line));
        }
    }

    /// Every certificate, parsed; at least one.
    pub(super) fn parse(&self) -> Result<Vec<X509Certificate<'_>>, BundleError> {
        let numbered = (1..).zip(self.certificates.iter().zip(&self.lines));
        numbered
            .map(|(position, (der, line))| {
                parse_certificate(der).ok_or(BundleError::NotACertificate {
                    role: Role::Cert,
                    position,
                    line: *line,
                })
            })
            .collect()
    }
}

/// A private key, and where it was found.
pub(super) struct Key {
    pub(super) role: Role,
    pub(super) line: Option<usize>,
    pub(super) der: Zeroizing<PrivateKeyDer<'static>>,
}

impl Key {
    fn new(role: Role, block: &Block) -> Option<Self> {
        Some(Self { role, line: Some(block.line()), der: Zeroizing::new(block.private_key()?.clone_key()) })
    }
}

/// One certificate, with nothing behind it.
pub(crate) fn parse_certificate<'a>(der: &'a CertificateDer<'_>) -> Option<X509Certificate<'a>> {
    match X509Certificate::from_der(der) {
        Ok(([], certificate)) => Some(certificate),
        _ => None,
    }
}

fn blocks(role: Role, text: &[u8]) -> Result<Vec<Block>, BundleError> {
    pem::parse(text).map_err(|error| BundleError::Pem { role, error })
}

/// A block that is not wanted. `EC PARAMETERS` says nothing that the key behind it does not say again.
fn skip(role: Role, block: &Block, warnings: &mut Vec<Warning>) {
    if block.label() != Label::EcParameters {
        warnings.push(Warning::SkippedBlock { role, label: block.label(), line: block.line() });
    }
}
