//! Every file of `tests/cases` is held to its `.expect` line, and no output of any kind quotes a key.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

#[path = "common/cases.rs"]
mod files;
#[path = "common/secrets.rs"]
mod secrets;

use std::collections::{BTreeSet, HashSet};
use std::fmt::Debug;

use files::{Case, cases, now, provider, read};
use rustls_reload::{Bundle, BundleError, Curve, KeyType, Material, Paths, pem};
use secrets::Secrets;

#[test]
fn every_case_is_accepted_or_refused_as_expected() {
    let cases = cases();
    assert!(cases.len() > 80, "only {} cases", cases.len());
    let failures: Vec<String> =
        cases.iter().filter_map(|case| Some(format!("{}: {}", case.name, check(case)?))).collect();
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

#[test]
fn every_open_decision_is_taken_and_no_other() {
    let open: BTreeSet<String> =
        cases().into_iter().filter(|case| case.is_open()).map(|case| case.name).collect();
    let taken: BTreeSet<String> = DECIDED.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(open, taken);
}

#[test]
fn no_output_quotes_a_file() {
    for case in cases() {
        let secrets = Secrets::of(&case.bytes);
        for result in case.results() {
            secrets.check(&case.name, &outputs(&result));
        }
        secrets.check(&case.name, &format!("{:?}", pem::parse(&case.bytes)));
    }
}

#[test]
fn no_output_quotes_a_key_that_was_cut_anywhere() {
    let leaf = read("pki/leaf.pem");
    let keys = cases().into_iter().filter(|case| contains(&case.bytes, b"PRIVATE KEY"));
    for case in keys {
        let secrets = Secrets::of(&case.bytes);
        // Most cuts give the same few outputs.
        let mut seen = HashSet::new();
        for cut in 0..case.bytes.len() {
            for part in [&case.bytes[..cut], &case.bytes[cut..]] {
                let as_key = Bundle::from_pem(&Material::new(&leaf, part), &provider(), now());
                let as_chain = Bundle::from_pem(&Material::combined(part), &provider(), now());
                for output in [outputs(&as_key), outputs(&as_chain), format!("{:?}", pem::parse(part))] {
                    if !seen.contains(&output) {
                        secrets.check(&format!("{} cut at {cut}", case.name), &output);
                        seen.insert(output);
                    }
                }
            }
        }
    }
}

#[test]
fn a_chain_cut_anywhere_is_never_accepted_shorter_but_at_a_block_boundary() {
    let chain = [read("pki/leaf.pem"), read("pki/int.pem"), read("pki/root.pem")].concat();
    let key = read("pki/leaf.key");
    let load = |part: &[u8]| {
        Some(Bundle::from_pem(&Material::new(part, &key), &provider(), now()).ok()?.chain().len())
    };
    assert_cut_property(&chain, load);
}

#[test]
fn a_ca_file_cut_anywhere_is_never_accepted_smaller_but_at_a_block_boundary() {
    let (leaf, key) = (read("pki/leaf.pem"), read("pki/leaf.key"));
    let ca = [read("pki/root.pem"), read("pki/root2.pem")].concat();
    let load = |part: &[u8]| {
        let material = Material::new(&leaf, &key).with_ca(part);
        Some(Bundle::from_pem(&material, &provider(), now()).ok()?.trust()?.anchors())
    };
    assert_cut_property(&ca, load);
}

#[test]
fn a_key_cut_anywhere_is_never_accepted() {
    let leaf = read("pki/leaf.pem");
    let key = read("pki/leaf.key");
    let whole = key.trim_ascii_end().len();
    for cut in 0..=key.len() {
        let is_accepted = Bundle::from_pem(&Material::new(&leaf, &key[..cut]), &provider(), now()).is_ok();
        assert_eq!(is_accepted, cut >= whole, "cut at {cut} of {whole}");
    }
}

/// A block counts as soon as its END marker is complete; until the next one is, nothing but the line break
/// between them may be there.
fn assert_cut_property(text: &[u8], load: impl Fn(&[u8]) -> Option<usize>) {
    let mut boundaries = Vec::new();
    for cut in 0..=text.len() {
        let part = &text[..cut];
        let ends = count(part, b"-----END CERTIFICATE-----");
        let is_boundary = part.trim_ascii_end().ends_with(b"-----END CERTIFICATE-----");
        let expected = is_boundary.then_some(ends);
        assert_eq!(load(part), expected, "cut at {cut}");
        boundaries.extend(expected);
    }
    assert!(boundaries.len() >= 4, "the cut property was never put to the test");
}

/// Where more than one outcome is acceptable, the one that was chosen.
const DECIDED: [(&str, Outcome); 17] = [
    ("C02e-bom-in-the-middle.pem", Outcome::Reject),
    ("C04f-sec1-under-pkcs8-label.key", Outcome::Reject),
    ("C07b-glued-chain.pem", Outcome::Reject),
    ("C07c-glued-key-then-chain.pem", Outcome::Reject),
    ("C07d-glued-ca.pem", Outcome::Reject),
    ("C08b-all-indented.pem", Outcome::Reject),
    ("C08c-second-cert-indented.pem", Outcome::Reject),
    ("C08d-end-line-indented.pem", Outcome::Reject),
    ("C11-int-leaf.pem", Outcome::Reject),
    ("C11b-root-int-leaf.pem", Outcome::Reject),
    ("C11d-two-leaves.pem", Outcome::Accept),
    ("C13d-ca-with-leaf.pem", Outcome::Reject),
    ("C16-der.crt", Outcome::Reject),
    ("C16b-der.key", Outcome::Reject),
    ("C20b-padding-missing.pem", Outcome::Reject),
    ("C20f-base64url.pem", Outcome::Reject),
    ("C25e-old-key-then-matching-key.key", Outcome::Reject),
];

/// What the message must contain when the `.expect` line contains the phrase.
const CONVEYS: &[(&str, &[&str])] = &[
    ("private key in the CA file", &["CA file: line 12: private key in a file of CA certificates"]),
    ("BEGIN inside block 1", &["BEGIN inside block 1"]),
    ("BEGIN marker is not at the start of its line", &["BEGIN marker is not at the start of its line"]),
    ("DEK-Info", &["DEK-Info"]),
    ("DER, not PEM", &["DER, not PEM", "openssl", "-inform DER"]),
    ("END and BEGIN on one line", &["END and BEGIN on one line"]),
    ("END marker missing", &["END marker"]),
    ("RSA key has 1024 bits, 2048 needed", &["RSA key has 1024 bits, 2048 needed"]),
    ("UTF-16", &["UTF-16", "convert"]),
    ("block 1 has no END line", &["block 1", "no END line"]),
    ("block 2 has no END line", &["block 2", "no END line"]),
    ("key block has no END line", &["PRIVATE KEY", "no END line"]),
    ("block 2 is not a certificate", &["certificate 2 is not a certificate"]),
    ("block 2 is not valid base64", &["block 2", "not valid base64"]),
    ("certificate 1 is not a CA", &["certificate 1", "is not a CA"]),
    ("certificate 2 is not a CA", &["certificate 2", "is not a CA"]),
    ("contents are SEC1 but the label says PKCS#8", &["SEC1", "label says PKCS#8"]),
    ("does not belong to the certificate", &["does not belong to the leaf in"]),
    ("explicit EC parameters not supported", &["explicit EC parameters", "not supported"]),
    ("file holds CERTIFICATE REQUEST", &["CERTIFICATE REQUEST", "no certificate found"]),
    ("file holds CERTIFICATE, no private key", &["1 certificate", "no private key found"]),
    ("file holds OPENSSH PRIVATE KEY", &["OPENSSH PRIVATE KEY", "PKCS#8, PKCS#1 or SEC1", "ssh-keygen"]),
    ("file holds PKCS7", &["PKCS7", "openssl pkcs7"]),
    ("file holds PUBLIC KEY", &["PUBLIC KEY", "no private key found"]),
    ("file is empty", &["the file is empty"]),
    ("invalid base64", &["not valid base64"]),
    ("key belongs to certificate 2", &["key matches certificate 2 of 2; the leaf must come first"]),
    ("key belongs to certificate 3", &["key matches certificate 3 of 3; the leaf must come first"]),
    ("leaf is X.509 version 1", &["leaf is X.509 version 1, expected 3"]),
    ("line breaks are missing", &["line breaks are missing"]),
    (r"line breaks are written as \n", &[r"line breaks are written as \n"]),
    ("looks like base64 of a PEM file", &["looks like base64 of a PEM file"]),
    ("naming the block", &["block 1"]),
    ("naming the line", &["line "]),
    ("no PEM block", &["no PEM block"]),
    ("NUL bytes", &["NUL bytes"]),
    ("private key is encrypted", &["private key is encrypted", "decrypt it first"]),
    ("text after the BEGIN marker", &["text after the BEGIN marker"]),
    ("two private keys in the file", &["2 private keys", "number 2 fits"]),
    ("unsupported curve P-521", &["unsupported", "P-521"]),
    ("unsupported curve brainpoolP256r1", &["unsupported", "brainpoolP256r1"]),
    ("unsupported key type Ed448", &["unsupported key type Ed448"]),
    ("unsupported key type RSASSA-PSS", &["unsupported key type RSASSA-PSS"]),
];

/// What one of the warnings must contain when the `.expect` line contains the phrase.
const WARNS: &[(&str, &str)] = &[
    ("a private key in the certificate file", "line 13: a private key that is not used"),
    ("anchor 1 has a weak key", "CA file: certificate 1 has a weak key: RSA 1024"),
    ("anchor 1 is of version 1", "certificate 1 (CN=version one root) is of X.509 version 1"),
    ("certificate 2 has a weak key", "certificate file: certificate 2 has a weak key: RSA 1024"),
    ("signature of certificate 1 is SHA-1", "certificate 1 has a weak signature: SHA-1 with RSA"),
    ("warning about the order", "certificate 2 is out of order"),
    ("warning that certificate 2 did not issue certificate 1", "certificate 2 did not issue"),
    ("warning: anchor 2 is expired", "certificate 2 (CN=case expired root) is expired"),
];

/// Where the trouble is, for the cases that have a place.
const LINES: &[(&str, usize)] = &[
    ("C02e-bom-in-the-middle.pem", 13),
    ("C04f-sec1-under-pkcs8-label.key", 1),
    ("C05-pbes2.key", 1),
    ("C07b-glued-chain.pem", 12),
    ("C07c-glued-key-then-chain.pem", 5),
    ("C07d-glued-ca.pem", 11),
    ("C08b-all-indented.pem", 1),
    ("C08c-second-cert-indented.pem", 13),
    ("C08d-end-line-indented.pem", 12),
    ("C13b-ca-bad-base64-middle.pem", 14),
    ("C13c-ca-bad-der-middle.pem", 12),
    ("C13d-ca-with-leaf.pem", 12),
    ("C20b-padding-missing.pem", 11),
    ("C20f-base64url.pem", 5),
    ("C22-end-line-missing.pem", 1),
    ("C22c-cut-block-then-whole-chain.pem", 6),
    ("C22d-chain-cut-in-second.pem", 13),
    ("C22h-ca-first-end-line-missing.pem", 11),
    ("C22i-ca-cut-then-whole.pem", 4),
    ("C23b-backslash-n.key", 1),
    ("C23c-spaces-for-newlines.key", 1),
    ("C23e-body-on-begin-line.key", 1),
    ("C23g-oneline-key-then-cert.pem", 1),
];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Outcome {
    Accept,
    Reject,
}

impl Case {
    fn is_open(&self) -> bool {
        [", or reject", "(or accept", "(or reject"].iter().any(|or| self.expected.contains(or))
    }

    fn outcome(&self) -> Outcome {
        let decided = DECIDED.iter().find(|(name, _)| *name == self.name);
        match decided {
            Some((_, outcome)) => *outcome,
            None if self.expected.starts_with("accept") => Outcome::Accept,
            None => Outcome::Reject,
        }
    }

    /// The number behind `what=` in the accepted outcome.
    fn number(&self, what: &str) -> Option<usize> {
        let accepted = self.expected.split("; never").next()?;
        let (_, rest) = accepted.split_once(&format!("{what}="))?;
        rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
    }

    fn key_kind(&self) -> Option<&str> {
        let (_, rest) = self.expected.split_once("key=")?;
        rest.split([' ', ',', ')', ';']).next()
    }
}

/// Why a case is not as it should be.
fn check(case: &Case) -> Option<String> {
    for result in case.results() {
        let failure = match (case.outcome(), result) {
            (Outcome::Accept, Ok(bundle)) => check_accepted(case, &bundle),
            (Outcome::Reject, Err(error)) => check_refused(case, &error),
            (Outcome::Accept, Err(error)) => Some(format!("refused: {error}")),
            (Outcome::Reject, Ok(_)) => Some("accepted".to_owned()),
        };
        if failure.is_some() {
            return failure;
        }
    }
    None
}

fn check_accepted(case: &Case, bundle: &Bundle) -> Option<String> {
    if let Some(certs) = case.number("certs")
        && bundle.chain().len() != certs
    {
        return Some(format!("{} certificates, expected {certs}", bundle.chain().len()));
    }
    let anchors = bundle.trust().map(|trust| trust.anchors());
    if anchors != case.number("anchors") || bundle.trust().map(|trust| trust.roots().len()) != anchors {
        return Some(format!("{anchors:?} anchors"));
    }
    if let Some(expected) = case.key_kind() {
        let found = key_kind(&case.bytes, bundle.leaf().key_type());
        if found != expected {
            return Some(format!("key is {found}, expected {expected}"));
        }
    }
    let warnings: Vec<String> = bundle.warnings().iter().map(ToString::to_string).collect();
    let wanted: Vec<&str> = WARNS
        .iter()
        .filter(|(phrase, _)| case.expected.contains(phrase))
        .map(|(_, wanted)| *wanted)
        .collect();
    if let Some(missing) =
        wanted.iter().find(|wanted| !warnings.iter().any(|warning| warning.contains(**wanted)))
    {
        return Some(format!("no warning {missing:?} in {warnings:?}"));
    }
    match case.expected.contains("warning") {
        true if wanted.is_empty() => Some("a warning that this test does not know".to_owned()),
        false if !warnings.is_empty() => Some(format!("unexpected warnings: {warnings:?}")),
        _ => None,
    }
}

fn check_refused(case: &Case, error: &BundleError) -> Option<String> {
    let message = error.to_string();
    let mut conveyed = CONVEYS.iter().filter(|(phrase, _)| case.expected.contains(phrase)).peekable();
    if conveyed.peek().is_none() {
        return Some(format!("nothing known to look for; the message is {message:?}"));
    }
    if let Some(missing) = conveyed.flat_map(|(_, words)| *words).find(|word| !message.contains(**word)) {
        return Some(format!("{message:?} does not say {missing:?}"));
    }
    if let Some((_, line)) = LINES.iter().find(|(name, _)| *name == case.name)
        && !message.contains(&format!(": line {line}: "))
    {
        return Some(format!("{message:?} does not name line {line}"));
    }
    let paths =
        Paths::new("/etc/tls/a.crt", "/etc/tls/a.key").with_ca("/etc/tls/ca.crt").with_crl("/etc/tls/crl");
    let with_path = error.display_with(&paths).to_string();
    let (_, sentence) = message.split_once(": ")?;
    match with_path.starts_with("/etc/tls/") && !sentence.is_empty() {
        true => None,
        false => Some(format!("no path first: {with_path:?}")),
    }
}

/// In the words of the `.expect` lines.
fn key_kind(text: &[u8], key_type: KeyType) -> String {
    let blocks = pem::parse(text).expect("accepted as part of a bundle");
    let key = blocks.iter().find(|block| block.label().is_private_key()).expect("a key");
    let encoding = match key.label() {
        pem::Label::Pkcs1Key => "pkcs1",
        pem::Label::Sec1Key => "sec1",
        _ => "pkcs8",
    };
    match key_type {
        KeyType::Rsa { bits } => format!("{encoding}-rsa{bits}"),
        KeyType::Ecdsa(Curve::P256) => format!("{encoding}-p256"),
        KeyType::Ecdsa(Curve::P384) => format!("{encoding}-p384"),
        KeyType::Ecdsa(Curve::P521) => format!("{encoding}-p521"),
        KeyType::Ed25519 => "ed25519".to_owned(),
        other => other.to_string(),
    }
}

/// Everything that can be printed of a result.
fn outputs(result: &Result<Bundle, BundleError>) -> String {
    match result {
        Ok(bundle) => format!("{bundle:?} {:?} {}", bundle.certified_key().key, all(bundle.warnings())),
        Err(error) => {
            let paths = Paths::new("a", "b");
            let sources = std::iter::successors(std::error::Error::source(error), |error| error.source());
            let sources: Vec<String> = sources.map(ToString::to_string).collect();
            format!(
                "{error} {error:?} {error:#?} {} {} {sources:?}",
                error.display_with(&paths),
                error.reason()
            )
        }
    }
}

fn all<T: Debug + ToString>(items: &[T]) -> String {
    items.iter().map(|item| format!("{item:?} {}", item.to_string())).collect()
}

fn count(text: &[u8], needle: &[u8]) -> usize {
    text.windows(needle.len()).filter(|window| *window == needle).count()
}

fn contains(text: &[u8], needle: &[u8]) -> bool {
    count(text, needle) > 0
}
