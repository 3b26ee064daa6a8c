//! What revokes: directories of CRLs that change while they are watched, and OCSP responses made by OpenSSL.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    clippy::as_conversions,
    reason = "test code"
)]

mod common;

use std::fs;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use common::{Clock, Files, Pair, Pki, SOON, eventually, provider};
use rustls::pki_types::UnixTime;
use rustls_reload::issue::Ca;
use rustls_reload::publish::SecretDir;
use rustls_reload::{Bundle, Material, OcspProblem, Reloader, Warning};
use tempfile::TempDir;

fn crls(reloader: &Reloader) -> usize {
    let generation = reloader.current().unwrap();
    generation.bundle().trust().unwrap().crls().len()
}

fn revokes(reloader: &Reloader, expected: usize) {
    eventually(SOON, &format!("{expected} lists are in force; health: {}", reloader.health()), || {
        crls(reloader) == expected
    });
}

#[test]
fn any_crl_that_comes_goes_or_is_written_in_a_directory_is_noticed() {
    let files = Files::with(&Pki::new().pair(1));
    let dir = files.dir.path().join("crls");
    fs::create_dir(&dir).unwrap();
    let (one, other) = (Ca::new("one").unwrap(), Ca::new("other").unwrap());
    let put = |name: &str, text: &str| {
        fs::write(dir.join(".new"), text).unwrap();
        fs::rename(dir.join(".new"), dir.join(name)).unwrap();
    };
    put("one.crl", one.crl(&[]).issue().unwrap().pem());
    let reloader = Reloader::builder(files.paths().with_crl(&dir)).start().unwrap();
    assert_eq!(crls(&reloader), 1);
    put("other.crl", other.crl(&[]).issue().unwrap().pem());
    revokes(&reloader, 2);
    fs::remove_file(dir.join("other.crl")).unwrap();
    revokes(&reloader, 1);
    let before = reloader.current().unwrap().number();
    fs::write(dir.join("one.crl"), one.crl(&[7]).issue().unwrap().pem()).unwrap();
    reloader.wait_for(before + 1, SOON).expect("written in place");
    put("half.crl", "-----BEGIN X509 CRL-----\n");
    eventually(SOON, "the bad file is named", || reloader.health().to_string().contains("/half.crl: "));
    assert_eq!(crls(&reloader), 1, "what was in force stays");
    fs::remove_file(dir.join("half.crl")).unwrap();
    eventually(SOON, "ready again", || reloader.health().is_ready());
    assert_eq!(reloader.stats().missed_events, 0);
}

#[test]
fn mount_as_directory_of_crls_is_followed() {
    let files = Files::with(&Pki::new().pair(1));
    let mount = SecretDir::open(files.dir.path().join("mount")).unwrap();
    let lists = ["one", "other"].map(|name| Ca::new(name).unwrap().crl(&[]).issue().unwrap());
    let publish = |lists: &[(&str, &str)]| {
        let lists: Vec<_> = lists.iter().map(|(name, text)| (*name, text.as_bytes())).collect();
        mount.publish(&lists).unwrap();
    };
    let [one, other] = lists.each_ref().map(|list| list.pem());
    publish(&[("one.crl", one)]);
    let paths = files.paths().with_crl(files.dir.path().join("mount"));
    let reloader = Reloader::builder(paths).start().unwrap();
    publish(&[("one.crl", one), ("other.crl", other)]);
    revokes(&reloader, 2);
    publish(&[("other.crl", other)]);
    revokes(&reloader, 1);
    assert_eq!(reloader.stats().missed_events, 0);
}

/// A leaf of an intermediate, and what OpenSSL needs to answer for its CA.
struct Responder {
    dir: TempDir,
    issuing: Ca,
}

impl Responder {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let issuing = Ca::new("root").unwrap().intermediate("issuing").build().unwrap();
        fs::write(dir.path().join("ca.pem"), issuing.cert_pem()).unwrap();
        fs::write(dir.path().join("ca.key"), issuing.key().to_pem().as_bytes()).unwrap();
        Self { dir, issuing }
    }

    fn leaf(&self, serial: u64) -> Pair {
        let pair: Pair = self.issuing.server(&["localhost"]).serial(serial).issue().unwrap().into();
        fs::write(self.dir.path().join(format!("{serial}.pem")), &pair.chain).unwrap();
        pair
    }

    /// The answer about the leaf with this serial number, of a CA whose books have one line.
    fn answer(&self, serial: u64, line: &str, options: &str) -> Vec<u8> {
        fs::write(self.dir.path().join("index.txt"), format!("{line}\tunknown\t/CN=localhost\n")).unwrap();
        let arguments = format!(
            "ocsp -index index.txt -rsigner ca.pem -rkey ca.key -CA ca.pem -noverify {options} \
             -issuer ca.pem -cert {serial}.pem -respout answer.der"
        );
        let arguments = arguments.split_whitespace();
        let output = Command::new("openssl").args(arguments).current_dir(self.dir.path()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        fs::read(self.dir.path().join("answer.der")).unwrap()
    }
}

