//! What was issued, seen by OpenSSL: an implementation that shares no code with ours.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::*;

/// 2026-01-01.
const NEW_YEAR: i64 = 1_767_225_600;
const DAY: i64 = 86_400;

#[test]
fn leaf_of_an_intermediate_verifies_for_its_purpose_only() {
    let root = Ca::new("root").unwrap();
    let issuing = root.intermediate("issuing").build().unwrap();
    let lower = issuing.intermediate("lower").build().unwrap();
    for ca in [&root, &issuing, &lower] {
        let server = ca.server(&["h.test", "*.h.test", "127.0.0.1", "::1"]).issue().unwrap();
        let client = ca.client("pump 7").issue().unwrap();
        let bench = Bench::new(&[
            ("root", root.cert_pem()),
            ("server", &server.chain_pem()),
            ("client", &client.chain_pem()),
        ]);
        for (leaf, purpose, answer) in [
            ("server", "sslserver", true),
            ("server", "sslclient", false),
            ("client", "sslclient", true),
            ("client", "sslserver", false),
        ] {
            let line =
                format!("verify -x509_strict -purpose {purpose} -CAfile root -untrusted {leaf} {leaf}");
            assert_eq!(bench.openssl(&line).is_ok(), answer, "{line}: {:?}", bench.openssl(&line));
        }
        for (name, answer) in [
            ("-verify_hostname h.test", true),
            ("-verify_hostname a.h.test", true),
            ("-verify_hostname other.test", false),
            ("-verify_ip 127.0.0.1", true),
            ("-verify_ip ::1", true),
            ("-verify_ip 127.0.0.2", false),
        ] {
            let line = format!("verify {name} -CAfile root -untrusted server server");
            assert_eq!(bench.openssl(&line).is_ok(), answer, "{line}");
        }
    }
    let untrusted = Ca::new("root").unwrap().server(&["h.test"]).issue().unwrap();
    let bench = Bench::new(&[("root", root.cert_pem()), ("server", &untrusted.chain_pem())]);
    assert!(bench.openssl("verify -CAfile root server").is_err(), "the same name is not the same CA");
}

#[test]
fn chain_is_leaf_first_and_leaves_the_root_out() {
    let root = Ca::new("root").unwrap();
    let issuing = root.intermediate("issuing").build().unwrap();
    let lower = issuing.intermediate("lower").build().unwrap();
    let names = |issued: &Issued| -> Vec<String> {
        let subject = |der: &[u8]| X509Certificate::from_der(der).unwrap().1.subject().to_string();
        issued.chain_der().iter().map(|der| subject(der)).collect()
    };
    let issued = lower.server(&["h.test"]).issue().unwrap();
    assert_eq!(names(&issued), ["CN=h.test", "CN=lower", "CN=issuing"]);
    assert_eq!(issued.chain_pem().matches("BEGIN CERTIFICATE").count(), 3);
    assert_eq!(names(&root.client("c").issue().unwrap()), ["CN=c"]);
}

#[test]
fn instants_and_serials_are_what_was_asked_for() {
    let root = Ca::new("root").unwrap();
    for (from, to) in [
        (NEW_YEAR + 1, NEW_YEAR + 59),
        (0, 1),
        (-631_152_000, -1),
        (2_524_607_999, 2_524_608_000), // where the encoding changes, in 2050
        (NEW_YEAR, 253_402_300_799),
    ] {
        let issued = root.server(&["h.test"]).validity(from, to).serial(0x00ff_0102).issue().unwrap();
        let (_, leaf) = X509Certificate::from_der(issued.leaf_der()).unwrap();
        assert_eq!(leaf.validity().not_before.timestamp(), from);
        assert_eq!(leaf.validity().not_after.timestamp(), to);
        assert_eq!(leaf.raw_serial(), [0x00, 0xff, 0x01, 0x02], "shortest form, and positive");
    }
    let serial =
        |issued: Issued| X509Certificate::from_der(issued.leaf_der()).unwrap().1.raw_serial().to_vec();
    assert_eq!(serial(root.server(&["a"]).issue().unwrap()), [1]);
    assert_eq!(serial(root.client("b").issue().unwrap()), [2]);
}

