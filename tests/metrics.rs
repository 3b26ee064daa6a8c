//! What operators see, in every state that the field has reported wrong numbers for.
#![cfg(feature = "prometheus")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "test code outside of test functions, which reads small files and says what it skips"
)]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::tls::{Server, client_config, shake};
use common::{Files, Mount, Pki, SOON, eventually, rename_over, serial, serves};
use prometheus_client::encoding::prometheus_text;
use prometheus_client::registry::Registry;
use rustls::HandshakeKind;
use rustls::pki_types::UnixTime;
use rustls_reload::issue::Ca;
use rustls_reload::metrics::{
    Expiry, HandshakeFailure, Metrics, Prometheus, RELOAD_FAILURES, ReloadResult, Subject,
};
use rustls_reload::{Backend, Event, Health, Reloader, ReloaderBuilder, TlsListener, Trigger, Watcher};

const FAILED: &str = r#"tls_reload_failures_total{identity="a",reason="key_mismatch"}"#;
const NOT_AFTER: &str = r#"tls_cert_not_after_timestamp_seconds{identity="a",kind="leaf"}"#;
const HEALTHY: &str = r#"tls_reload_healthy{identity="a"}"#;
const GENERATION: &str = r#"tls_reload_generation{identity="a"}"#;

#[test]
fn expiry_is_read_from_the_live_generation_and_a_failed_reload_leaves_it() {
    // The gauge was registered at start, or kept the minimum ever seen, and showed the first certificate for ever.
    let pki = Pki::new();
    let [first, second, third] = [1, 2, 3].map(|serial| pki.lasting(serial, serial * 1_000_000));
    let files = Files::with(&first);
    let scrapes = Scrapes::new();
    let reloader = scrapes.reloader(files.paths(), "a").start().unwrap();
    assert_eq!(scrapes.value(NOT_AFTER), not_after(&reloader));
    let at_first = scrapes.value(NOT_AFTER);
    files.rename_over(&second);
    serves(&reloader, 2);
    assert_eq!(scrapes.value(NOT_AFTER), not_after(&reloader));
    let at_second = scrapes.value(NOT_AFTER);
    assert!(at_second > at_first, "{at_second} is that of the second pair");
    assert_eq!(scrapes.value(FAILED), 0);

    rename_over(&files.cert(), &third.chain);
    eventually(SOON, "the failure is counted", || scrapes.value(FAILED) > 0);
    assert_eq!(scrapes.value(NOT_AFTER), at_second, "a failed reload leaves the expiry");
    assert_eq!(scrapes.value(HEALTHY), 0);
    rename_over(&files.key(), &third.key);
    serves(&reloader, 3);
    assert_eq!(scrapes.value(NOT_AFTER), not_after(&reloader));
    eventually(SOON, "healthy", || scrapes.value(HEALTHY) == 1);
}

#[test]
fn recovery_by_the_same_bytes_is_seen_in_every_way_and_publishes_nothing() {
    // Nothing changed, so nothing was told, and the operator went on looking at the last error.
    let pki = Pki::new();
    let (good, other) = (pki.pair(1), pki.pair(2));
    let files = Files::with(&good);
    let scrapes = Scrapes::new();
    let reloader = scrapes.reloader(files.paths(), "a").start().unwrap();
    let events = reloader.subscribe();
    rename_over(&files.key(), &other.key);
    eventually(SOON, "unhealthy", || scrapes.value(HEALTHY) == 0);
    eventually(SOON, "counted", || scrapes.value(FAILED) > 0);
    assert!(matches!(reloader.health(), Health::Stale { .. }), "{}", reloader.health());
    let unchanged = r#"tls_reload_attempts_total{identity="a",trigger="event",result="unchanged"}"#;
    let before = scrapes.value(unchanged);
    rename_over(&files.key(), &good.key);
    eventually(SOON, "healthy", || scrapes.value(HEALTHY) == 1);
    eventually(SOON, "an attempt that found the old bytes", || scrapes.value(unchanged) == before + 1);
    assert!(matches!(reloader.health(), Health::Ready), "{}", reloader.health());
    assert_eq!(scrapes.value(GENERATION), 1, "nothing was published");
    let told: Vec<_> = events.try_iter().collect();
    assert!(matches!(&told[..], [Event::Failed(_), Event::Recovered]), "{told:?}");
}