fn load(pair: &Pair, ocsp: &[u8], now: UnixTime) -> Bundle {
    let material = Material::new(pair.chain.as_bytes(), pair.key.as_bytes()).with_ocsp(ocsp);
    Bundle::from_pem(&material, &provider(), now).unwrap()
}

fn problems(bundle: &Bundle) -> Vec<OcspProblem> {
    let problem = |warning: &Warning| match warning {
        Warning::OcspUnusable(problem) => Some(*problem),
        _ => None,
    };
    bundle.warnings().iter().filter_map(problem).collect()
}

/// Why there is no staple.
fn problem(bundle: &Bundle) -> OcspProblem {
    assert!(bundle.certified_key().ocsp.is_none(), "stapled");
    assert_eq!(bundle.ocsp_next_update(), None);
    *problems(bundle).first().expect("a warning about the response")
}

#[test]
fn openssl_responses_are_stapled_while_they_are_good_fresh_and_ours() {
    let responder = Responder::new();
    let (ours, other) = (responder.leaf(0x1234), responder.leaf(0x1235));
    let valid = "V\t491231235959Z\t\t1234";
    for options in ["-ndays 2", "-ndays 2 -sha256", "-ndays 2 -resp_key_id"] {
        let answer = responder.answer(0x1234, valid, options);
        let now = UnixTime::now();
        let bundle = load(&ours, &answer, now);
        assert_eq!(problems(&bundle), [], "{options}");
        assert_eq!(bundle.certified_key().ocsp.as_ref(), Some(&answer), "{options}");
        let left = bundle.ocsp_next_update().unwrap() - i64::try_from(now.as_secs()).unwrap();
        assert!((86_400..=2 * 86_400 + 60).contains(&left), "{options}: {left}");

        assert_eq!(problem(&load(&other, &answer, now)), OcspProblem::OtherCertificate, "{options}");
        let at = |seconds| UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        let stale = problem(&load(&ours, &answer, at(now.as_secs() + 3 * 86_400)));
        assert!(matches!(stale, OcspProblem::Stale { .. }), "{options}: {stale:?}");
        let early = problem(&load(&ours, &answer, at(now.as_secs() - 3 * 86_400)));
        assert!(matches!(early, OcspProblem::NotYetValid { .. }), "{options}: {early:?}");
        for cut in 0..answer.len() {
            problem(&load(&ours, answer.get(..cut).unwrap(), now));
        }
    }
}

#[test]
fn openssl_responses_that_are_not_good_are_not_stapled() {
    let responder = Responder::new();
    let ours = responder.leaf(0x1234);
    let judge = |line: &str, options: &str| {
        problem(&load(&ours, &responder.answer(0x1234, line, options), UnixTime::now()))
    };
    let revoked = judge("R\t491231235959Z\t250101000000Z\t1234", "-ndays 2");
    // 2025-01-01.
    assert!(matches!(revoked, OcspProblem::Revoked { since: 1_735_689_600, .. }), "{revoked:?}");
    assert!(revoked.to_string().starts_with("THE CERTIFICATE IS REVOKED"));
    assert_eq!(judge("V\t491231235959Z\t\t99", "-ndays 2"), OcspProblem::Unknown);
    assert_eq!(judge("V\t491231235959Z\t\t1234", ""), OcspProblem::NoNextUpdate);
}

#[test]
fn configured_response_that_is_missing_is_a_warning() {
    let files = Files::with(&Pki::new().pair(1));
    let load = |paths| Bundle::load(&paths, &provider(), UnixTime::now()).unwrap();
    let missing = files.dir.path().join("nowhere.der");
    assert_eq!(problem(&load(files.paths().with_ocsp(missing))), OcspProblem::Missing);
    assert_eq!(problems(&load(files.paths())), [], "nothing was wanted");
}

#[test]
fn staple_that_runs_out_is_dropped_while_it_is_served() {
    let responder = Responder::new();
    let pair = responder.leaf(0x1234);
    let answer = responder.answer(0x1234, "V\t491231235959Z\t\t1234", "-ndays 2");
    let files = Files::with(&pair);
    let response = files.dir.path().join("ocsp.der");
    fs::write(&response, &answer).unwrap();
    let now = UnixTime::now().as_secs();
    let clock = Clock::at(now);
    let reloader = Reloader::builder(files.paths().with_ocsp(response))
        .time_provider(Arc::clone(&clock) as Arc<dyn rustls::time_provider::TimeProvider>)
        .resync_interval(Duration::from_millis(50))
        .start()
        .unwrap();
    let stapled = || reloader.current().unwrap().bundle().certified_key().ocsp.is_some();
    assert!(stapled());
    clock.set(now + 3 * 86_400);
    eventually(SOON, "dropped", || !stapled());
    assert_eq!(reloader.store().number(), 2);
    assert_eq!(reloader.stats().missed_events, 0, "no event was missed: the clock alone moved");
}
