//! The gateway as people run it: the program itself, real clients, a real upstream.
//!
//! No test fails because something was slow. What is worth knowing is printed: `--nocapture` shows it.

#![expect(clippy::unwrap_used, reason = "test code outside of test functions")]

mod common;

use std::fs;
use std::io::{self, BufRead as _, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use common::{Mount, eventually};
use rustix::process::{Pid, Resource, Rlimit, Signal};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use rustls_reload::issue::{Ca, Issued};
use rustls_reload::{ClientAuth, Pending, Reloader, TlsListener};

#[test]
fn open_connections_live_through_rotations() {
    open_connections(300, Duration::from_secs(5));
}

/// Takes a minute and wants a release build.
#[test]
#[ignore = "takes a minute: cargo test --release --test gateway -- --ignored --nocapture"]
fn two_thousand_open_connections_live_through_a_minute_of_rotations() {
    open_connections(2_000, Duration::from_secs(60));
}

/// Every connection says something again and again, while the certificate is another one every second.
fn open_connections(count: usize, duration: Duration) {
    allow_many_descriptors();
    let pki = Pki::new();
    let files = pki.files();
    let gateway = Gateway::mutual(&files, &echo(), &["--max-connections", "4096"]);
    let idle = gateway.resident();
    let config = pki.client("client");
    let (done, exchanges) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    // All are open before the first rotation, and until the end.
    let (opened, checked) = (Arc::new(Barrier::new(WORKERS + 1)), Arc::new(Barrier::new(WORKERS + 1)));
    let worker = |number: usize| {
        let (done, exchanges, config) = (Arc::clone(&done), Arc::clone(&exchanges), Arc::clone(&config));
        let (opened, checked, address) = (Arc::clone(&opened), Arc::clone(&checked), gateway.address());
        let share = (number..count).step_by(WORKERS).count();
        start(move || {
            let mut clients: Vec<_> = (0..share).map(|_| connect(address, &config)).collect();
            clients.iter_mut().for_each(|client| ping(client).unwrap());
            opened.wait();
            while !done.load(Ordering::Relaxed) {
                for client in &mut clients {
                    ping(client).expect("no connection fails");
                    exchanges.fetch_add(1, Ordering::Relaxed);
                }
            }
            checked.wait();
        })
    };
    let workers: Vec<_> = (0..WORKERS).map(worker).collect();
    opened.wait();
    let open = gateway.resident();
    assert_eq!(gateway.open(), count);

    let begun = Instant::now();
    let (mut rotations, mut warm) = (0, None);
    while begun.elapsed() < duration {
        thread::park_timeout(Duration::from_secs(1));
        pki.rotate(&files);
        rotations += 1;
        if warm.is_none() && begun.elapsed() > duration / 6 {
            warm = Some(gateway.resident());
        }
    }
    gateway.serves_generation("clients", rotations + 1);
    let (warm, end) = (warm.unwrap(), gateway.resident());
    assert_eq!(gateway.open(), count, "nobody was lost");
    done.store(true, Ordering::Relaxed);
    checked.wait();
    workers.into_iter().for_each(|worker| worker.join().expect("no connection failed"));
    println!(
        "{count} connections, {rotations} rotations in {:?}, {} exchanges, 0 failed; resident: {idle} KiB idle, \
         {open} KiB with all open, {warm} KiB warm, {end} KiB at the end",
        begun.elapsed(),
        exchanges.load(Ordering::Relaxed),
    );
    assert!(end < warm + warm / 10 + 4 * 1024, "memory grows: {warm} KiB, then {end} KiB");
}

#[test]
fn removed_ca_ends_exactly_its_connections() {
    let pki = Pki::new();
    let files = Mount::new();
    let other = Ca::new("other clients").unwrap();
    let both = [pki.clients.cert_pem(), other.cert_pem()].concat();
    pki.put(&files, &both);
    let gateway = Gateway::mutual(&files, &echo(), &["--grace", "1"]);
    let of_other = pki.config(Some(&other.client("old").issue().unwrap()));
    let mut stay: Vec<_> = (0..5).map(|_| connect(gateway.address(), &pki.client("client"))).collect();
    let mut go: Vec<_> = (0..5).map(|_| connect(gateway.address(), &of_other)).collect();
    stay.iter_mut().chain(&mut go).for_each(|client| ping(client).unwrap());

    // One that takes trust from nobody ends nobody.
    pki.put(&files, &both);
    gateway.serves_generation("clients", 2);
    stay.iter_mut().chain(&mut go).for_each(|client| ping(client).unwrap());

    let begun = Instant::now();
    pki.put(&files, pki.clients.cert_pem());
    for client in &mut go {
        let end = client.read(&mut [0]).unwrap_err();
        assert_eq!(end.kind(), ErrorKind::UnexpectedEof, "cut, and not the end of what is said: {end}");
    }
    println!("5 connections were ended {:?} after the CA was removed, with a grace of 1 s", begun.elapsed());
    gateway.says("trust was withdrawn: 0 connections ended, 5 were cut");
    stay.iter_mut().for_each(|client| ping(client).expect("unharmed"));
    eventually(LIMIT, "those who stay are open, and nobody else", || gateway.open() == 5);
    try_connect(gateway.address(), &of_other)
        .and_then(|mut client| ping(&mut client))
        .expect_err("not let in");
}

/// A client that is cut while the gateway has nothing to ask of it: what it sent waits for an upstream that does
/// not read.
#[test]
fn connection_that_waits_for_its_upstream_is_cut_as_well() {
    let pki = Pki::new();
    let files = pki.files();
    let deaf = TcpListener::bind("127.0.0.1:0").unwrap();
    let gateway = Gateway::mutual(&files, &deaf.local_addr().unwrap().to_string(), &["--grace", "1"]);
    let mut client = connect(gateway.address(), &pki.client("client"));
    // rustls reads where it cannot write.
    client.sock.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    client.sock.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    let stuck = io::copy(&mut io::repeat(0), &mut client).unwrap_err();
    assert_eq!(stuck.kind(), ErrorKind::WouldBlock, "every buffer on the way is full");
    let others = Ca::new("other clients").unwrap();
    pki.put(&files, others.cert_pem());
    gateway.says("1 were cut");
    eventually(LIMIT, "the connection is gone", || gateway.open() == 0);
}

#[test]
fn slow_clients_do_not_stop_a_normal_one() {
    const SLOW: usize = 500;
    allow_many_descriptors();
    let pki = Pki::new();
    let files = pki.files();
    let gateway = Gateway::mutual(&files, &echo(), &[]);
    let (address, config) = (gateway.address(), pki.client("client"));
    let name = ServerName::try_from("localhost").unwrap();
    let mut hello = Vec::new();
    ClientConnection::new(Arc::clone(&config), name).unwrap().write_tls(&mut hello).unwrap();
    let mut slow: Vec<_> = (0..SLOW).map(|_| TcpStream::connect(address).unwrap()).collect();
    // A byte a second, in the time that the gateway has for them.
    let mut rounds = hello.iter().take(3);
    let mut took = Vec::new();
    while let Some(byte) = rounds.next() {
        slow.iter_mut().for_each(|slow| slow.write_all(&[*byte]).unwrap());
        let begun = Instant::now();
        let mut client = connect(address, &config);
        ping(&mut client).unwrap();
        took.push(begun.elapsed());
        thread::park_timeout(Duration::from_secs(1));
    }
    let open = slow.iter().filter(|slow| is_open(slow)).count();
    println!("{open} slow clients open, a normal one was served within {took:?}");
    assert_eq!(open, SLOW, "the slow ones were there all the time");
    eventually(LIMIT, "the slow ones run out of time", || slow.iter().all(|slow| !is_open(slow)));
    eventually(LIMIT, "and leave nothing behind", || gateway.open() == 0);
}

#[test]
fn client_beyond_the_cap_waits_for_a_place() {
    let pki = Pki::new();
    let files = pki.files();
    let gateway = Gateway::mutual(&files, &echo(), &["--max-connections", "5"]);
    let (address, config) = (gateway.address(), pki.client("client"));
    let mut clients: Vec<_> = (0..5).map(|_| connect(address, &config)).collect();
    clients.iter_mut().for_each(|client| ping(client).unwrap());
    let served = Arc::new(AtomicBool::new(false));
    let sixth = {
        let (served, config) = (Arc::clone(&served), Arc::clone(&config));
        start(move || {
            let mut client = connect(address, &config);
            ping(&mut client).unwrap();
            served.store(true, Ordering::SeqCst);
        })
    };
    for _ in 0..200 {
        clients.iter_mut().for_each(|client| ping(client).unwrap());
    }
    assert!(!served.load(Ordering::SeqCst), "there is no place");
    assert_eq!(gateway.open(), 5);
    drop(clients.pop());
    sixth.join().expect("served as soon as there is one");
}

#[test]
fn answer_after_the_end_of_the_question_arrives_from_a_plain_upstream() {
    let pki = Pki::new();
    let files = pki.files();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    start(move || {
        for connection in listener.incoming() {
            start(move || answer_after_end(&mut connection.unwrap()));
        }
    });
    let gateway = Gateway::mutual(&files, &address.to_string(), &[]);
    ask_whole(connect(gateway.address(), &pki.client("client")));
    eventually(LIMIT, "nothing is left", || gateway.open() == 0);
}

#[test]
fn answer_after_the_end_of_the_question_arrives_from_a_tls_upstream() {
    let pki = Pki::new();
    let (files, server_files, own_files) = (pki.files(), pki.files(), Mount::new());
    let identity = |serial| pki.clients.client("gateway").serial(serial).issue().unwrap();
    let (first, second) = (identity(1), identity(2));
    put_identity(&own_files, &first, &pki.servers);
    let reloader = Reloader::builder(server_files.paths()).client_auth(ClientAuth::Required).start().unwrap();
    let listener = TlsListener::bind("127.0.0.1:0", &reloader).unwrap();
    let upstream = listener.local_addr().unwrap();
    let shown: Arc<Mutex<Vec<CertificateDer<'static>>>> = Arc::default();
    let seen = Arc::clone(&shown);
    start(move || {
        for pending in listener.incoming() {
            let Ok(mut tls) = pending.unwrap().handshake(Pending::DEFAULT_LIMIT) else {
                continue;
            };
            seen.lock().unwrap().push(tls.tls().peer_certificates().unwrap()[0].clone());
            answer_after_end(&mut tls);
            tls.close(LIMIT).unwrap();
        }
    });
    let upstream = format!("127.0.0.1:{}", upstream.port());
    let own = own_files.path();
    let tls = ["--connect-tls", "localhost", "--upstream-secret", own.to_str().unwrap()];
    let gateway = Gateway::mutual(&files, &upstream, &tls);
    let ask = || ask_whole(connect(gateway.address(), &pki.client("client")));
    ask();
    put_identity(&own_files, &second, &pki.servers);
    gateway.serves_generation("upstream", 2);
    ask();
    assert_eq!(*shown.lock().unwrap(), [first.leaf_der().clone(), second.leaf_der().clone()]);
    // An upstream that the CA does not vouch for.
    put_identity(&own_files, &second, &Ca::new("others").unwrap());
    gateway.serves_generation("upstream", 3);
    let mut client = connect(gateway.address(), &pki.client("client"));
    client.read(&mut [0]).expect_err("the connection ends");
    gateway.says("cannot connect to the upstream");
    assert_eq!(gateway.metric("gateway_upstream_failures_total"), 1);
}

/// Both sides send 4 MiB before they read anything: with one direction waiting for the other, nothing would move
/// any more.
#[test]
fn directions_do_not_wait_for_each_other() {
    let pki = Pki::new();
    let files = pki.files();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    start(move || {
        let mut connection = listener.accept().unwrap().0;
        let mut reading = connection.try_clone().unwrap();
        let reader = start(move || assert_eq!(read_whole(&mut reading), 4 * MIB));
        send_whole(&mut connection, 4 * MIB);
        reader.join().unwrap();
        connection.shutdown(Shutdown::Write).unwrap();
    });
    let gateway = Gateway::mutual(&files, &address.to_string(), &[]);
    let mut client = connect(gateway.address(), &pki.client("client"));
    send_whole(&mut client, 4 * MIB);
    client.conn.send_close_notify();
    client.flush().unwrap();
    assert_eq!(read_whole(&mut client), 4 * MIB);
}

/// A client that reads nothing, an upstream that sends without end: the gateway waits, and does not spin.
#[test]
fn slow_reader_costs_no_processor_time() {
    let pki = Pki::new();
    let files = pki.files();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    start(move || {
        let mut connection = listener.accept().unwrap().0;
        io::copy(&mut io::repeat(7), &mut connection).ok();
    });
    let gateway = Gateway::mutual(&files, &address.to_string(), &[]);
    let mut client = connect(gateway.address(), &pki.client("client"));
    client.read_exact(&mut [0; 64 * 1024]).unwrap();
    // Until all buffers are full.
    let mut before = gateway.switches();
    let mut same = 0;
    while same < 10 {
        thread::park_timeout(Duration::from_millis(100));
        let now = gateway.switches();
        same = if now - before < 5 { same + 1 } else { 0 };
        before = now;
    }
    let spent = gateway.ticks();
    thread::park_timeout(Duration::from_secs(1));
    let spent = gateway.ticks() - spent;
    assert!(spent < 20, "{spent} ticks of 10 ms in a second");
    client.read_exact(&mut vec![0; 4 * MIB]).expect("and goes on as soon as the client reads");
}

#[test]
fn starts_before_its_certificate_is_there() {
    let pki = Pki::new();
    let files = Mount::new();
    let gateway = Gateway::mutual(&files, &echo(), &[]);
    gateway.says("identity=clients connections are refused until there is a certificate");
    assert!(gateway.get("/healthz").starts_with("HTTP/1.1 503"), "{}", gateway.get("/healthz"));
    assert!(gateway.get("/livez").starts_with("HTTP/1.1 200"), "a restart would not help");
    let (address, config) = (gateway.address(), pki.client("client"));
    try_connect(address, &config).and_then(|mut client| ping(&mut client)).expect_err("refused");
    pki.rotate(&files);
    gateway.serves_generation("clients", 1);
    ping(&mut connect(address, &config)).unwrap();
    assert!(gateway.get("/healthz").starts_with("HTTP/1.1 200"), "{}", gateway.get("/healthz"));
}

#[test]
fn sigterm_ends_it_within_the_grace_and_says_who_was_cut() {
    let pki = Pki::new();
    let files = pki.files();
    let mut gateway = Gateway::mutual(&files, &echo(), &["--grace", "1"]);
    let mut client = connect(gateway.address(), &pki.client("client"));
    ping(&mut client).unwrap();
    let begun = Instant::now();
    gateway.signal(Signal::TERM);
    ping(&mut client).expect("still served within the grace");
    let status = gateway.exit();
    println!("ended {:?} after SIGTERM with a grace of 1 s", begun.elapsed());
    assert!(status.success(), "{status}");
    let peer = client.sock.local_addr().unwrap();
    gateway.says(&format!("cut at the end: {peer}"));
    assert_eq!(client.read(&mut [0]).unwrap_err().kind(), ErrorKind::UnexpectedEof);
}

#[test]
fn sighup_checks_the_files() {
    let pki = Pki::new();
    let files = pki.files();
    let gateway = Gateway::mutual(&files, &echo(), &[]);
    gateway.signal(Signal::HUP);
    gateway.says("identity=clients checked the files on SIGHUP");
}

#[test]
fn what_is_no_tls_costs_nothing() {
    let pki = Pki::new();
    let files = pki.files();
    let gateway = Gateway::mutual(&files, &echo(), &[]);
    let address = gateway.address();
    for garbage in [&b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..], &[0; 512], &[0xff; 70_000], b"\x16\x03\x01"] {
        let mut connection = TcpStream::connect(address).unwrap();
        // The other side may have enough of it before it is all there.
        connection.write_all(garbage).ok();
        connection.shutdown(Shutdown::Write).ok();
        io::copy(&mut connection, &mut io::sink()).ok();
    }
    TcpStream::connect(address).map(drop).unwrap();
    try_connect(address, &pki.config(None))
        .and_then(|mut client| ping(&mut client))
        .expect_err("no certificate");
    eventually(LIMIT, "nothing is left", || gateway.open() == 0);
    ping(&mut connect(address, &pki.client("client"))).expect("others are served");
    assert_eq!(gateway.metric("gateway_upstream_failures_total"), 0, "the upstream saw nothing of it");
}

