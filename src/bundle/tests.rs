//! The rules of an identity. Whole files are in `tests/cases.rs`, trust in `trust.rs`.

use std::sync::Arc;
use std::time::Duration;

use rcgen::{DnType, DnValue, ExtendedKeyUsagePurpose, SanType, date_time_ymd};
use rustls::SignatureAlgorithm;
use rustls::crypto::KeyProvider;
use rustls::sign::{Signer, SigningKey};

use super::made::{Made, authority, load, now, provider};
use super::*;
use crate::paths::{Paths, Role};
use crate::pem::Label;

struct Pki {
    root: Made,
    intermediate: Made,
    leaf: Made,
}

fn pki() -> Pki {
    let root = Made::root("root");
    let intermediate = Made::intermediate("intermediate", &root);
    let leaf = Made::leaf(&intermediate);
    Pki { root, intermediate, leaf }
}

fn warnings(certificates: &[&Made]) -> Vec<Warning> {
    let chain: String = certificates.iter().map(|made| made.pem.as_str()).collect();
    load(Material::new(chain.as_bytes(), certificates[0].key_pem().as_bytes())).unwrap().warnings().to_vec()
}

fn refused(cert: &str, key: &str) -> BundleError {
    load(Material::new(cert.as_bytes(), key.as_bytes())).expect_err("refused")
}

#[test]
fn facts_of_the_leaf_are_told() {
    let Pki { intermediate, .. } = pki();
    let leaf = Made::new("Relay.Test", Some(&intermediate), |params| {
        params.subject_alt_names.push(SanType::IpAddress([127, 0, 0, 1].into()));
        params.serial_number = Some(vec![0, 0xab, 1].into());
    });
    let chain = format!("{}{}", leaf.pem, intermediate.pem);
    let bundle = load(Material::new(chain.as_bytes(), leaf.key_pem().as_bytes())).unwrap();
    let facts = bundle.leaf();
    assert_eq!((facts.subject(), facts.issuer()), ("CN=Relay.Test", "CN=intermediate"));
    assert_eq!(facts.serial(), "ab01");
    assert_eq!(facts.dns_names(), ["relay.test"]);
    assert_eq!(facts.ip_addresses(), [std::net::IpAddr::from([127, 0, 0, 1])]);
    assert_eq!((facts.validity().not_before, facts.validity().not_after), (1_577_836_800, 1_893_456_000));
    assert_eq!(facts.key_type().to_string(), "ECDSA P-256");
    assert_eq!(bundle.fingerprint(), Fingerprint::of(&leaf.der));
    assert_eq!(bundle.chain().len(), 2);
    assert_eq!(bundle.certified_key().keys_match(), Ok(()));
    assert!(bundle.warnings().is_empty() && bundle.trust().is_none());
}

#[test]
fn chain_not_after_is_the_earliest() {
    let root = Made::root("root");
    let intermediate = Made::new("short", Some(&root), |params| {
        authority(params);
        params.not_after = date_time_ymd(2026, 1, 1);
    });
    let leaf = Made::leaf(&intermediate);
    let chain = format!("{}{}", leaf.pem, intermediate.pem);
    let bundle = load(Material::new(chain.as_bytes(), leaf.key_pem().as_bytes())).unwrap();
    assert_eq!(bundle.chain_not_after(), 1_767_225_600);
}

#[test]
fn names_cannot_forge_a_log_line() {
    let root = Made::root("root");
    let leaf = Made::new("relay.test", Some(&root), |params| {
        let hostile = "a, CN=b\nERROR \u{1b}[31m\u{202e}";
        params.distinguished_name.push(DnType::CommonName, DnValue::Utf8String(hostile.to_owned()));
        params.subject_alt_names.push(SanType::DnsName("x\ny".to_owned().try_into().unwrap()));
    });
    let bundle = load(Material::new(leaf.pem.as_bytes(), leaf.key_pem().as_bytes())).unwrap();
    assert_eq!(bundle.leaf().subject(), r"CN=a\, CN=b\u{a}ERROR \u{1b}[31m\u{202e}");
    assert_eq!(bundle.leaf().dns_names(), ["relay.test", r"x\u{a}y"]);
}

