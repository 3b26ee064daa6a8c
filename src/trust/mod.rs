//! What verifies the peer: the trust anchors of the CA file and the revocation lists of the CRL files.
//!
//! Fails closed: one bad entry refuses the file, for a peer must not be judged by half of what was meant. The
//! system's pool is not known here.

mod crl;
mod system;

pub(crate) use system::system_roots;

pub use crl::{CrlExpiry, CrlFile};

pub(crate) use crl::CrlInput;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, UnixTime};

use crate::bundle::{
    self, BundleError, Fingerprint, Found, Validity, ValidityState, Warning, anchor_is_ca, is_version_1_root,
};
use crate::paths::Role;
use crate::pem;
use crl::Lists;

/// The trust of one generation, checked and never changed.
///
/// With a CRL file but no CA file there are no anchors: the lists are then for use with other roots.
#[derive(Clone)]
pub struct Trust {
    roots: Arc<RootCertStore>,
    subjects: Vec<String>,
    fingerprints: BTreeSet<Fingerprint>,
    crls: Lists,
    not_after: Option<i64>,
}

impl Trust {
    pub(crate) fn from_pem(
        ca: Option<&[u8]>,
        crls: &[CrlInput<'_>],
        provider: &CryptoProvider,
        now: UnixTime,
        warnings: &mut Vec<Warning>,
    ) -> Result<Self, BundleError> {
        let mut anchors = Anchors::default();
        if let Some(ca) = ca {
            anchors.read(ca, now, warnings)?;
        }
        let crls = Lists::read(crls, provider, now, warnings)?;
        Ok(Self {
            roots: Arc::new(anchors.roots),
            subjects: anchors.subjects,
            fingerprints: anchors.fingerprints,
            crls,
            not_after: anchors.not_after,
        })
    }

    /// The trust anchors as rustls takes them.
    pub fn roots(&self) -> &Arc<RootCertStore> {
        &self.roots
    }

    /// The subjects of the anchors, escaped as [`Leaf::subject`](crate::Leaf::subject), in the order of the file.
    pub fn subjects(&self) -> &[String] {
        &self.subjects
    }

    /// How many different anchors there are.
    pub fn anchors(&self) -> usize {
        self.fingerprints.len()
    }

    /// The SHA-256 of each anchor's DER. Two generations with equal sets trust the same issuers.
    pub fn fingerprints(&self) -> &BTreeSet<Fingerprint> {
        &self.fingerprints
    }

    /// The revocation lists, the newest first; each is known to be one that rustls can use. Of several of the same
    /// issuer, key and distribution point only the newest is here. Their signatures are looked at when a peer is
    /// verified, their dates if [`CrlExpiry::Enforce`] is wanted.
    ///
    /// Where there are lists at all, each certificate of a peer's chain must be covered by one: rustls refuses a
    /// peer whose status is unknown, and this crate keeps that. Otherwise a list that is missing would revoke
    /// nobody.
    pub fn crls(&self) -> &[CertificateRevocationListDer<'static>] {
        &self.crls.ders
    }

    /// When the first of the revocation lists expires, in seconds since 1970, if there are any.
    pub fn crl_next_update(&self) -> Option<i64> {
        self.crls.next_update
    }

    /// The earliest not-after of the anchors, in seconds since 1970, if there are any.
    pub fn trust_not_after(&self) -> Option<i64> {
        self.not_after
    }
}

impl fmt::Debug for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trust")
            .field("anchors", &self.anchors())
            .field("crls", &self.crls().len())
            .field("crl_next_update", &self.crls.next_update)
            .field("trust_not_after", &self.not_after)
            .finish_non_exhaustive()
    }
}

struct Anchors {
    roots: RootCertStore,
    subjects: Vec<String>,
    fingerprints: BTreeSet<Fingerprint>,
    not_after: Option<i64>,
}

impl Default for Anchors {
    fn default() -> Self {
        Self {
            roots: RootCertStore::empty(),
            subjects: Vec::new(),
            fingerprints: BTreeSet::new(),
            not_after: None,
        }
    }
}

impl Anchors {
    fn read(&mut self, text: &[u8], now: UnixTime, warnings: &mut Vec<Warning>) -> Result<(), BundleError> {
        let blocks = pem::parse(text).map_err(|error| BundleError::Pem { role: Role::Ca, error })?;
        let found = Found::in_blocks(&blocks);
        let mut position = 0_usize;
        for block in blocks {
            let (label, line) = (block.label(), block.line());
            if label.is_private_key() {
                return Err(BundleError::KeyInCaFile { line });
            }
            match block.into_certificate() {
                Some(certificate) => {
                    position = position.saturating_add(1);
                    self.add(position, line, &certificate, now, warnings)?;
                }
                None => warnings.push(Warning::SkippedBlock { role: Role::Ca, label, line }),
            }
        }
        match position {
            0 => Err(BundleError::NoCertificate { role: Role::Ca, found }),
            _ => Ok(()),
        }
    }

    fn add(
        &mut self,
        position: usize,
        line: usize,
        der: &CertificateDer<'_>,
        now: UnixTime,
        warnings: &mut Vec<Warning>,
    ) -> Result<(), BundleError> {
        let Some(certificate) = bundle::parse_certificate(der) else {
            return Err(BundleError::NotACertificate { role: Role::Ca, position, line: Some(line) });
        };
        let subject = bundle::subject_text(certificate.subject());
        if let Err(missing) = anchor_is_ca(&certificate) {
            return Err(BundleError::NotACa { position, line, subject, missing });
        }
        if !self.fingerprints.insert(Fingerprint::of(der)) {
            warnings.push(Warning::DuplicateCertificate { role: Role::Ca, position });
            return Ok(());
        }
        if self.roots.add(der.clone()).is_err() {
            return Err(BundleError::UnusableAnchor { position, line });
        }
        let validity = Validity::of(&certificate);
        if validity.at(now) != ValidityState::Valid {
            warnings.push(Warning::AnchorOutOfValidity { position, subject: subject.clone() });
        }
        if is_version_1_root(&certificate) {
            warnings.push(Warning::AnchorVersion1 { position, subject: subject.clone() });
        }
        warnings.extend(bundle::weak_key(Role::Ca, position, &certificate));
        self.not_after =
            Some(self.not_after.map_or(validity.not_after, |least| least.min(validity.not_after)));
        self.subjects.push(subject);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