#[test]
fn impossible_periods_and_names_are_errors() {
    let root = Ca::new("root").unwrap();
    for (from, to) in [(5, 5), (6, 5), (-631_152_001, 0), (0, 253_402_300_800), (i64::MIN, i64::MAX)] {
        let refused = Some(IssueError::Period { from, to });
        assert_eq!(root.server(&["a"]).validity(from, to).issue().err(), refused);
        assert_eq!(Ca::builder("b").validity(from, to).build().err(), refused);
        assert_eq!(root.crl(&[1]).updates(from, to).issue().err(), refused);
    }
    assert_eq!(root.server(&[]).issue().err(), Some(IssueError::NoNames));
    for name in ["", "münchen.test", "two words", "a..b", "a.*.b", &"x".repeat(64)] {
        let refused = Some(IssueError::Name { name: name.to_owned() });
        assert_eq!(root.server(&["good.test", name]).issue().err(), refused);
        assert!(root.client(name).issue().is_ok(), "{name:?}: a client may be called anything");
    }
    for url in ["", "http://münchen.test", &format!("http://a/{}", "x".repeat(70_000))] {
        let refused = Some(IssueError::Url { url: url.to_owned() });
        assert_eq!(root.server(&["a"]).ocsp_url(url).issue().err(), refused);
    }
}

#[test]
fn expired_leaf_is_refused_by_openssl_at_another_instant_only() {
    let root = Ca::builder("root").validity(NEW_YEAR, NEW_YEAR + 100 * DAY).build().unwrap();
    let issued = root.server(&["h.test"]).validity(NEW_YEAR, NEW_YEAR + DAY).issue().unwrap();
    let bench = Bench::new(&[("root", root.cert_pem()), ("leaf", &issued.chain_pem())]);
    let at = |instant: i64| bench.openssl(&format!("verify -attime {instant} -CAfile root leaf"));
    assert_eq!(at(NEW_YEAR + DAY - 1).err(), None);
    assert!(at(NEW_YEAR + DAY + 1).is_err());
    assert!(at(NEW_YEAR - 1).is_err());
}

#[test]
fn every_key_type_signs_and_is_signed() {
    for key_type in [KeyType::EcdsaP256, KeyType::EcdsaP384, KeyType::Ed25519, KeyType::Rsa2048] {
        let root = match Ca::builder("root").key_type(key_type).build() {
            Ok(root) => root,
            Err(error) => {
                assert!(!cfg!(feature = "aws-lc-rs") && key_type == KeyType::Rsa2048, "{error}");
                assert_eq!(error, IssueError::Generate { key_type });
                continue;
            }
        };
        let issued = root.server(&["h.test"]).key_type(key_type).issue().unwrap();
        assert_pair_fits(&root, &issued);
    }
}

#[test]
fn rsa_key_of_openssl_is_taken_where_the_backend_makes_none() {
    let bench = Bench::new(&[]);
    let pem = bench.openssl("genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048").unwrap();
    let key = Key::from_pem(&pem).unwrap();
    let root = Ca::builder("root").key(&key).build().unwrap();
    let issued = root.server(&["h.test"]).key(&key).issue().unwrap();
    assert_pair_fits(&root, &issued);
}

#[test]
fn text_that_is_no_usable_key_is_refused_without_a_word_of_it() {
    let bench = Bench::new(&[]);
    let pkcs1 = bench.openssl("genrsa -traditional 2048").unwrap();
    let torn: String = Key::generate(KeyType::EcdsaP256).unwrap().to_pem().chars().take(90).collect();
    for pem in ["", "hello", &pkcs1, &torn, "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"]
    {
        assert_eq!(Key::from_pem(pem).err(), Some(IssueError::Key));
    }
}

#[test]
fn renewal_may_keep_its_key_and_debug_shows_none() {
    let root = Ca::new("root").unwrap();
    let first = root.server(&["h.test"]).issue().unwrap();
    let renewed = root.server(&["h.test"]).key(first.key()).issue().unwrap();
    assert_eq!(first.key_pem(), renewed.key_pem());
    assert_ne!(first.chain_pem(), renewed.chain_pem());
    assert_ne!(first.key_pem(), root.server(&["h.test"]).issue().unwrap().key_pem());

    let again = Ca::builder("root").key(root.key()).build().unwrap();
    let bench = Bench::new(&[("root", again.cert_pem()), ("leaf", &first.chain_pem())]);
    assert_eq!(bench.openssl("verify -CAfile root leaf").err(), None, "a renewed CA with the same key");

    let secret = format!("{:?}", first.key_der().secret_der());
    let inner = secret.trim_matches(['[', ']']);
    for shown in [format!("{first:?}"), format!("{root:?}"), format!("{:?}", first.key())] {
        assert!(!shown.contains(inner), "{shown}");
    }
    assert_eq!(format!("{:?}", first.key()), "Key(PKCS_ECDSA_P256_SHA256)");
}