#[test]
fn key_of_another_certificate_is_refused_with_both_paths_and_fingerprints() {
    let Pki { leaf, root, .. } = pki();
    let other = Made::leaf(&root);
    let error = refused(&leaf.pem, &other.key_pem());
    let BundleError::KeyMismatch { key, leaf, .. } = &error else { panic!("{error}") };
    let shown = error.display_with(&Paths::new("/etc/a.crt", "/etc/a.key")).to_string();
    let expected = format!(
        "/etc/a.key: the private key does not belong to the leaf in /etc/a.crt: \
         public key SHA-256 {key}, but the leaf has {leaf}"
    );
    assert_eq!((shown, error.reason()), (expected, "key_mismatch"));
}

#[test]
fn key_that_fits_a_later_certificate_names_it() {
    let Pki { leaf, intermediate, root } = pki();
    let chain = [&intermediate.pem[..], &leaf.pem, &root.pem].concat();
    let expected = BundleError::LeafNotFirst { position: 2, certificates: 3 };
    assert_eq!(refused(&chain, &leaf.key_pem()), expected);
}

#[test]
fn swapped_paths_are_named() {
    let Pki { leaf, .. } = pki();
    let error = refused(&leaf.key_pem(), &leaf.pem);
    let shown = error.display_with(&Paths::secret("/etc/tls")).to_string();
    assert_eq!(
        shown,
        "/etc/tls/tls.crt: no certificate found, but 1 private key: were the two paths swapped?"
    );
    let error = refused(&leaf.pem, &leaf.pem);
    assert_eq!(
        error.to_string(),
        "key file: no private key found, but 1 certificate: were the two paths swapped?"
    );
}

#[test]
fn one_file_may_be_both_under_one_name_or_two() {
    let Pki { leaf, intermediate, .. } = pki();
    let file = [&leaf.key_pem()[..], &leaf.pem, &intermediate.pem].concat();
    for material in [Material::combined(file.as_bytes()), Material::new(file.as_bytes(), file.as_bytes())] {
        let bundle = load(material).unwrap();
        assert_eq!((bundle.chain().len(), bundle.warnings()), (2, &[][..]));
    }
    let error = load(Material::combined(leaf.pem.as_bytes())).unwrap_err();
    assert_eq!((error.role(), error.reason()), (Role::Cert, "no_key"));
}

#[test]
fn blocks_that_are_not_used_are_listed() {
    let Pki { leaf, .. } = pki();
    let params = "-----BEGIN DH PARAMETERS-----\nMAMC\n-----END DH PARAMETERS-----\n";
    let curve = "-----BEGIN EC PARAMETERS-----\nMAMC\n-----END EC PARAMETERS-----\n";
    let key = [curve, &leaf.key_pem(), &leaf.pem].concat();
    let cert = [params, &leaf.pem].concat();
    let bundle = load(Material::new(cert.as_bytes(), key.as_bytes())).unwrap();
    let skipped = |role, label, line| Warning::SkippedBlock { role, label, line };
    let expected = [skipped(Role::Cert, Label::DhParameters, 1), skipped(Role::Key, Label::Certificate, 9)];
    assert_eq!(bundle.warnings(), expected);
}

#[test]
fn two_private_keys_are_refused_wherever_they_are() {
    let Pki { leaf, root, .. } = pki();
    let keys = [root.key_pem(), leaf.key_pem()].concat();
    let expected =
        |role, lines: [usize; 2], fitting| BundleError::SeveralKeys { role, lines: lines.into(), fitting };
    assert_eq!(refused(&leaf.pem, &keys), expected(Role::Key, [1, 6], Some(2)));
    let combined = [&keys[..], &leaf.pem].concat();
    let error = load(Material::combined(combined.as_bytes())).unwrap_err();
    assert_eq!(error, expected(Role::Cert, [1, 6], Some(2)));
    let strangers = [root.key_pem(), root.key_pem()].concat();
    assert_eq!(refused(&leaf.pem, &strangers), expected(Role::Key, [1, 6], None));
}