#[test]
fn number_of_series_is_constant_over_100_rotations_and_failures() {
    let pki = Pki::new();
    let mount = Mount::with(&pki.pair(1));
    let scrapes = Scrapes::new();
    let reloader = scrapes.reloader(mount.paths(), "a").start().unwrap();
    let names: BTreeSet<_> = scrapes.all().into_keys().collect();
    // Answered once it is watched: from now on an event leads to each swap.
    reloader.reload_now().unwrap();
    for next in 2..=101 {
        mount.swap(&pki.pair(next));
        reloader.wait_for(next, SOON).expect("published");
    }
    mount.put(&[("tls.crt", &pki.pair(102).chain), ("tls.key", &pki.pair(103).key)]);
    eventually(SOON, "counted", || scrapes.value(FAILED) > 0);
    let now = scrapes.all();
    assert_eq!(now.keys().cloned().collect::<BTreeSet<_>>(), names);
    assert_eq!(scrapes.value(GENERATION), 101);
    let attempts = r#"tls_reload_attempts_total{identity="a",trigger="event",result="swapped"}"#;
    assert_eq!(scrapes.value(attempts), 100);
    assert_eq!(scrapes.value(r#"tls_reload_duration_seconds_count{identity="a"}"#), 100);
    assert_eq!(scrapes.value(r#"tls_reload_missed_event_swaps_total{identity="a"}"#), 0);
}

#[test]
fn every_combination_of_labels_exists_at_zero_from_the_start() {
    let pki = Pki::new();
    let mount = Mount::with(&pki.pair(1));
    let scrapes = Scrapes::new();
    let reloader = scrapes.reloader(mount.paths(), "a").start().unwrap();
    let all = scrapes.all();
    let count = |name: &str| all.keys().filter(|key| key.split('{').next() == Some(name)).count();
    let expected = [
        ("tls_reload_attempts_total", 12),
        ("tls_reload_failures_total", RELOAD_FAILURES.len()),
        ("tls_reload_last_check_timestamp_seconds", 1),
        ("tls_reload_last_success_timestamp_seconds", 1),
        ("tls_reload_last_swap_timestamp_seconds", 1),
        ("tls_reload_healthy", 1),
        ("tls_reload_generation", 1),
        ("tls_reload_duration_seconds_count", 1),
        ("tls_reload_duration_seconds_sum", 1),
        ("tls_reload_missed_event_swaps_total", 1),
        ("tls_reload_watch_overflows_total", 1),
        ("tls_cert_not_before_timestamp_seconds", 1),
        ("tls_cert_not_after_timestamp_seconds", 3),
        ("tls_handshakes_total", 2),
        ("tls_handshake_failures_total", HandshakeFailure::ALL.len()),
        ("tls_connections", 2),
    ];
    for (name, number) in expected {
        assert_eq!(count(name), number, "{name}");
    }
    let known: usize = expected.iter().map(|(_, number)| number).sum();
    assert_eq!(all.len(), known + count("tls_reload_duration_seconds_bucket"), "and no more: {all:?}");
    let attempts = all.iter().filter(|(key, value)| key.contains("attempts") && **value != 0);
    let moved: Vec<_> = attempts.collect();
    let startup = r#"tls_reload_attempts_total{identity="a",trigger="startup",result="swapped"}"#;
    assert_eq!(moved, [(&startup.to_owned(), &1)], "the start is one attempt");
    let now = i64::try_from(UnixTime::now().as_secs()).unwrap();
    for stamp in ["check", "success", "swap"] {
        let age =
            now - scrapes.value(&format!(r#"tls_reload_last_{stamp}_timestamp_seconds{{identity="a"}}"#));
        assert!((0..10).contains(&age), "{stamp}: {age} s old");
    }
    drop(reloader);
}

#[test]
fn removed_identity_is_gone_and_one_that_did_not_start_never_was() {
    let pki = Pki::new();
    let mount = Mount::with(&pki.pair(1));
    let scrapes = Scrapes::new();
    let kept = scrapes.reloader(mount.paths(), "kept").start().unwrap();
    let gone = scrapes.reloader(mount.paths(), "a").start().unwrap();
    assert!(scrapes.all().contains_key(HEALTHY));
    gone.shutdown();
    gone.reporter().handshake(HandshakeKind::Full);
    let empty = Mount::new();
    scrapes.reloader(empty.paths(), "b").start().expect_err("nothing to load");
    let left: BTreeSet<_> = scrapes.all().into_keys().filter(|key| !key.contains("\"kept\"")).collect();
    assert_eq!(left, BTreeSet::new());
    drop(kept);
    assert_eq!(scrapes.all(), BTreeMap::new());
}

#[test]
fn reloaders_of_one_identity_add_counters_show_the_worst_and_end_with_the_last() {
    let pki = Pki::new();
    let (early, late) = (pki.lasting(1, 1_000_000), pki.lasting(2, 9_000_000));
    let (one, other) = (Files::with(&early), Files::with(&late));
    let scrapes = Scrapes::new();
    let watcher = Watcher::start(Backend::Auto).unwrap();
    let start = |files: &Files| scrapes.reloader(files.paths(), "a").watcher(&watcher).start().unwrap();
    let (first, second) = (start(&one), start(&other));
    let startup = r#"tls_reload_attempts_total{identity="a",trigger="startup",result="swapped"}"#;
    assert_eq!(scrapes.value(startup), 2);
    assert_eq!(scrapes.value(NOT_AFTER), not_after(&first), "the earlier");
    let not_before = r#"tls_cert_not_before_timestamp_seconds{identity="a"}"#;
    assert!(scrapes.value(not_before) > 0);
    other.rename_over(&pki.lasting(3, 8_000_000));
    serves(&second, 3);
    assert_eq!(scrapes.value(GENERATION), 1, "the lower");
    rename_over(&other.key(), &early.key);
    eventually(SOON, "one that is not healthy is enough", || scrapes.value(HEALTHY) == 0);
    for reloader in [&first, &second] {
        reloader.reporter().handshake(HandshakeKind::Resumed);
    }
    assert_eq!(scrapes.value(r#"tls_handshakes_total{identity="a",resumed="true"}"#), 2);
    first.shutdown();
    assert_eq!(scrapes.value(NOT_AFTER), not_after(&second));
    assert_eq!(scrapes.value(startup), 2, "a counter never goes back");
    second.shutdown();
    assert_eq!(scrapes.all(), BTreeMap::new());
}

#[test]
fn an_absent_identity_has_all_its_series_too() {
    let mount = Mount::new();
    let scrapes = Scrapes::new();
    let reloader = scrapes.reloader(mount.paths(), "a").allow_absent().start().unwrap();
    assert_eq!(scrapes.value(HEALTHY), 0);
    assert_eq!(scrapes.value(NOT_AFTER), 0);
    assert!(scrapes.value(r#"tls_reload_failures_total{identity="a",reason="not_found"}"#) >= 1);
    let names = scrapes.all().len();
    let pki = Pki::new();
    mount.swap(&pki.pair(1));
    reloader.wait_for(1, SOON).expect("published");
    eventually(SOON, "healthy", || scrapes.value(HEALTHY) == 1);
    assert_eq!(scrapes.all().len(), names);
}

#[test]
fn unchanged_resync_is_no_attempt_but_a_check_and_a_success() {
    let pki = Pki::new();
    let mount = Mount::with(&pki.pair(1));
    let seen = Arc::new(Notes::default());
    let metrics: Arc<dyn Metrics> = Arc::<Notes>::clone(&seen);
    let reloader = Reloader::builder(mount.paths()).resync_interval(Duration::from_millis(20));
    let reloader = reloader.metrics(metrics).start().unwrap();
    eventually(SOON, "resyncs are checks", || seen.checks.load(Ordering::Relaxed) > 20);
    reloader.shutdown();
    assert_eq!(*seen.attempts.lock().unwrap(), [(Trigger::Startup, ReloadResult::Swapped)]);
    assert_eq!(seen.good.load(Ordering::Relaxed), seen.checks.load(Ordering::Relaxed));
}

#[test]
fn metrics_are_told_in_order_and_nothing_after_the_end() {
    let pki = Pki::new();
    let mount = Mount::with(&pki.pair(1));
    let seen = Arc::new(Notes::default());
    let metrics: Arc<dyn Metrics> = Arc::<Notes>::clone(&seen);
    let reloader = Reloader::builder(mount.paths()).metrics(metrics).start().unwrap();
    for next in 2..=5 {
        mount.swap(&pki.pair(next));
        serves(&reloader, next);
    }
    reloader.reload_now().unwrap();
    reloader.shutdown();
    let order = seen.order.lock().unwrap().clone();
    mount.swap(&pki.pair(6));
    let expected = ["registered", "1", "2", "3", "4", "5", "removed"];
    assert_eq!(order, expected);
    assert_eq!(*seen.order.lock().unwrap(), expected);
    let manual = (Trigger::Manual, ReloadResult::Unchanged);
    assert_eq!(seen.attempts.lock().unwrap().last(), Some(&manual));
}

#[test]
fn metrics_that_panic_end_nothing() {
    struct Bad;
    impl Metrics for Bad {
        fn registered(&self, _: &Subject) {
            panic!("on purpose");
        }
        fn set_generation(&self, _: &Subject, _: u64) {
            panic!("on purpose");
        }
        fn handshake(&self, _: &Subject, _: HandshakeKind) {
            panic!("on purpose");
        }
        fn removed(&self, _: &Subject) {
            panic!("on purpose");
        }
    }
    let pki = Pki::new();
    let mount = Mount::with(&pki.pair(1));
    let reloader = Reloader::builder(mount.paths()).metrics(Arc::new(Bad)).start().unwrap();
    for next in 2..=3 {
        mount.swap(&pki.pair(next));
        serves(&reloader, next);
    }
    eventually(SOON, "told after it is served", || reloader.stats().callback_panics == 4);
    reloader.reporter().handshake(HandshakeKind::Full);
    reloader.shutdown();
    assert_eq!(reloader.stats().callback_panics, 6);
}

#[test]
fn a_scrape_from_the_reload_thread_does_not_deadlock() {
    let pki = Pki::new();
    let mount = Mount::with(&pki.pair(1));
    let scrapes = Arc::new(Scrapes::new());
    let (inside, seen) = (Arc::clone(&scrapes), Arc::new(Mutex::new(Vec::new())));
    let noted = Arc::clone(&seen);
    let reloader = scrapes.reloader(mount.paths(), "a").on_swap(move |_| {
        noted.lock().unwrap().push((inside.value(GENERATION), inside.value(HEALTHY)));
    });
    let reloader = reloader.start().unwrap();
    mount.swap(&pki.pair(2));
    serves(&reloader, 2);
    eventually(SOON, "scraped", || *seen.lock().unwrap() == [(2, 1)]);
}

#[test]
fn handshakes_are_counted_by_what_became_of_them() {
    let pki = Pki::new();
    let mount = Mount::with(&pki.pair(1));
    let scrapes = Scrapes::new();
    let reloader = scrapes.reloader(mount.paths(), "a").start().unwrap();
    let server = Server::start(&reloader);
    shake(server.address, &client_config(pki.root().cert_der())).unwrap();
    eventually(SOON, "a full one", || {
        scrapes.value(r#"tls_handshakes_total{identity="a",resumed="false"}"#) == 1
    });
    let stranger = Ca::new("stranger").unwrap();
    shake(server.address, &client_config(stranger.cert_der())).unwrap_err();
    let failed = |reason: &str| {
        scrapes.value(&format!(r#"tls_handshake_failures_total{{identity="a",reason="{reason}"}}"#))
    };
    eventually(SOON, "the client does not know our CA", || failed("unknown_ca") == 1);
    drop(TcpStream::connect(server.address).unwrap());
    eventually(SOON, "the client is gone", || failed("peer_closed") == 1);
}

#[test]
fn connections_are_counted_by_what_they_run_on_when_somebody_asks() {
    let pki = Pki::new();
    let mount = Mount::with(&pki.pair(1));
    let scrapes = Scrapes::new();
    let reloader = scrapes.reloader(mount.paths(), "a").start().unwrap();
    let listener = TlsListener::bind("127.0.0.1:0", &reloader).unwrap();
    let address = listener.local_addr().unwrap();
    let config = client_config(pki.root().cert_der());
    let client = std::thread::Builder::new().spawn(move || shake(address, &config)).unwrap();
    let mut tls = listener.accept().unwrap().unwrap().handshake(SOON).unwrap();
    let open = |state: &str| scrapes.value(&format!(r#"tls_connections{{identity="a",state="{state}"}}"#));
    assert_eq!((open("current"), open("stale")), (1, 0));
    mount.swap(&pki.pair(2));
    serves(&reloader, 2);
    assert_eq!((open("current"), open("stale")), (0, 1), "at once, and nobody told");
    std::io::copy(&mut (&mut tls).take(1), &mut std::io::sink()).unwrap();
    tls.write_all(b"!").unwrap();
    client.join().unwrap().unwrap();
    drop(tls);
    assert_eq!((open("current"), open("stale")), (0, 0));
}

#[test]
fn every_reason_of_a_failed_load_has_its_series() {
    // The reasons are short words in functions of this name, so they can be read from the sources.
    let words = |file: &str| {
        let text = read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(file));
        let body = text.split("fn reason(").nth(1).unwrap().split("\n    }").next().unwrap().to_owned();
        body.split('"').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>()
    };
    let files = ["load.rs", "bundle/error.rs", "source/error.rs", "pem/error.rs"];
    let found: BTreeSet<_> = files.into_iter().flat_map(words).collect();
    let known: BTreeSet<_> = RELOAD_FAILURES.iter().map(ToString::to_string).collect();
    assert_eq!(found, known);
}

#[test]
fn exposition_is_read_by_a_client_library_of_another_language() {
    let Some(python) = python() else {
        return;
    };
    let pki = Pki::new();
    let mount = Mount::with(&pki.pair(1));
    let scrapes = Scrapes::new();
    // What a label may hold, and what a naive encoder breaks at.
    let odd = "quote\" back\\slash\nline";
    let _odd = scrapes.reloader(mount.paths(), odd).start().unwrap();
    let plain = scrapes.reloader(mount.paths(), "a").start().unwrap();
    // Answered once it is watched: from now on an event leads to each swap.
    plain.reload_now().unwrap();
    mount.swap(&pki.pair(2));
    eventually(SOON, "a duration", || {
        scrapes.value(r#"tls_reload_duration_seconds_count{identity="a"}"#) == 1
    });
    let text = scrapes.text();
    let page = tempfile::NamedTempFile::new().unwrap();
    fs::write(page.path(), &text).unwrap();
    let parse = "\
import sys
from prometheus_client.parser import text_string_to_metric_families as parse
families = list(parse(open(sys.argv[1], newline='').read()))
names = [family.name for family in families]
assert len(names) == len(set(names)), names
samples = [(s.name, tuple(sorted(s.labels.items()))) for f in families for s in f.samples]
assert len(samples) == len(set(samples)), 'a series twice'
assert {dict(labels)['identity'] for _, labels in samples} == {'a', 'quote\" back\\\\slash\\nline'}, samples
print(len(families), len(samples), *sorted({f.type for f in families}))
";
    let output = Command::new(python).arg("-c").arg(parse).arg(page.path()).output().unwrap();
    assert!(output.status.success(), "{}\n{text}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8(output.stdout).unwrap();
    let expected =
        format!("15 {} counter gauge histogram", text.lines().filter(|l| !l.starts_with('#')).count());
    assert_eq!(said.trim(), expected);
}

/// A Python with `prometheus_client`, in a virtual environment that is kept between runs.
fn python() -> Option<PathBuf> {
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("python");
    let python = home.join("bin/python3");
    let has = || {
        let mut import = Command::new(&python);
        import.args(["-c", "import prometheus_client.parser"]).stderr(Stdio::null());
        import.status().is_ok_and(|status| status.success())
    };
    if !has() {
        let run = |command: &mut Command| {
            command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
        };
        let made = run(Command::new("python3").args(["-m", "venv"]).arg(&home))
            && run(Command::new(&python).args(["-m", "pip", "install", "-q", "prometheus_client==0.22.1"]));
        if !made || !has() {
            println!("skipped: python3 with venv, pip and prometheus_client cannot be had");
            return None;
        }
    }
    Some(python)
}

/// A registry, and what a scrape of it shows.
struct Scrapes {
    registry: Registry,
    prometheus: Arc<Prometheus>,
}

impl Scrapes {
    fn new() -> Self {
        let mut registry = Registry::default();
        let prometheus = Prometheus::register(&mut registry);
        Self { registry, prometheus }
    }

    fn reloader(&self, paths: rustls_reload::Paths, identity: &str) -> ReloaderBuilder {
        let metrics = Arc::clone(&self.prometheus);
        Reloader::builder(paths).identity(identity).metrics(metrics)
    }

    fn text(&self) -> String {
        let mut text = String::new();
        prometheus_text::encode(&mut text, &self.registry).unwrap();
        text
    }

    /// Every series but the sums of seconds, which are whole numbers.
    fn all(&self) -> BTreeMap<String, i64> {
        let text = self.text();
        let samples = text.lines().filter(|line| !line.starts_with('#'));
        let samples = samples.map(|line| {
            let (series, value) = line.rsplit_once(' ').unwrap();
            let whole = value.parse();
            assert!(whole.is_ok() || series.contains("_duration_seconds_sum"), "{line}");
            (series.to_owned(), whole.unwrap_or(0))
        });
        samples.collect()
    }

    fn value(&self, series: &str) -> i64 {
        let all = self.all();
        *all.get(series).unwrap_or_else(|| panic!("no {series} among {:?}", all.keys()))
    }
}

/// What metrics of one's own see.
#[derive(Default)]
struct Notes {
    order: Mutex<Vec<String>>,
    attempts: Mutex<Vec<(Trigger, ReloadResult)>>,
    checks: AtomicU64,
    good: AtomicU64,
}

impl Notes {
    fn note(&self, word: impl ToString) {
        self.order.lock().unwrap().push(word.to_string());
    }
}

impl Metrics for Notes {
    fn registered(&self, _: &Subject) {
        self.note("registered");
    }

    fn removed(&self, _: &Subject) {
        self.note("removed");
    }

    fn checked(&self, _: &Subject, result: ReloadResult, _: UnixTime) {
        self.checks.fetch_add(1, Ordering::Relaxed);
        self.good.fetch_add(u64::from(result != ReloadResult::Failed), Ordering::Relaxed);
    }

    fn reload_attempt(&self, _: &Subject, trigger: Trigger, result: ReloadResult) {
        self.attempts.lock().unwrap().push((trigger, result));
    }

    fn set_generation(&self, _: &Subject, number: u64) {
        self.note(number);
    }

    fn set_expiry(&self, subject: &Subject, expiry: Expiry) {
        assert_eq!(subject.expiry(), Some(expiry));
    }
}

fn not_after(reloader: &Reloader) -> i64 {
    assert!(serial(reloader) > 0);
    reloader.current().unwrap().bundle().leaf().validity().not_after
}

fn read(path: &Path) -> String {
    String::from_utf8(fs::read(path).unwrap()).unwrap()
}