#[test]
fn revoked_serial_is_on_the_list_and_others_are_not() {
    let root = Ca::new("root").unwrap();
    let good = root.client("good").issue().unwrap();
    let bad = root.client("bad").issue().unwrap();
    let crl = root.crl(&[2]).issue().unwrap();
    let empty = root.crl(&[]).issue().unwrap();
    let bench = Bench::new(&[
        ("root", root.cert_pem()),
        ("good", &good.chain_pem()),
        ("bad", &bad.chain_pem()),
        ("crl", crl.pem()),
        ("empty", empty.pem()),
    ]);
    let check = |crl: &str, leaf: &str| {
        bench.openssl(&format!("verify -crl_check -CRLfile {crl} -CAfile root {leaf}"))
    };
    assert_eq!(check("crl", "good").err(), None);
    assert!(check("crl", "bad").unwrap_err().contains("revoked"));
    assert_eq!(check("empty", "bad").err(), None);
    let shown = bench.openssl("crl -noout -crlnumber -in empty").unwrap();
    assert!(shown.contains("0x02") || shown.contains("=02"), "{shown}");

    let list = root.crl(&[1]).updates(NEW_YEAR, NEW_YEAR + DAY).number(77).issue().unwrap();
    let bench = Bench::new(&[("list", list.pem())]);
    let number = bench.openssl("crl -noout -crlnumber -in list").unwrap();
    assert!(number.trim_end().ends_with("4D"), "{number}");
    let shown = bench.openssl("crl -noout -text -in list").unwrap();
    for line in ["Jan  1 00:00:00 2026 GMT", "Jan  2 00:00:00 2026 GMT", "Serial Number: 01"] {
        assert!(shown.contains(line), "{line:?} in {shown}");
    }
}

#[test]
fn authority_information_is_readable_whatever_its_length() {
    let root = Ca::new("root").unwrap();
    // Lengths of one, two and three bytes.
    for length in [20, 110, 118, 130, 300] {
        let (ocsp, ca) = (format!("http://o/{}", "x".repeat(length)), "http://ca.test/root.der");
        let issued = root.server(&["h.test"]).ocsp_url(&ocsp).ca_issuers_url(ca).issue().unwrap();
        let bench = Bench::new(&[("leaf", &issued.chain_pem())]);
        assert_eq!(bench.openssl("x509 -noout -ocsp_uri -in leaf").unwrap().trim(), ocsp);
        let text = bench.openssl("x509 -noout -text -in leaf").unwrap();
        assert!(text.contains(&format!("CA Issuers - URI:{ca}")), "{text}");
    }
}

#[test]
fn self_signed_is_trusted_by_itself_and_clients_may_be_uris() {
    let own = self_signed(&["gateway.local"]).valid_for(Duration::from_secs(600)).issue().unwrap();
    let bench = Bench::new(&[("own", &own.chain_pem())]);
    assert_eq!(bench.openssl("verify -CAfile own -verify_hostname gateway.local own").err(), None);
    let (_, leaf) = X509Certificate::from_der(own.leaf_der()).unwrap();
    let validity = leaf.validity();
    assert_eq!(validity.not_after.timestamp() - validity.not_before.timestamp(), 3_600 + 600);

    let root = Ca::new("root").unwrap();
    let client = root.client("spiffe://lab.test/pump/7").issue().unwrap();
    let bench = Bench::new(&[("client", &client.chain_pem())]);
    let text = bench.openssl("x509 -noout -ext subjectAltName -in client").unwrap();
    assert!(text.contains("URI:spiffe://lab.test/pump/7"), "{text}");
}

fn assert_pair_fits(root: &Ca, issued: &Issued) {
    let bench =
        Bench::new(&[("root", root.cert_pem()), ("leaf", &issued.chain_pem()), ("key", &issued.key_pem())]);
    assert_eq!(bench.openssl("verify -CAfile root leaf").err(), None);
    let of_key = bench.openssl("pkey -in key -pubout").unwrap();
    assert_eq!(bench.openssl("x509 -in leaf -noout -pubkey").unwrap(), of_key);
}

/// Files for OpenSSL to look at.
struct Bench(TempDir);

impl Bench {
    fn new(files: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(dir.path().join(name), text).unwrap();
        }
        Self(dir)
    }

    /// What it says, `Err` if it ended with an error.
    fn openssl(&self, line: &str) -> Result<String, String> {
        let home: &Path = self.0.path();
        let out = Command::new("openssl").args(line.split(' ')).current_dir(home).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if out.status.success() { Ok(text(&out.stdout)) } else { Err(text(&out.stdout) + &text(&out.stderr)) }
    }
}