#[test]
fn chain_oddities_are_warnings() {
    let Pki { leaf, intermediate, root } = pki();
    let stranger = Made::root("stranger");
    let duplicate = |position| Warning::DuplicateCertificate { role: Role::Cert, position };
    for (chain, expected) in [
        (vec![&leaf, &intermediate], vec![]),
        (vec![&leaf, &intermediate, &root], vec![Warning::RootInChain { position: 3 }]),
        (
            vec![&leaf, &root, &intermediate],
            vec![Warning::ChainOutOfOrder { position: 2 }, Warning::RootInChain { position: 2 }],
        ),
        (vec![&leaf, &intermediate, &leaf], vec![duplicate(3)]),
        (vec![&leaf, &intermediate, &intermediate], vec![duplicate(3)]),
        (vec![&leaf, &stranger, &intermediate], vec![Warning::UnrelatedCertificate { position: 2 }]),
        (vec![&leaf, &root], vec![Warning::UnrelatedCertificate { position: 2 }]),
    ] {
        assert_eq!(warnings(&chain), expected);
    }
}

#[test]
fn cross_signed_intermediates_are_in_order() {
    let Pki { leaf, intermediate, .. } = pki();
    let other_root = Made::root("other root");
    let crossed = intermediate.params.signed_by(&intermediate.key, &other_root.issuer()).unwrap();
    let chain = [&leaf.pem[..], &intermediate.pem, &crossed.pem()].concat();
    let bundle = load(Material::new(chain.as_bytes(), leaf.key_pem().as_bytes())).unwrap();
    assert_eq!(bundle.warnings(), []);
}

#[test]
fn leaf_out_of_its_validity_is_a_warning() {
    let Pki { leaf, intermediate, .. } = pki();
    let chain = [&leaf.pem[..], &intermediate.pem].concat();
    let at = |seconds| {
        let now = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        let key = leaf.key_pem();
        Bundle::from_pem(&Material::new(chain.as_bytes(), key.as_bytes()), &provider(), now).unwrap()
    };
    let validity = at(0).leaf().validity();
    let expired = [Warning::LeafExpired { validity }, Warning::ChainOutOfValidity { position: 2 }];
    assert_eq!(at(u64::MAX).warnings(), expired);
    let early = [Warning::LeafNotYetValid { validity }, Warning::ChainOutOfValidity { position: 2 }];
    assert_eq!(at(0).warnings(), early);
}

#[test]
fn purposes_that_the_leaf_lacks_are_warnings() {
    let root = Made::root("root");
    let usages = |usages: &[ExtendedKeyUsagePurpose]| {
        let leaf =
            Made::new("relay.test", Some(&root), |params| params.extended_key_usages = usages.to_vec());
        warnings(&[&leaf])
    };
    let missing = Warning::PurposeMissing;
    assert_eq!(usages(&[ExtendedKeyUsagePurpose::ServerAuth]), [missing(Purpose::ClientAuth)]);
    assert_eq!(usages(&[ExtendedKeyUsagePurpose::ClientAuth]), [missing(Purpose::ServerAuth)]);
    assert_eq!(
        usages(&[ExtendedKeyUsagePurpose::CodeSigning]),
        [missing(Purpose::ServerAuth), missing(Purpose::ClientAuth)]
    );
    assert_eq!(usages(&[ExtendedKeyUsagePurpose::Any]), []);
}

#[test]
fn leaf_that_is_a_ca_is_a_warning() {
    assert_eq!(warnings(&[&Made::root("root")]), [Warning::LeafIsCa]);
}

#[test]
fn damaged_der_is_told_from_unsupported_kinds() {
    let Pki { leaf, .. } = pki();
    let der = leaf.key.serialize_der();
    let load_key = |der: Vec<u8>, named: fn(Vec<u8>) -> PrivateKeyDer<'static>| {
        Bundle::from_der(vec![leaf.der.clone().into()], named(der), &provider(), now()).map(drop)
    };
    let pkcs8 = |der: Vec<u8>| PrivateKeyDer::Pkcs8(der.into());
    let damaged = |key_type| Err(BundleError::DamagedKey { role: Role::Key, line: None, key_type });
    assert_eq!(load_key(der.clone(), pkcs8), Ok(()));
    assert_eq!(load_key(der[..der.len() - 1].to_vec(), pkcs8), damaged(None));
    assert_eq!(load_key(vec![], pkcs8), damaged(None));
    let no_number = der.iter().map(|byte| if *byte == 4 { 5 } else { *byte }).collect();
    assert_eq!(load_key(no_number, pkcs8), damaged(Some(KeyType::Ecdsa(Curve::P256))));
    let differs = Err(BundleError::KeyEncodingDiffers {
        role: Role::Key,
        line: None,
        labelled: KeyEncoding::Sec1,
        found: KeyEncoding::Pkcs8,
    });
    assert_eq!(load_key(der, |der| PrivateKeyDer::Sec1(der.into())), differs);
}

