//! The rules of the CA and CRL files. Whole files are in `tests/cases.rs`.

use std::path::Path;
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateRevocationListParams, IsCa, KeyIdMethod, KeyUsagePurpose, date_time_ymd,
};

use super::*;
use crate::bundle::made::{Made, authority, load, provider};
use crate::{Bundle, CaRule, Material, OcspProblem, Paths, pem::Label};

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
    let expected =
        BundleError::UnusableCrl { file: CrlFile::Only, position: 2, line: Some(good.lines().count() + 1) };
    assert_eq!(refused([&good[..], garbage].concat().as_bytes()), expected);
    let root = Made::root("root").pem;
    assert_eq!(refused(root.as_bytes()).to_string(), "CRL file: no X509 CRL found, but 1 certificate");
    let der = crl().der().to_vec();
    assert_eq!(refused(&der[..der.len() - 1]).reason(), "pem_not_pem");
    assert_eq!(refused(b"").reason(), "pem_empty");
    let skipped = with_crl([&good[..], &root].concat().as_bytes()).unwrap();
    assert!(matches!(skipped.warnings(), [Warning::SkippedInCrl { label: Label::Certificate, .. }]));
}

#[test]
fn a_list_that_rustls_cannot_use_is_refused_here() {
    // Version 3 does not exist; it parses, but webpki wants version 2 (RFC 5280 §5.1.2.1).
    let der = crl().der().to_vec();
    let at = der.windows(3).position(|window| window == [2, 1, 1]).unwrap();
    let mut version_3 = der;
    version_3[at + 2] = 2;
    let expected = BundleError::UnusableCrl { file: CrlFile::Only, position: 1, line: None };
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

/// A list of one issuer, as it was made in that month of 2024.
fn crl_of(issuer: &Made, month: u8, number: u64) -> rcgen::CertificateRevocationList {
    let params = CertificateRevocationListParams {
        this_update: date_time_ymd(2024, month, 1),
        next_update: date_time_ymd(2025, month, 1),
        crl_number: number.into(),
        issuing_distribution_point: None,
        revoked_certs: vec![],
        key_identifier_method: KeyIdMethod::Sha256,
    };
    params.signed_by(&issuer.issuer()).unwrap()
}

fn crl_signer() -> Made {
    Made::new("issuer", None, |params| {
        authority(params);
        params.key_usages = vec![KeyUsagePurpose::CrlSign];
    })
}

/// Several CRL files, named by a path or by their number.
fn with_crls(named: &[(&str, &[u8])]) -> Result<Bundle, BundleError> {
    let leaf = Made::leaf(&Made::root("elsewhere"));
    let key = leaf.key_pem();
    let material = Material::new(leaf.pem.as_bytes(), key.as_bytes());
    load(named.iter().fold(material, |material, (path, crl)| match *path {
        "" => material.with_crl(crl),
        path => material.with_crl_at(Path::new(path), crl),
    }))
}

#[test]
fn newest_list_of_an_issuer_is_the_one_that_counts() {
    let issuer = crl_signer();
    let other = crl_of(&crl_signer(), 2, 1);
    let (old, new, newer) = (crl_of(&issuer, 1, 7), crl_of(&issuer, 3, 2), crl_of(&issuer, 3, 3));
    let files = [("/c/1", old.der()), ("/c/2", newer.der()), ("/c/3", new.der()), ("/c/4", other.der())];
    let bundle = with_crls(&files.map(|(path, crl)| (path, crl.as_ref()))).unwrap();
    let trust = bundle.trust().unwrap();
    assert_eq!(trust.crls(), [newer.der().clone(), other.der().clone()]);
    let superseded = |path: &str| Warning::CrlSuperseded { file: CrlFile::At(path.into()), position: 1 };
    assert_eq!(bundle.warnings(), [superseded("/c/1"), superseded("/c/3")]);
    // 2025-02-01, of the other issuer.
    assert_eq!(trust.crl_next_update(), Some(1_738_368_000));
}

#[test]
fn expired_list_stays_in_force_with_a_warning() {
    let issuer = crl_signer();
    let list = crl_of(&issuer, 6, 1);
    let leaf = Made::leaf(&Made::root("elsewhere"));
    let key = leaf.key_pem();
    let material = Material::new(leaf.pem.as_bytes(), key.as_bytes()).with_crl(list.der());
    // 2025-06-01
    let next_update = 1_748_736_000;
    let at = |seconds| {
        let now = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        Bundle::from_pem(&material, &provider(), now).unwrap()
    };
    assert_eq!(at(1_748_735_999).warnings(), []);
    let bundle = at(1_748_736_000);
    let expected = Warning::CrlExpired { file: CrlFile::Only, position: 1, next_update };
    assert_eq!(bundle.warnings(), [expected]);
    let trust = bundle.trust().unwrap();
    assert_eq!((trust.crls().len(), trust.crl_next_update()), (1, Some(next_update)));
    let text = bundle.warnings()[0].to_string();
    assert!(text.starts_with("CRL file: revocation list 1 expired at 2025-06-01T00:00:00Z"), "{text}");
}

#[test]
fn one_bad_file_of_several_is_refused_by_name() {
    let good = crl();
    let bad = good.der().get(..20).unwrap();
    let refused = |name: &str| {
        let error = with_crls(&[("", good.der()), (name, bad)]).expect_err("refused");
        let paths = Paths::new("/c", "/k").with_crl("/crls");
        (error.to_string(), error.display_with(&paths).to_string())
    };
    let (alone, with_paths) = refused("/crls/b.crl");
    assert!(alone.starts_with("/crls/b.crl: "), "{alone}");
    assert_eq!(alone, with_paths);
    let (alone, with_paths) = refused("");
    assert!(alone.starts_with("CRL file 2: "), "{alone}");
    assert_eq!(alone, with_paths);
}
