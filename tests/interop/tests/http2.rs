//! The real h2load, curl and openssl against the HTTP/2 server, while its Secret rotates.
#![forbid(unsafe_code)]
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "test code outside of test functions"
)]

mod common;
mod h2load;

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use common::process::{H2Server, Running, run};
use common::{Mount, Pair, Pki, SOON, ask, client_config, eventually, field, leaf_of, localhost};
use h2load::H2load;
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Bytes;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper::{Request, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustix::process::Signal;
use rustls::pki_types::CertificateDer;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio_rustls::TlsConnector;

/// How often the Secret rotates.
const PAUSE: Duration = Duration::from_millis(100);
/// Requests of one run of the full load.
const ROUND: u64 = 400;
/// Both ways to have a config: one for each connection, and one for good.
const WAYS: [&[&str]; 2] = [&[], &["--fixed"]];

#[test]
fn load_with_long_streams_loses_nothing_while_the_certificate_rotates() {
    rotates_under_load(WAYS[0], 6);
}

#[test]
#[ignore = "half a minute of full load: run by name, with --release"]
fn thirty_seconds_of_load_with_a_config_for_each_connection() {
    rotates_under_load(WAYS[0], 30);
}

#[test]
#[ignore = "half a minute of full load: run by name, with --release"]
fn thirty_seconds_of_load_with_a_fixed_config() {
    rotates_under_load(WAYS[1], 30);
}

/// The property: whatever is open, and whatever is opened, while the Secret rotates ten times a second, is
/// served to its end. What was opened before keeps its certificate, what is opened later has a newer one.
fn rotates_under_load(options: &[&str], seconds: u64) {
    let pki = Pki::new();
    let swaps = 10 * seconds;
    let first = pki.server(1);
    let pairs: Vec<Pair> = (2..=swaps + 1).map(|serial| pki.server(serial)).collect();
    let mount = Mount::with(&first);
    let server = H2Server::start(&mount, options);
    let mut kept = Kept::open(&server, pki.root.cert_der());
    assert_eq!((kept.serial(), &kept.leaf), (1, &first.leaf), "before the first rotation");

    // 100 streams that last longer than all rotations, on 50 connections.
    let length = seconds * 128 * 1_024;
    let long = H2load::start(
        &["-n", "100", "-c", "50", "-m", "2"],
        &server.url(&format!("/bytes/{length}?over={}", seconds + 2)),
    );
    // Ten new connections a second, each for two streams.
    let fresh = (10 * seconds).to_string();
    let twice = (20 * seconds).to_string();
    let short =
        H2load::start(&["-n", &twice, "-c", &fresh, "-r", "10", "-m", "1"], &server.url("/bytes/65536"));
    // As much as the machine can do, on 50 connections at a time.
    let full = full_load(&server);
    let probe = probe(&server, &pki, std::iter::once(&first).chain(&pairs));

    let begun = Instant::now();
    let mut swapped_at = Vec::new();
    for (nth, pair) in (1_u32..).zip(&pairs) {
        mount.swap(pair);
        swapped_at.push(since_epoch());
        if nth % 10 == 0 {
            assert_eq!(kept.serial(), 1, "a connection keeps its certificate");
        }
        thread::park_timeout((begun + PAUSE * nth).saturating_duration_since(Instant::now()));
    }
    let took = begun.elapsed();
    let config = Arc::new(client_config(pki.root.cert_der(), &["http/1.1"]));
    let mut generations = 0;
    eventually(SOON, "the last certificate is served", || {
        let (leaf, answer) = ask(server.address, &config);
        generations = field(&answer, "generation").parse().unwrap_or(0);
        Some(&leaf) == pairs.last().map(|pair| &pair.leaf)
    });
    assert_eq!(kept.serial(), 1, "after the last rotation");
    let (asked, seen) = probe.end();

    let limit = Duration::from_secs(seconds + 20);
    let full = full.end();
    let (long, short) = (long.end(limit), short.end(limit));
    let spanned = long.requests.iter().map(|request| {
        let within = |at: &&Duration| (request.begun..request.ended).contains(*at);
        swapped_at.iter().filter(within).count()
    });
    let spanned = spanned.min().unwrap();
    println!(
        "{swaps} rotations in {took:.1?} {options:?}: generation {generations} in the end; {asked} probes saw {} \
         certificates\n100 streams over at least {spanned} rotations each: {}\nnew connections: {}\nfull load: \
         {} runs of {ROUND} requests for 1 MB, not one lost",
        seen.len(),
        long.line,
        short.line,
        full,
    );
    long.lost_nothing(100);
    short.lost_nothing(20 * seconds);
    // Far below what is seen where nothing else runs: a machine that is busy swaps twice in a row at times, and
    // then reads once.
    let half = usize::try_from(swaps / 2).unwrap();
    assert!(spanned > half, "a long stream saw {spanned} rotations of {swaps}");
    assert!(generations > swaps / 2, "{generations} generations of {swaps}");
    assert!(seen.len() > half / 2, "new connections saw {} certificates of {swaps}", seen.len());
}

#[test]
fn curl_and_openssl_see_the_new_certificate_with_both_protocols() {
    for options in WAYS {
        let pki = Pki::new();
        let pairs = [1, 2].map(|serial| pki.server(serial));
        let mount = Mount::with(&pairs[0]);
        let ca = mount.beside("ca.pem", pki.root.cert_pem());
        let server = H2Server::start(&mount, options);
        for pair in &pairs {
            if pair.serial > 1 {
                mount.swap(pair);
                let config = Arc::new(client_config(pki.root.cert_der(), &["http/1.1"]));
                eventually(SOON, "the new certificate is served", || {
                    ask(server.address, &config).0 == pair.leaf
                });
            }
            for (flag, protocol, version) in [("--http2", "h2", "2"), ("--http1.1", "http/1.1", "1.1")] {
                let mut curl = Command::new("curl");
                curl.args(["-sS", "--fail", flag, "--cacert"]).arg(&ca).arg(server.url("/"));
                let said = run(curl.args(["-w", "%{http_version}\\n%{certs}"]));
                let (answer, rest) = said.split_once('\n').unwrap();
                assert_eq!((field(answer, "protocol"), told(answer)), (protocol, Some(pair.serial)));
                assert!(rest.starts_with(&format!("{version}\n")), "{said}");
                assert_eq!(first_block(rest), first_block(&pair.chain), "curl, {flag}");
            }
            let mut openssl = Command::new("openssl");
            openssl.args(["s_client", "-verify_return_error", "-alpn", "h2", "-connect"]);
            openssl.arg(server.address.to_string()).arg("-CAfile").arg(&ca);
            let said = run(&mut openssl);
            assert!(said.contains("ALPN protocol: h2"), "{said}");
            assert_eq!(first_block(&said), first_block(&pair.chain), "openssl");
        }
        let sent = mount.beside("sent", &"0123456789".repeat(200_000));
        let mut curl = Command::new("curl");
        curl.args(["-sS", "--fail", "--http2", "--cacert"]).arg(&ca).arg(server.url("/echo"));
        let echoed = run(curl.arg("--data-binary").arg(format!("@{}", sent.display())));
        assert_eq!(echoed.len(), 2_000_000, "a body comes back whole");
    }
}

#[test]
fn sigterm_lets_a_stream_end_and_takes_no_new_connection() {
    let pki = Pki::new();
    let mount = Mount::with(&pki.server(1));
    let server = H2Server::start(&mount, &[]);
    let mut kept = Kept::open(&server, pki.root.cert_der());
    let answer = kept.get("/bytes/100000?over=1");
    server.process.signal(Signal::TERM);
    eventually(SOON, "the port is closed", || std::net::TcpStream::connect(server.address).is_err());
    assert_eq!(kept.runtime.block_on(answer.collect()).unwrap().to_bytes().len(), 100_000);
    let ended = server.process.wait(SOON);
    assert!(ended.status.success(), "{}: {}", ended.status, ended.stderr);
}

#[test]
fn wrong_arguments_end_it_with_code_2_and_wrong_files_with_1() {
    for (arguments, code, text) in [
        (&["--help"][..], 0, ""),
        (&[], 2, "--secret is needed"),
        (&["--secret"], 2, "--secret needs a value"),
        (&["--secret", "/a", "--secret", "/b"], 2, "--secret is given twice"),
        (&["--secret", "/a", "--listen", "8443"], 2, "expected host:port"),
        (&["--fixed=yes"], 2, "--fixed takes no value"),
        (&["/etc/tls"], 2, "unexpected argument"),
        (&["--port", "1"], 2, "unknown option --port"),
        (&["--secret", "/nowhere"], 1, "/nowhere/tls.crt"),
    ] {
        let ended = Running::start(H2Server::command().args(arguments)).wait(SOON);
        assert_eq!(ended.status.code(), Some(code), "{arguments:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(text), "{arguments:?}: {}", ended.stderr);
    }
}

/// A connection that is opened once and kept.
struct Kept {
    leaf: CertificateDer<'static>,
    sender: SendRequest<Empty<Bytes>>,
    runtime: Runtime,
}

impl Kept {
    fn open(server: &H2Server, root: &CertificateDer<'static>) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let config = Arc::new(client_config(root, &["h2"]));
        let (leaf, sender) = runtime.block_on(async {
            let stream = TcpStream::connect(server.address).await.unwrap();
            let stream = TlsConnector::from(config).connect(localhost(), stream).await.unwrap();
            let leaf = leaf_of(stream.get_ref().1);
            let (sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
            tokio::spawn(connection);
            (leaf, sender)
        });
        Self { leaf, sender, runtime }
    }

    /// The head of the answer has come; its body may not have.
    fn get(&mut self, path: &str) -> hyper::body::Incoming {
        let request = Request::get(format!("https://localhost{path}")).body(Empty::new()).unwrap();
        let sent = async { tokio::time::timeout(SOON, self.sender.send_request(request)).await };
        let answer = self.runtime.block_on(sent).expect("in time").expect("an answer");
        assert_eq!(answer.status(), StatusCode::OK);
        answer.into_body()
    }

    /// What the server says of the certificate of this connection.
    fn serial(&mut self) -> u64 {
        let answer = self.get("/");
        let answer = self.runtime.block_on(answer.collect()).unwrap().to_bytes();
        told(std::str::from_utf8(&answer).unwrap()).expect("known")
    }
}

/// h2load at full speed, one run after the other; how many there were. With `-D` it would drop what is open
/// at the end, and count it nowhere.
fn full_load(server: &H2Server) -> Repeated<u64> {
    let (url, mut runs) = (server.url("/bytes/1000000"), 0);
    Repeated::start("full load", move || {
        let run = H2load::start(&["-n", &ROUND.to_string(), "-c", "50", "-m", "4"], &url);
        run.end(SOON * 4).lost_nothing(ROUND);
        runs += 1;
        runs
    })
}

/// Opens one connection after the other, and holds the server to what it shows; how many there were, and the
/// serial numbers seen.
fn probe<'a>(
    server: &H2Server,
    pki: &Pki,
    pairs: impl Iterator<Item = &'a Pair>,
) -> Repeated<(u64, BTreeSet<u64>)> {
    let known: Vec<_> = pairs.map(|pair| (pair.leaf.clone(), pair.serial)).collect();
    let config = Arc::new(client_config(pki.root.cert_der(), &["http/1.1"]));
    let (address, mut asked, mut seen, mut newest) = (server.address, 0, BTreeSet::new(), 0);
    Repeated::start("probe", move || {
        let (leaf, answer) = ask(address, &config);
        let (_, serial) = known.iter().find(|(known, _)| *known == leaf).expect("one of ours");
        assert!(told(&answer).is_none_or(|told| told == *serial), "shown: {serial}, told: {answer}");
        assert!(*serial >= newest, "after {newest} a new connection had {serial}");
        newest = *serial;
        seen.insert(newest);
        asked += 1;
        thread::park_timeout(Duration::from_millis(10));
        (asked, seen.clone())
    })
}

/// A thread that does the same again until it is told to end, also when the test fails.
struct Repeated<T> {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<T>>,
}

impl<T: Send + 'static> Repeated<T> {
    fn start(name: &str, mut act: impl FnMut() -> T + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&stop);
        let run = move || {
            loop {
                let done = act();
                if ends.load(Ordering::Relaxed) {
                    return done;
                }
            }
        };
        let thread = thread::Builder::new().name(name.into()).spawn(run).unwrap();
        Self { stop, thread: Some(thread) }
    }

    /// What it came to.
    fn end(mut self) -> T {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().expect("it succeeds each time")
    }
}

impl<T> Drop for Repeated<T> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join);
    }
}

/// The serial number in an answer. With a fixed config the server may not know: see `Shaken::generation`.
fn told(answer: &str) -> Option<u64> {
    let serial = field(answer, "serial");
    (serial != "null").then(|| u64::from_str_radix(serial, 16).unwrap())
}

#[expect(clippy::disallowed_methods, reason = "h2load's log has the time of day")]
fn since_epoch() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap()
}

/// The first certificate in a text, in one line.
fn first_block(text: &str) -> String {
    let (_, block) = text.split_once("-----BEGIN CERTIFICATE-----").expect("a certificate");
    block.split("-----END").next().unwrap().split_whitespace().collect()
}