#[test]
fn chains_without_a_certificate_are_refused() {
    let Pki { leaf, .. } = pki();
    let key = || PrivateKeyDer::Pkcs8(leaf.key.serialize_der().into());
    let from_der = |chain| Bundle::from_der(chain, key(), &provider(), now()).expect_err("refused");
    assert_eq!(from_der(vec![]).to_string(), "certificate file: no certificate found, expected CERTIFICATE");
    let mut trailing = leaf.der.clone();
    trailing.push(0);
    for bad in [vec![], vec![0x30, 0], trailing, leaf.der[..100].to_vec()] {
        let expected = BundleError::NotACertificate { role: Role::Cert, position: 2, line: None };
        assert_eq!(from_der(vec![leaf.der.clone().into(), bad.into()]), expected);
    }
}

#[test]
fn what_is_no_staple_is_not_kept() {
    let Pki { leaf, .. } = pki();
    let key = leaf.key_pem();
    let load = |response: &[u8]| {
        let bundle = load(Material::new(leaf.pem.as_bytes(), key.as_bytes()).with_ocsp(response)).unwrap();
        (bundle.certified_key().ocsp.clone(), bundle.warnings().to_vec())
    };
    let hollow = b"\x30\x18\x0a\x01\x00\xa0\x13\x30\x11\x06\x09\x2b\x06\x01\x05\x05\x07\x30\x01\x01\x04\x04\x30\x02\x05\x00";
    assert_eq!(load(hollow), (None, vec![Warning::OcspUnusable(OcspProblem::Damaged)]));
    assert_eq!(load(b"no"), (None, vec![Warning::OcspUnusable(OcspProblem::NotOcsp)]));
}

/// A provider of its own kind, such as one that keeps its keys in hardware.
#[derive(Debug)]
struct Hardware;

impl KeyProvider for Hardware {
    fn load_private_key(&self, key: PrivateKeyDer<'static>) -> Result<Arc<dyn SigningKey>, rustls::Error> {
        drop(key);
        Ok(Arc::new(Self))
    }
}

impl SigningKey for Hardware {
    fn choose_scheme(&self, _: &[rustls::SignatureScheme]) -> Option<Box<dyn Signer>> {
        None
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        SignatureAlgorithm::ECDSA
    }
}

#[test]
fn provider_decides_and_may_keep_the_public_key_to_itself() {
    let Pki { leaf, .. } = pki();
    let provider = CryptoProvider { key_provider: &Hardware, ..provider() };
    let key = leaf.key_pem();
    let bundle =
        Bundle::from_pem(&Material::new(leaf.pem.as_bytes(), key.as_bytes()), &provider, now()).unwrap();
    assert_eq!(bundle.warnings(), [Warning::KeyNotCompared]);
}

#[test]
fn bundles_are_shared_between_threads_and_debug_shows_no_key() {
    fn shared<T: Send + Sync>(_: &T) {}
    let Pki { leaf, .. } = pki();
    let bundle = load(Material::new(leaf.pem.as_bytes(), leaf.key_pem().as_bytes())).unwrap();
    shared(&bundle);
    let shown = format!("{bundle:?} {:?}", Material::new(leaf.pem.as_bytes(), leaf.key_pem().as_bytes()));
    assert!(
        shown.contains("relay.test") && !shown.contains("PRIVATE") && !shown.contains("45, 45"),
        "{shown}"
    );
}

#[test]
fn dates_are_written_for_people_and_machines() {
    let table = [
        (0, "1970-01-01T00:00:00Z"),
        (-1, "1969-12-31T23:59:59Z"),
        (1_748_736_000, "2025-06-01T00:00:00Z"),
        (253_402_300_799, "9999-12-31T23:59:59Z"),
        (i64::MAX, "9223372036854775807"),
    ];
    for (seconds, expected) in table {
        assert_eq!(Date(seconds).to_string(), expected);
    }
}