#[test]
fn upstream_that_is_not_there_is_told_of_once() {
    let pki = Pki::new();
    let files = pki.files();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let gateway = Gateway::mutual(&files, &free.to_string(), &[]);
    for _ in 0..3 {
        let mut client = connect(gateway.address(), &pki.client("client"));
        client.read(&mut [0]).expect_err("the connection ends");
    }
    eventually(LIMIT, "all were counted", || gateway.metric("gateway_upstream_failures_total") == 3);
    assert_eq!(gateway.lines_with("cannot connect to the upstream").len(), 1);
    let listener = TcpListener::bind(free).unwrap();
    start(move || listener.incoming().for_each(|connection| echo_on(&connection.unwrap())));
    ping(&mut connect(gateway.address(), &pki.client("client"))).unwrap();
    gateway.says("cannot connect to the upstream: right again");
}

#[test]
fn idle_connections_end() {
    let pki = Pki::new();
    let files = pki.files();
    let gateway = Gateway::mutual(&files, &echo(), &["--idle", "1"]);
    let mut client = connect(gateway.address(), &pki.client("client"));
    ping(&mut client).unwrap();
    assert_eq!(client.read(&mut [0]).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    eventually(LIMIT, "nothing is left", || gateway.open() == 0);
}

/// Both ends over Unix sockets; the file of a process that was killed does not stop the next one.
#[test]
fn unix_sockets_do_as_well() {
    let pki = Pki::new();
    let (files, dir) = (pki.files(), tempfile::tempdir().unwrap());
    let [inside, outside] = ["upstream", "gateway"].map(|name| dir.path().join(name));
    let listener = std::os::unix::net::UnixListener::bind(&inside).unwrap();
    start(move || {
        for connection in listener.incoming() {
            let connection = connection.unwrap();
            start(move || io::copy(&mut &connection, &mut &connection).ok());
        }
    });
    let listen = format!("unix:{}", outside.display());
    let (connect, secret) = (format!("unix:{}", inside.display()), files.path());
    let run = || {
        Gateway::start(&["--listen", &listen, "--secret", secret.to_str().unwrap(), "--connect", &connect])
    };
    let mut killed = run();
    killed.signal(Signal::KILL);
    killed.exit();
    assert!(outside.exists(), "it had no time to clean up");
    let mut gateway = run();
    let socket = UnixStream::connect(&outside).unwrap();
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let tls = ClientConnection::new(pki.config(None), name).unwrap();
    ping(&mut StreamOwned::new(tls, socket)).unwrap();
    gateway.signal(Signal::TERM);
    gateway.exit();
    assert!(!outside.exists(), "cleaned up");
}

/// `strace` lets the accepting thread start two more, then three not, then again.
#[test]
fn threads_that_cannot_be_started_do_not_end_it() {
    let pki = Pki::new();
    let files = pki.files();
    if Command::new("strace").arg("--version").output().is_err() {
        println!("skipped: there is no `strace`");
        return;
    }
    let dir = files.path();
    let upstream = echo();
    // The main thread starts six at most.
    let inject = ["-D", "-f", "-qq", "-o", "/dev/null", "-e", "trace=clone,clone3"];
    let inject = [&inject[..], &["-e", "inject=clone,clone3:error=EAGAIN:when=8..10"]].concat();
    let args = ["--listen", "127.0.0.1:0", "--secret", dir.to_str().unwrap(), "--connect", &upstream];
    let args = [&args[..], &["--client-auth", "required", "--admin", "127.0.0.1:0"]].concat();
    let gateway = Gateway::start_by("strace", &inject, &args);
    let config = pki.client("client");
    let outcomes: Vec<_> = (0..12)
        .map(|_| try_connect(gateway.address(), &config).and_then(|mut client| ping(&mut client)).is_ok())
        .collect();
    assert_eq!(outcomes.iter().filter(|served| !**served).count(), 3, "{outcomes:?}");
    assert!(outcomes[11], "served again");
    assert_eq!(gateway.metric("gateway_thread_failures_total"), 3);
    assert_eq!(
        gateway.lines_with("there is no thread for it:").len(),
        2,
        "that it fails, and that it is right again"
    );
}

#[test]
fn bad_arguments_are_one_line_and_code_two() {
    let good = ["--listen", "127.0.0.1:0", "--secret", "/nowhere", "--connect", "127.0.0.1:1"];
    for (bad, expected) in [
        (&["--nonsense"][..], "unknown option --nonsense"),
        (&["--grace", "soon"], "--grace: expected whole seconds, found \"soon\""),
        (&["--idle"], "--idle needs a value"),
        (&["--listen", "[::1]:0"], "--listen is given twice"),
        (&["--admin", "unix:/run/x"], "--admin: expected host:port"),
        (&["--max-connections", "0"], "--max-connections: expected a number from 1 on"),
        (&["--connect-tls", "localhost"], "--connect-tls and --upstream-secret go together"),
        (&["--connect-tls", "a b", "--upstream-secret", "/x"], "expected a DNS name or an IP address"),
        (&["--client-auth", "perhaps"], "--client-auth is either optional or required"),
        (&["--cert", "x"], "--secret stands for --cert, --key and --ca"),
        (&["more"], "unexpected argument \"more\""),
    ] {
        let output = Command::new(binary()).args(good).args(bad).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{bad:?}: {said}");
        assert!(said.starts_with("gateway: ") && said.contains(expected), "{bad:?}: {said}");
    }
    let help = Command::new(binary()).arg("--help").output().unwrap();
    assert!(help.status.success() && String::from_utf8(help.stdout).unwrap().contains("--upstream-secret"));
}

/// Who issues for servers, and who for clients.
struct Pki {
    servers: Ca,
    clients: Ca,
}

impl Pki {
    fn new() -> Self {
        Self { servers: Ca::new("servers").unwrap(), clients: Ca::new("clients").unwrap() }
    }

    /// Of a server that trusts our clients.
    fn files(&self) -> Mount {
        let files = Mount::new();
        self.rotate(&files);
        files
    }

    fn rotate(&self, files: &Mount) {
        self.put(files, self.clients.cert_pem());
    }

    fn put(&self, files: &Mount, ca: &str) {
        files.swap_with_ca(&self.servers.server(&["localhost"]).issue().unwrap().into(), ca);
    }

    fn client(&self, name: &str) -> Arc<ClientConfig> {
        self.config(Some(&self.clients.client(name).issue().unwrap()))
    }

    fn config(&self, identity: Option<&Issued>) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.servers.cert_der().clone()).unwrap();
        let config = ClientConfig::builder_with_provider(common::provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        Arc::new(match identity {
            Some(issued) => config.with_client_auth_cert(issued.chain_der(), issued.key_der()).unwrap(),
            None => config.with_no_client_auth(),
        })
    }
}

