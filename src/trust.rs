//! What verifies the peer: the trust anchors of the CA file and the revocation lists of the CRL file.
//!
//! Fails closed: one bad entry refuses the file, for a peer must not be judged by half of what was meant. The
//! system's pool is not known here.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, Der, TrustAnchor, UnixTime};
use x509_parser::prelude::FromDer;
use x509_parser::revocation_list::CertificateRevocationList;

use crate::bundle::{
    self, BundleError, Fingerprint, Found, Validity, ValidityState, Warning, anchor_is_ca, is_version_1_root,
};
use crate::paths::Role;
use crate::pem;

/// The trust of one generation, checked and never changed.
///
/// With a CRL file but no CA file there are no anchors: the lists are then for use with other roots.
#[derive(Clone)]
pub struct Trust {
    roots: Arc<RootCertStore>,
    subjects: Vec<String>,
    fingerprints: BTreeSet<Fingerprint>,
    crls: Vec<CertificateRevocationListDer<'static>>,
    not_after: Option<i64>,
}

impl Trust {
    pub(crate) fn from_pem(
        ca: Option<&[u8]>,
        crl: Option<&[u8]>,
        provider: &CryptoProvider,
        now: UnixTime,
        warnings: &mut Vec<Warning>,
    ) -> Result<Self, BundleError> {
        let mut anchors = Anchors::default();
        if let Some(ca) = ca {
            anchors.read(ca, now, warnings)?;
        }
        let crls = crl.map_or_else(|| Ok(Vec::new()), |crl| revocation_lists(crl, provider, warnings))?;
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

    /// The revocation lists; each is known to be one that rustls can use. Their signatures and dates are looked
    /// at when a peer is verified.
    pub fn crls(&self) -> &[CertificateRevocationListDer<'static>] {
        &self.crls
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
            .field("crls", &self.crls.len())
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
        let blocks = blocks(Role::Ca, text)?;
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

/// Every list of a CRL file: PEM, or the DER of one, as CAs publish it (RFC 5280 §4.2.1.13).
fn revocation_lists(
    file: &[u8],
    provider: &CryptoProvider,
    warnings: &mut Vec<Warning>,
) -> Result<Vec<CertificateRevocationListDer<'static>>, BundleError> {
    let der = CertificateRevocationListDer::from(file);
    if is_revocation_list(&der) {
        let list = CertificateRevocationListDer::from(file.to_vec());
        check_use(1, None, &list, provider)?;
        return Ok(vec![list]);
    }
    let blocks = blocks(Role::Crl, file)?;
    let found = Found::in_blocks(&blocks);
    let mut lists = Vec::new();
    for block in blocks {
        let (label, line) = (block.label(), block.line());
        match block.into_crl() {
            Some(list) => {
                let position = lists.len().saturating_add(1);
                check_use(position, Some(line), &list, provider)?;
                lists.push(list);
            }
            None => warnings.push(Warning::SkippedBlock { role: Role::Crl, label, line }),
        }
    }
    match lists.is_empty() {
        true => Err(BundleError::NoCrl { found }),
        false => Ok(lists),
    }
}

fn is_revocation_list(der: &CertificateRevocationListDer<'_>) -> bool {
    CertificateRevocationList::from_der(der).is_ok_and(|(rest, _)| rest.is_empty())
}

fn blocks(role: Role, text: &[u8]) -> Result<Vec<pem::Block>, BundleError> {
    pem::parse(text).map_err(|error| BundleError::Pem { role, error })
}

/// Security: rustls can use the list. It would find out only when its verifier is built, and could not say which
/// list it was.
fn check_use(
    position: usize,
    line: Option<usize>,
    list: &CertificateRevocationListDer<'static>,
    provider: &CryptoProvider,
) -> Result<(), BundleError> {
    let unusable = BundleError::UnusableCrl { position, line };
    if !is_revocation_list(list) {
        return Err(unusable);
    }
    // A verifier needs an anchor; this one verifies nothing.
    let anchor = TrustAnchor {
        subject: Der::from_slice(&[]),
        subject_public_key_info: Der::from_slice(&[]),
        name_constraints: None,
    };
    let roots = RootCertStore { roots: vec![anchor] };
    WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::new(provider.clone()))
        .with_crls([list.clone()])
        .build()
        .map(drop)
        .map_err(|_| unusable)
}

#[cfg(all(test, feature = "issue"))]
mod tests {
    use std::time::Duration;

