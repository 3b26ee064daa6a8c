//! What OpenSSL accepts is accepted, and what it refuses is refused, unless it was decided otherwise.
//!
//! OpenSSL reads what it finds and passes over the rest, so the differences are the point of this crate: each
//! stands here with its reason.

#![expect(clippy::unwrap_used, reason = "test code outside of test functions")]

#[path = "common/cases.rs"]
mod files;

use std::collections::BTreeSet;
use std::process::{Command, Stdio};

use Verdict::{Accepted, Refused};
use files::{Case, cases, folder};

#[test]
fn openssl_and_this_crate_agree_but_where_it_was_decided_otherwise() {
    let differences: BTreeSet<(String, Verdict, Verdict)> = cases()
        .iter()
        .map(|case| (case.name.clone(), openssl(case), ours(case)))
        .filter(|(_, openssl, ours)| openssl != ours)
        .collect();
    let decided = DECIDED.iter().filter(|decision| decision.holds());
    let decided =
        decided.map(|decision| (decision.name.to_owned(), decision.openssl, decision.ours)).collect();
    let surprises: Vec<_> = differences.symmetric_difference(&decided).collect();
    assert!(surprises.is_empty(), "not decided, or not so: (file, OpenSSL, ours) {surprises:#?}");
}

#[test]
fn openssl_finds_as_many_certificates_where_both_accept() {
    let has_certificates = |case: &&Case| case.role != "key";
    for case in cases().iter().filter(has_certificates).filter(|case| openssl(case) == Accepted) {
        if ours(case) == Refused {
            continue;
        }
        for bundle in case.results().into_iter().map(Result::unwrap) {
            let found = match bundle.trust() {
                Some(trust) => trust.anchors(),
                None => bundle.chain().len(),
            };
            assert_eq!(found, certificates_found_by_openssl(case), "{}", case.name);
        }
    }
}

struct Decision {
    name: &'static str,
    openssl: Verdict,
    ours: Verdict,
    reason: &'static str,
}

impl Decision {
    /// Whether it is one with the crypto provider of this build.
    fn holds(&self) -> bool {
        cfg!(feature = "ring") || !self.reason.starts_with(RING_ALONE)
    }
}

const fn refused(name: &'static str, reason: &'static str) -> Decision {
    Decision { name, openssl: Accepted, ours: Refused, reason }
}

const fn accepted(name: &'static str, reason: &'static str) -> Decision {
    Decision { name, openssl: Refused, ours: Accepted, reason }
}

const DECIDED: &[Decision] = &[
    accepted("C01c-cr-only.pem", "lines that end with CR alone lose nothing"),
    refused("C02e-bom-in-the-middle.pem", PASSED_OVER),
    refused("C04f-sec1-under-pkcs8-label.key", "the label says what the contents are not: it was edited"),
    refused("C08c-second-cert-indented.pem", PASSED_OVER),
    refused("C11-int-leaf.pem", NOT_COMPARED),
    refused("C11b-root-int-leaf.pem", NOT_COMPARED),
    refused("C13b-ca-bad-base64-middle.pem", FIRST_ALONE),
    refused("C13c-ca-bad-der-middle.pem", FIRST_ALONE),
    refused("C13d-ca-with-leaf.pem", NO_CA),
    refused("C16-der.crt", DER),
    refused("C16b-der.key", DER),
    refused("C17-bp256.key", UNSUPPORTED),
    refused("C17-bp256.pem", UNSUPPORTED),
    refused("C17-ed448.key", UNSUPPORTED),
    refused("C17-ed448.pem", UNSUPPORTED),
    refused("C17-explicit-params-sec1.key", EXPLICIT),
    refused("C17-p521.key", "ring alone cannot sign with it"),
    refused("C17-p521.pem", "ring alone cannot sign with it"),
    refused("C17-rsapss.key", UNSUPPORTED),
    refused("C17-rsapss.pem", UNSUPPORTED),
    refused("C17b-explicit-params-pkcs8.key", EXPLICIT),
    refused("C17c-explicit-params-cert.pem", EXPLICIT),
    refused("C19-rsa1024.key", SMALL),
    refused("C19-rsa1024.pem", SMALL),
    refused("C22c-cut-block-then-whole-chain.pem", FIRST_ALONE),
    refused("C22d-chain-cut-in-second.pem", FIRST_ALONE),
    refused("C22h-ca-first-end-line-missing.pem", FIRST_ALONE),
    refused("C25e-old-key-then-matching-key.key", "which of two keys is meant cannot be known"),
    refused("C25f-key-of-another-cert.key", NOT_COMPARED),
    refused("D01b-ca-version-1-not-a-root.pem", NO_CA),
    refused("D02-version-1-leaf.pem", "rustls cannot serve version 1"),
    refused("D04-ca-with-key.pem", "a private key has no business among public files"),
];

const RING_ALONE: &str = "ring alone";
const PASSED_OVER: &str = "OpenSSL passes over the second block without a word";
const FIRST_ALONE: &str = "`openssl x509` reads one certificate and never sees the damage";
const NOT_COMPARED: &str = "OpenSSL was not told to compare key and certificate";
const NO_CA: &str = "not every certificate of the CA file is a CA: its holder would become an issuer";
const DER: &str = "the files are PEM by contract, and the message says how to convert";
const UNSUPPORTED: &str = "no provider of rustls can sign with it";
const EXPLICIT: &str = "RFC 5480 forbids explicit curve parameters, and no provider of rustls reads them";
const SMALL: &str = "RSA below 2048 bits is refused";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    Accepted,
    Refused,
}

fn verdict(is_accepted: bool) -> Verdict {
    if is_accepted { Accepted } else { Refused }
}

fn ours(case: &Case) -> Verdict {
    verdict(case.results().iter().all(Result::is_ok))
}

/// By the command that fits the role.
fn openssl(case: &Case) -> Verdict {
    verdict(match case.role.as_str() {
        "key" => reads("pkey", case),
        "chain+key" => reads("x509", case) && reads("pkey", case),
        _ => reads("x509", case),
    })
}

fn reads(command: &str, case: &Case) -> bool {
    let mut openssl = Command::new("openssl");
    openssl.args([command, "-noout", "-passin", "pass:", "-in"]).arg(folder().join(&case.name));
    openssl.stdin(Stdio::null()).output().unwrap().status.success()
}

fn certificates_found_by_openssl(case: &Case) -> usize {
    let file = folder().join(&case.name);
    let mut openssl = Command::new("openssl");
    openssl.args(["storeutl", "-certs", "-noout", "-passin", "pass:"]).arg(file);
    let output = openssl.stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let total = text.lines().find_map(|line| line.strip_prefix("Total found: "));
    total.unwrap_or_default().parse().unwrap()
}