fn put_identity(files: &Mount, identity: &Issued, ca: &Ca) {
    files.put(&[
        ("tls.crt", &identity.chain_pem()),
        ("tls.key", &identity.key_pem()),
        ("ca.crt", ca.cert_pem()),
    ]);
}

/// The program, running, with what it said until now.
struct Gateway {
    process: Child,
    said: Arc<Mutex<Vec<String>>>,
}

impl Gateway {
    /// With client certificates, an admin port, and what else is wanted.
    fn mutual(files: &Mount, upstream: &str, more: &[&str]) -> Self {
        let dir = files.path();
        let args = ["--listen", "127.0.0.1:0", "--secret", dir.to_str().unwrap(), "--connect", upstream];
        let args = [&args[..], &["--client-auth", "required", "--admin", "127.0.0.1:0"], more].concat();
        Self::start(&args)
    }

    fn start(args: &[&str]) -> Self {
        Self::spawn(Command::new(binary()).args(args))
    }

    fn start_by(around: &str, of_that: &[&str], args: &[&str]) -> Self {
        Self::spawn(Command::new(around).args(of_that).arg(binary()).args(args))
    }

    /// Running as soon as it listens.
    fn spawn(command: &mut Command) -> Self {
        let mut process = command.env_remove("RUST_LOG").stderr(Stdio::piped()).spawn().unwrap();
        let said: Arc<Mutex<Vec<String>>> = Arc::default();
        let (lines, kept) = (BufReader::new(process.stderr.take().unwrap()).lines(), Arc::clone(&said));
        start(move || lines.map_while(Result::ok).for_each(|line| kept.lock().unwrap().push(line)));
        let gateway = Self { process, said };
        gateway.says("listening on");
        gateway
    }