    use rcgen::{
        BasicConstraints, CertificateRevocationListParams, IsCa, KeyIdMethod, KeyUsagePurpose, date_time_ymd,
    };

    use super::*;
    use crate::bundle::made::{Made, authority, load, provider};
    use crate::{Bundle, CaRule, Material, OcspProblem, pem::Label};

    fn with_ca(ca: &str) -> Result<Bundle, BundleError> {
        let leaf = Made::leaf(&Made::root("elsewhere"));
        load(Material::new(leaf.pem.as_bytes(), leaf.key_pem().as_bytes()).with_ca(ca.as_bytes()))
    }

    fn with_crl(crl: &[u8]) -> Result<Bundle, BundleError> {
        let leaf = Made::leaf(&Made::root("elsewhere"));
        load(Material::new(leaf.pem.as_bytes(), leaf.key_pem().as_bytes()).with_crl(crl))
    }

    fn crl() -> rcgen::CertificateRevocationList {
        let issuer = Made::new("issuer", None, |params| {
            authority(params);
            params.key_usages = vec![KeyUsagePurpose::CrlSign];
        });
        let params = CertificateRevocationListParams {
            this_update: date_time_ymd(2024, 12, 1),
            next_update: date_time_ymd(2025, 12, 1),
            crl_number: 1_u64.into(),
            issuing_distribution_point: None,
            revoked_certs: vec![],
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(&issuer.issuer()).unwrap()
    }

    #[test]
    fn anchors_are_counted_compared_and_dated() {
        let short = Made::new("short", None, |params| {
            authority(params);
            params.not_after = date_time_ymd(2026, 1, 1);
        });
        let long = Made::root("long");
        let one = with_ca(&[&short.pem[..], &long.pem].concat()).unwrap();
        let other = with_ca(&[&long.pem[..], "words\n", &short.pem, &long.pem].concat()).unwrap();
        let (one_trust, other_trust) = (one.trust().unwrap(), other.trust().unwrap());
        assert_eq!((one_trust.anchors(), one_trust.roots().len()), (2, 2));
        assert_eq!(one_trust.subjects(), ["CN=short", "CN=long"]);
        assert_eq!(one_trust.trust_not_after(), Some(1_767_225_600));
        assert_eq!(one_trust.fingerprints(), other_trust.fingerprints());
        assert_eq!((other_trust.roots().len(), one.warnings()), (2, &[][..]));
        let twice = Warning::DuplicateCertificate { role: Role::Ca, position: 3 };
        assert_eq!(other.warnings(), [twice]);
    }

    #[test]
    fn certificates_that_must_not_issue_are_no_anchors() {
        let root = Made::root("root");
        let not_a_ca = |made: &Made, expected| match with_ca(&[&root.pem[..], &made.pem].concat()) {
            Err(BundleError::NotACa { position: 2, missing, .. }) => assert_eq!(missing, expected),
            other => panic!("{other:?}"),
        };
        not_a_ca(&Made::leaf(&root), CaRule::BasicConstraints);
        not_a_ca(&Made::new("self-signed", None, |_| {}), CaRule::BasicConstraints);
        let explicit = Made::new("explicit", None, |params| params.is_ca = IsCa::ExplicitNoCa);
        not_a_ca(&explicit, CaRule::BasicConstraints);
        let signs_no_certificates = Made::new("crl signer", None, |params| {
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params.key_usages = vec![KeyUsagePurpose::CrlSign];
        });
        not_a_ca(&signs_no_certificates, CaRule::KeyCertSign);
    }

    #[test]
    fn one_bad_entry_refuses_the_file() {
        let root = Made::root("root");
        let reason = |ca: &str| with_ca(ca).expect_err("refused").reason();
        let garbage = "-----BEGIN CERTIFICATE-----\nMAMCAQE=\n-----END CERTIFICATE-----\n";
        assert_eq!(reason(&[&root.pem[..], garbage].concat()), "bad_certificate");
        assert_eq!(reason(&[&root.pem[..], &root.key_pem()].concat()), "key_in_ca_file");
        assert_eq!(reason(""), "pem_empty");
        assert_eq!(reason(crl().pem().unwrap().as_str()), "no_certificate");
    }

    #[test]
    fn expired_anchor_stays_trusted_with_a_warning() {
        let root = Made::root("root");
        let leaf = Made::leaf(&root);
        let key = leaf.key_pem();
        let material = Material::new(leaf.pem.as_bytes(), key.as_bytes()).with_ca(root.pem.as_bytes());
        let late = UnixTime::since_unix_epoch(Duration::from_secs(4_000_000_000));
        let bundle = Bundle::from_pem(&material, &provider(), late).unwrap();
        assert_eq!(bundle.trust().unwrap().anchors(), 1);
        let expected = Warning::AnchorOutOfValidity { position: 1, subject: "CN=root".to_owned() };
        assert!(bundle.warnings().contains(&expected), "{:?}", bundle.warnings());
    }

    #[test]
    fn revocation_lists_are_read_as_pem_and_as_der() {
        let (one, two) = (crl(), crl());
        let pem = [one.pem().unwrap(), two.pem().unwrap()].concat();
        let bundle = with_crl(pem.as_bytes()).unwrap();
        let trust = bundle.trust().unwrap();
        assert_eq!(trust.crls(), [one.der().clone(), two.der().clone()]);
        assert_eq!((trust.anchors(), trust.trust_not_after()), (0, None));
        let bundle = with_crl(one.der()).unwrap();
        assert_eq!(bundle.trust().unwrap().crls(), [one.der().clone()]);
    }

    #[test]
    fn a_crl_file_fails_closed() {
        let good = crl().pem().unwrap();
        let refused = |file: &[u8]| with_crl(file).expect_err("refused");
        let garbage = "-----BEGIN X509 CRL-----\nMAMCAQE=\n-----END X509 CRL-----\n";
        let expected = BundleError::UnusableCrl { position: 2, line: Some(good.lines().count() + 1) };
        assert_eq!(refused([&good[..], garbage].concat().as_bytes()), expected);
        let root = Made::root("root").pem;
        assert_eq!(refused(root.as_bytes()).to_string(), "CRL file: no X509 CRL found, but 1 certificate");
        let der = crl().der().to_vec();
        assert_eq!(refused(&der[..der.len() - 1]).reason(), "pem_not_pem");
        assert_eq!(refused(b"").reason(), "pem_empty");
        let skipped = with_crl([&good[..], &root].concat().as_bytes()).unwrap();
        assert!(matches!(skipped.warnings(), [Warning::SkippedBlock { label: Label::Certificate, .. }]));
    }

    #[test]
    fn a_list_that_rustls_cannot_use_is_refused_here() {
        // Version 3 does not exist; it parses, but webpki wants version 2 (RFC 5280 §5.1.2.1).
        let der = crl().der().to_vec();
        let at = der.windows(3).position(|window| window == [2, 1, 1]).unwrap();
        let mut version_3 = der;
        version_3[at + 2] = 2;
        let expected = BundleError::UnusableCrl { position: 1, line: None };
        assert_eq!(with_crl(&version_3).unwrap_err(), expected);
    }

    #[test]
    fn a_bad_staple_costs_neither_trust_nor_leaf() {
        let root = Made::root("root");
        let leaf = Made::leaf(&root);
        let key = leaf.key_pem();
        let material = Material::new(leaf.pem.as_bytes(), key.as_bytes());
        let bundle = load(material.with_ca(root.pem.as_bytes()).with_ocsp(b"")).unwrap();
        assert_eq!(bundle.trust().unwrap().anchors(), 1);
        assert_eq!(bundle.warnings(), [Warning::OcspUnusable(OcspProblem::Empty)]);
    }
}
