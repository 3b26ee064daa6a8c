//! The rules for an identity, one small function each. *Security* rules refuse; *courtesy* rules warn.
//!
//! Certificates are parsed already; positions are counted from 1.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::UnixTime;
use rustls::server::ParsedCertificate;
use rustls::sign::SigningKey;
use x509_parser::certificate::X509Certificate;

use super::input::{Chain, Key};
use super::key::{KeyEncoding, identify};
use super::leaf::Purposes;
use super::{BundleError, CaRule, Curve, Fingerprint, KeyType, Purpose, Validity, ValidityState, Warning};
use crate::paths::Role;

/// A key that the provider accepted.
pub(super) struct LoadedKey {
    role: Role,
    pub(super) signing: Arc<dyn SigningKey>,
}

/// Security: rustls itself can serve the leaf, and its key is of a kind that peers can rely on.
pub(super) fn leaf_is_usable(chain: &Chain, certificates: &[X509Certificate<'_>]) -> Result<(), BundleError> {
    let (Some(der), Some(leaf)) = (chain.certificates.first(), certificates.first()) else {
        return Ok(());
    };
    if ParsedCertificate::try_from(der).is_err() {
        // Version 3 is written as 2.
        let version = leaf.version().0.saturating_add(1);
        return Err(BundleError::UnusableLeaf { version });
    }
    let key_type = KeyType::of_spki(leaf.public_key().raw);
    key_is_large_enough(Role::Cert, key_type)?;
    curve_is_named(Role::Cert, key_type)
}

/// Security: there is one key. With two, the one that is meant may be the one that was to be retired.
pub(super) fn one_key(
    keys: &[Key],
    certificates: &[X509Certificate<'_>],
    provider: &CryptoProvider,
) -> Result<LoadedKey, BundleError> {
    match keys {
        [key] => load(key, provider),
        _ => Err(BundleError::SeveralKeys {
            role: keys.first().map_or(Role::Key, |key| key.role),
            lines: keys.iter().filter_map(|key| key.line).collect(),
            fitting: fitting_key(keys, certificates, provider),
        }),
    }
}

/// Which of some keys belongs to the leaf, counted from 1. Files with hundreds of keys are not worth the time.
fn fitting_key(
    keys: &[Key],
    certificates: &[X509Certificate<'_>],
    provider: &CryptoProvider,
) -> Option<usize> {
    let leaf = certificates.first()?.public_key().raw;
    let fits = |key: &Key| load(key, provider).is_ok_and(|key| key.spki().is_some_and(|spki| spki == leaf));
    keys.iter().take(8).position(fits)?.checked_add(1)
}

/// Security: the key is what its label says, large enough, and of a kind that the provider can sign with.
fn load(key: &Key, provider: &CryptoProvider) -> Result<LoadedKey, BundleError> {
    let (role, line) = (key.role, key.line);
    let (found, key_type) =
        identify(key.der.secret_der()).ok_or(BundleError::DamagedKey { role, line, key_type: None })?;
    if let Some(labelled) = KeyEncoding::named(&key.der)
        && labelled != found
    {
        return Err(BundleError::KeyEncodingDiffers { role, line, labelled, found });
    }
    key_is_large_enough(role, key_type)?;
    curve_is_named(role, key_type)?;
    // The provider's error is not passed on: its text says the same for all of these.
    match provider.key_provider.load_private_key(key.der.clone_key()) {
        Ok(signing) => Ok(LoadedKey { role, signing }),
        Err(_) if is_common(key_type) => {
            Err(BundleError::DamagedKey { role, line, key_type: Some(key_type) })
        }
        Err(_) => Err(BundleError::UnsupportedKey { role, key_type }),
    }
}

impl LoadedKey {
    /// Its DER `SubjectPublicKeyInfo`, if the provider tells.
    fn spki(&self) -> Option<Vec<u8>> {
        self.signing.public_key().map(|spki| spki.as_ref().to_vec())
    }
}

/// Kinds that every provider has: when one of them is refused, the key is at fault.
fn is_common(key_type: KeyType) -> bool {
    match key_type {
        KeyType::Rsa { bits } => (2048..=4096).contains(&bits),
        KeyType::Ecdsa(curve) => matches!(curve, Curve::P256 | Curve::P384),
        KeyType::Ed25519 => true,
        _ => false,
    }
}

/// Security: RSA below 2048 bits can be factored by some, and peers refuse it (CA/Browser Forum Baseline
/// Requirements §6.1.5).
fn key_is_large_enough(role: Role, key_type: KeyType) -> Result<(), BundleError> {
    match is_weak(key_type) {
        true => Err(BundleError::KeyTooSmall { role, key_type, minimum: SMALLEST_RSA }),
        false => Ok(()),
    }
}

/// Security: RFC 5480 §2.1.1 forbids a curve that is written out, and a forged one was a way into verifiers
/// (CVE-2020-0601). Some providers would take it.
fn curve_is_named(role: Role, key_type: KeyType) -> Result<(), BundleError> {
    match key_type {
        KeyType::EcdsaExplicit => Err(BundleError::UnsupportedKey { role, key_type }),
        _ => Ok(()),
    }
}

fn is_weak(key_type: KeyType) -> bool {
    matches!(key_type, KeyType::Rsa { bits } | KeyType::RsaPss { bits } if bits < SMALLEST_RSA)
}

/// Security: the leaf certifies the key. When another certificate does, that one is named.
pub(super) fn key_fits_leaf(
    key: &LoadedKey,
    certificates: &[X509Certificate<'_>],
    warnings: &mut Vec<Warning>,
) -> Result<(), BundleError> {
    let Some(spki) = key.spki() else {
        warnings.push(Warning::KeyNotCompared);
        return Ok(());
    };
    let fits = |certificate: &X509Certificate<'_>| certificate.public_key().raw == spki;
    match certificates.iter().position(fits) {
        Some(0) => Ok(()),
        Some(at) => Err(BundleError::LeafNotFirst {
            position: at.saturating_add(1),
            certificates: certificates.len(),
        }),
        None => Err(BundleError::KeyMismatch {
            key_role: key.role,
            key: Fingerprint::of(&spki),
            leaf: Fingerprint::of(certificates.first().map_or(&[], |leaf| leaf.public_key().raw)),
        }),
    }
}

/// All courtesy rules of an identity.
pub(super) fn warn(certificates: &[X509Certificate<'_>], now: UnixTime, warnings: &mut Vec<Warning>) {
    let Some((leaf, rest)) = certificates.split_first() else {
        return;
    };
    warnings.extend(leaf_validity(leaf, now));
    warnings.extend(leaf_is_ca(leaf));
    warnings.extend(purposes(leaf));
    let others = || (2..).zip(rest);
    warnings
        .extend(others().filter_map(|(position, certificate)| chain_validity(position, certificate, now)));
    warnings
        .extend(others().filter_map(|(position, certificate)| weak_key(Role::Cert, position, certificate)));
    warnings.extend(
        (1..).zip(certificates).filter_map(|(position, certificate)| weak_signature(position, certificate)),
    );
    chain_order(certificates, warnings);
}

/// Courtesy: the leaf is valid now. Whether it is served all the same depends on what is live.
fn leaf_validity(leaf: &X509Certificate<'_>, now: UnixTime) -> Option<Warning> {
    let validity = Validity::of(leaf);
    match validity.at(now) {
        ValidityState::Valid => None,
        ValidityState::Expired => Some(Warning::LeafExpired { validity }),
        ValidityState::NotYetValid => Some(Warning::LeafNotYetValid { validity }),
    }
}

/// Courtesy: a server that is its own CA is usual in labs, and a mistake elsewhere.
fn leaf_is_ca(leaf: &X509Certificate<'_>) -> Option<Warning> {
    leaf.is_ca().then_some(Warning::LeafIsCa)
}

/// Courtesy: peers require their purpose where the extension is there (RFC 5280 §4.2.1.12).
fn purposes(leaf: &X509Certificate<'_>) -> impl Iterator<Item = Warning> + use<> {
    let allowed = Purposes::of(leaf);
    [Purpose::ServerAuth, Purpose::ClientAuth]
        .into_iter()
        .filter(move |purpose| !allowed.allow(*purpose))
        .map(Warning::PurposeMissing)
}

/// Courtesy: peers refuse a path through an expired intermediate.
fn chain_validity(position: usize, certificate: &X509Certificate<'_>, now: UnixTime) -> Option<Warning> {
    match Validity::of(certificate).at(now) {
        ValidityState::Valid => None,
        ValidityState::Expired | ValidityState::NotYetValid => Some(Warning::ChainOutOfValidity { position }),
    }
}

/// Courtesy: whoever has the key of an issuer can issue, but it is the peer who relies on it.
pub(crate) fn weak_key(role: Role, position: usize, certificate: &X509Certificate<'_>) -> Option<Warning> {
    let key_type = KeyType::of_spki(certificate.public_key().raw);
    is_weak(key_type).then_some(Warning::WeakKey { role, position, key_type })
}

/// Courtesy: rustls peers verify no signature over SHA-1 or MD5. Nobody verifies that of a root.
fn weak_signature(position: usize, certificate: &X509Certificate<'_>) -> Option<Warning> {
    let oid = certificate.signature_algorithm.algorithm.as_bytes();
    let (_, algorithm) = WEAK_SIGNATURES.iter().find(|(weak, _)| *weak == oid)?;
    (!is_self_issued(certificate)).then_some(Warning::WeakSignature { role: Role::Cert, position, algorithm })
}

/// Courtesy: each certificate is followed by its issuer, none is there twice, none is in vain.
///
/// Goes by names alone: a cross-signed pair has the same subject, and both are in order behind what they issued.
fn chain_order(certificates: &[X509Certificate<'_>], warnings: &mut Vec<Warning>) {
    let related = related(certificates);
    let mut seen = HashSet::new();
    let mut issuers_named = HashSet::new();
    for (at, certificate) in certificates.iter().enumerate() {
        let position = at.saturating_add(1);
        let is_first_of_its_kind = seen.insert(certificate.as_raw());
        if at > 0 {
            if !is_first_of_its_kind {
                warnings.push(Warning::DuplicateCertificate { role: Role::Cert, position });
            } else if !related.contains(&at) {
                warnings.push(Warning::UnrelatedCertificate { position });
            } else {
                if !issuers_named.contains(certificate.subject().as_raw()) {
                    warnings.push(Warning::ChainOutOfOrder { position });
                }
                if is_self_issued(certificate) {
                    warnings.push(Warning::RootInChain { position });
                }
            }
        }
        issuers_named.insert(certificate.issuer().as_raw());
    }
}

/// Which certificates can be reached from the leaf by following issuer names.
fn related(certificates: &[X509Certificate<'_>]) -> HashSet<usize> {
    let mut by_subject: HashMap<&[u8], Vec<usize>> = HashMap::new();
    for (at, certificate) in certificates.iter().enumerate() {
        by_subject.entry(certificate.subject().as_raw()).or_default().push(at);
    }
    let mut related = HashSet::from([0]);
    let mut open = vec![0];
    while let Some(certificate) = open.pop().and_then(|at: usize| certificates.get(at)) {
        // Taken out: each name is followed once, which keeps this linear.
        for at in by_subject.remove(certificate.issuer().as_raw()).unwrap_or_default() {
            if related.insert(at) {
                open.push(at);
            }
        }
    }
    related
}

fn is_self_issued(certificate: &X509Certificate<'_>) -> bool {
    certificate.subject().as_raw() == certificate.issuer().as_raw()
}

/// Security: a trust anchor is a CA (RFC 5280 §4.2.1.9, §4.2.1.3). webpki does not look: an end-entity
/// certificate in the CA file would make its holder an issuer.
///
/// One of version 1 has no extensions to say so; if it is self-issued, it is taken for the old kind of root it
/// most likely is, as OpenSSL does, with a warning.
pub(crate) fn anchor_is_ca(certificate: &X509Certificate<'_>) -> Result<(), CaRule> {
    if is_version_1_root(certificate) {
        return Ok(());
    }
    if !certificate.is_ca() {
        return Err(CaRule::BasicConstraints);
    }
    match certificate.key_usage() {
        Ok(None) => Ok(()),
        Ok(Some(usage)) if usage.value.key_cert_sign() => Ok(()),
        Ok(Some(_)) | Err(_) => Err(CaRule::KeyCertSign),
    }
}

pub(crate) fn is_version_1_root(certificate: &X509Certificate<'_>) -> bool {
    certificate.version().0 == 0 && is_self_issued(certificate)
}

/// In bits.
const SMALLEST_RSA: u32 = 2048;

/// Contents of OBJECT IDENTIFIERs.
const WEAK_SIGNATURES: [(&[u8], &str); 4] = [
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 4], "MD5 with RSA"),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 5], "SHA-1 with RSA"),
    (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 1], "SHA-1 with ECDSA"),
    (&[0x2a, 0x86, 0x48, 0xce, 0x38, 4, 3], "SHA-1 with DSA"),
];