    fn address(&self) -> SocketAddr {
        self.lines_with("listening on ")[0].rsplit(' ').next().unwrap().parse().unwrap()
    }

    fn lines_with(&self, text: &str) -> Vec<String> {
        self.said.lock().unwrap().iter().filter(|line| line.contains(text)).cloned().collect()
    }

    /// Waits for a line with `text`.
    fn says(&self, text: &str) {
        let deadline = Instant::now() + LIMIT;
        while self.lines_with(text).is_empty() {
            assert!(
                Instant::now() < deadline,
                "not said: {text}\nsaid:\n{}",
                self.said.lock().unwrap().join("\n")
            );
            thread::park_timeout(Duration::from_millis(2));
        }
    }

    /// The whole answer of the admin port.
    fn get(&self, path: &str) -> String {
        let address = self.lines_with("admin port on")[0].rsplit('/').next().unwrap().to_owned();
        let mut connection = TcpStream::connect(address).unwrap();
        write!(connection, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        io::read_to_string(connection).unwrap()
    }

    /// The sum of all series that begin so.
    fn metric(&self, series: &str) -> u64 {
        let page = self.get("/metrics");
        let lines: Vec<_> = page.lines().filter(|line| line.starts_with(series)).collect();
        assert!(!lines.is_empty(), "no series {series}:\n{page}");
        lines.iter().map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
    }

    /// How many connections are open; none has no series.
    fn open(&self) -> usize {
        let page = self.get("/metrics");
        let lines =
            page.lines().filter(|line| line.starts_with("tls_connections{") && line.contains("\"clients\""));
        lines.map(|line| line.rsplit(' ').next().unwrap().parse::<usize>().unwrap()).sum()
    }

    fn serves_generation(&self, identity: &str, number: u64) {
        let series = format!("tls_reload_generation{{identity=\"{identity}\"}}");
        eventually(LIMIT, &format!("generation {number} of {identity}"), || self.metric(&series) >= number);
    }

    /// KiB in memory.
    fn resident(&self) -> u64 {
        self.status("VmRSS:")
    }

    /// How often its threads went to sleep.
    fn switches(&self) -> u64 {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.process.id())).unwrap();
        let count = |task: io::Result<fs::DirEntry>| field(&task.unwrap().path(), "voluntary_ctxt_switches:");
        tasks.map(count).sum()
    }

    /// Of processor time, 100 a second.
    fn ticks(&self) -> u64 {
        let stat = read(&PathBuf::from(format!("/proc/{}/stat", self.process.id())));
        let fields: Vec<_> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    }

    fn status(&self, name: &str) -> u64 {
        field(&PathBuf::from(format!("/proc/{}", self.process.id())), name)
    }

    fn signal(&self, signal: Signal) {
        rustix::process::kill_process(Pid::from_child(&self.process), signal).unwrap();
    }

    fn exit(&mut self) -> ExitStatus {
        let mut status = None;
        eventually(LIMIT, "it ends", || {
            status = self.process.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

/// The example, as `cargo test` builds it beside this test.
fn binary() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let example = test.parent().unwrap().with_file_name("examples").join("gateway");
    assert!(example.is_file(), "{}: not built: cargo build --example gateway", example.display());
    example
}

fn field(process: &Path, name: &str) -> u64 {
    let status = read(&process.join("status"));
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn read(path: &Path) -> String {
    String::from_utf8(fs::read(path).unwrap()).unwrap()
}

type Client = StreamOwned<ClientConnection, TcpStream>;

fn try_connect(address: SocketAddr, config: &Arc<ClientConfig>) -> io::Result<Client> {
    let socket = TcpStream::connect(address)?;
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(LIMIT))?;
    let name = ServerName::try_from("localhost").unwrap();
    let mut client = Client::new(ClientConnection::new(Arc::clone(config), name).unwrap(), socket);
    while client.conn.is_handshaking() {
        client.conn.complete_io(&mut client.sock)?;
    }
    Ok(client)
}

fn connect(address: SocketAddr, config: &Arc<ClientConfig>) -> Client {
    try_connect(address, config).unwrap()
}

/// Some bytes there and back.
fn ping(stream: &mut (impl Read + Write)) -> io::Result<()> {
    stream.write_all(b"hello")?;
    let mut answer = [0; 5];
    stream.read_exact(&mut answer)?;
    assert_eq!(&answer, b"hello");
    Ok(())
}

fn is_open(socket: &TcpStream) -> bool {
    socket.set_nonblocking(true).unwrap();
    let open = matches!(socket.peek(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock);
    socket.set_nonblocking(false).unwrap();
    open
}

/// Sends back what comes; where it listens.
fn echo() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    start(move || {
        for connection in listener.incoming() {
            start(move || echo_on(&connection.unwrap()));
        }
    });
    address.to_string()
}

fn echo_on(mut connection: &TcpStream) {
    connection.set_nodelay(true).unwrap();
    let mut buffer = [0; 4096];
    while let Ok(length @ 1..) = connection.read(&mut buffer) {
        if connection.write_all(&buffer[..length]).is_err() {
            return;
        }
    }
}

/// The client's part: everything, the end, and then the answer.
fn ask_whole(mut client: Client) {
    send_whole(&mut client, MIB);
    client.conn.send_close_notify();
    client.flush().unwrap();
    assert_eq!(read_whole(&mut client), MIB);
}

/// The upstream's part.
fn answer_after_end(stream: &mut (impl Read + Write)) {
    assert_eq!(read_whole(stream), MIB);
    send_whole(stream, MIB);
}

/// Bytes that tell their place.
fn send_whole(stream: &mut impl Write, length: usize) {
    let bytes: Vec<u8> = (0..length).map(byte_at).collect();
    stream.write_all(&bytes).unwrap();
    stream.flush().unwrap();
}

/// How many came until the announced end, all of them right.
fn read_whole(stream: &mut impl Read) -> usize {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("an end that was announced");
    assert!(bytes.iter().enumerate().all(|(place, byte)| *byte == byte_at(place)), "in order");
    bytes.len()
}

fn byte_at(place: usize) -> u8 {
    u8::try_from(place % 251).unwrap()
}

/// Sockets of three parties, two of them in this process.
fn allow_many_descriptors() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(16_384, |hard| hard.min(16_384));
    if limit.current.is_some_and(|soft| soft < wanted) {
        let more = Rlimit { current: Some(wanted), maximum: limit.maximum };
        rustix::process::setrlimit(Resource::Nofile, more).unwrap();
    }
}

/// A thread with a small stack: there may be thousands.
fn start<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    thread::Builder::new().stack_size(256 * 1024).spawn(run).unwrap()
}

const WORKERS: usize = 16;

const MIB: usize = 1024 * 1024;

/// For what is sure to happen. Some of it takes the ten seconds that a handshake may take.
const LIMIT: Duration = Duration::from_secs(30);
