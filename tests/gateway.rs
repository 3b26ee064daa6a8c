//! The gateway as people run it: the program itself, real clients, a real upstream.
//!
//! No test fails because something was slow. What is worth knowing is printed: `--nocapture` shows it.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "test code outside of test functions"
)]

mod common;
#[path = "gateway/peers.rs"]
mod peers;
#[path = "gateway/process.rs"]
mod process;

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use common::{Mount, eventually};
use peers::{
    MIB, Pki, answer_after_end, ask_whole, connect, echo, echo_on, is_open, ping, put_identity, read_whole,
    send_whole, start, try_connect,
};
use process::{Gateway, LIMIT, Unheard, binary};
use rustix::process::{Pid, Resource, Rlimit, Signal};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConnection, StreamOwned};
use rustls_reload::issue::Ca;
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
    // Shorter than the test: a connection that is ended by mistake is missed.
    let more = ["--max-connections", "4096", "--grace", "1"];
    let gateway = Gateway::mutual(&files, &echo(), &more);
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
    let mut took = Vec::new();
    for byte in hello.iter().take(3) {
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

/// Both sides send everything before the client reads anything: with one direction waiting for the other, nothing
/// would move any more. More than the kernel holds (`tcp_rmem`, `tcp_wmem`).
#[test]
fn directions_do_not_wait_for_each_other() {
    const MUCH: usize = 32 * MIB;
    let pki = Pki::new();
    let files = pki.files();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    start(move || {
        let mut connection = listener.accept().unwrap().0;
        let mut reading = connection.try_clone().unwrap();
        let reader = start(move || assert_eq!(read_whole(&mut reading), MUCH));
        send_whole(&mut connection, MUCH);
        reader.join().unwrap();
        connection.shutdown(Shutdown::Write).unwrap();
    });
    let gateway = Gateway::mutual(&files, &address.to_string(), &[]);
    let mut client = connect(gateway.address(), &pki.client("client"));
    send_whole(&mut client, MUCH);
    client.conn.send_close_notify();
    client.flush().unwrap();
    assert_eq!(read_whole(&mut client), MUCH);
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

/// A device without a battery for its clock: no client certificate is valid yet, and the own one is served all the
/// same.
#[test]
fn clock_at_1970_lets_no_client_certificate_in_and_serves_others() {
    let pki = Pki::new();
    let (files, upstream) = (pki.files(), echo());
    // The program itself would be a grandchild, which outlives its parent.
    let ask = ["-f", "@1970-01-02 00:00:00", "printenv", "LD_PRELOAD"];
    let Ok(library) = Command::new("faketime").args(ask).output() else {
        println!("skipped: there is no `faketime`");
        return;
    };
    let preload = format!("LD_PRELOAD={}", String::from_utf8(library.stdout).unwrap().trim());
    let dir = files.path();
    let args = ["--listen", "127.0.0.1:0", "--secret", dir.to_str().unwrap(), "--connect", &upstream];
    let args = [&args[..], &["--client-auth", "optional", "--admin", "127.0.0.1:0"]].concat();
    // The clock that waiting goes by is left alone: it is another one in the kernel too.
    let fake = [&preload, "FAKETIME=@1970-01-02 00:00:00", "FAKETIME_DONT_FAKE_MONOTONIC=1"];
    let gateway = Gateway::start_by("env", &fake, &args);
    let address = gateway.address();
    try_connect(address, &pki.client("client"))
        .and_then(|mut client| ping(&mut client))
        .expect_err("not valid yet");
    ping(&mut connect(address, &pki.config(None))).expect("served");
    let health = gateway.get("/healthz");
    assert!(health.starts_with("HTTP/1.1 200") && health.contains("is the clock right?"), "{health}");
}

#[test]
fn sigterm_ends_it_within_the_grace_and_says_who_was_cut() {
    let pki = Pki::new();
    let files = pki.files();
    let mut gateway = Gateway::mutual(&files, &echo(), &["--grace", "3"]);
    let [mut goes, mut stays] = [(); 2].map(|()| connect(gateway.address(), &pki.client("client")));
    [&mut goes, &mut stays].into_iter().for_each(|client| ping(client).unwrap());
    let begun = Instant::now();
    gateway.signal(Signal::TERM);
    gateway.says("ending on signal 15");
    ping(&mut goes).expect("still served within the grace");
    goes.conn.send_close_notify();
    goes.flush().unwrap();
    assert_eq!(read_whole(&mut goes), 0);
    let status = gateway.exit();
    println!("ended {:?} after SIGTERM with a grace of 3 s", begun.elapsed());
    assert!(status.success(), "{status}");
    gateway.says("stopped listening: 1 connections ended, 1 were cut");
    gateway.says(&format!("cut at the end: {}", stays.sock.local_addr().unwrap()));
    assert_eq!(stays.read(&mut [0]).unwrap_err().kind(), ErrorKind::UnexpectedEof);
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
    let upstream = TcpListener::bind("127.0.0.1:0").unwrap();
    let gateway = Gateway::mutual(&files, &upstream.local_addr().unwrap().to_string(), &[]);
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
    upstream.set_nonblocking(true).unwrap();
    assert_eq!(
        upstream.accept().unwrap_err().kind(),
        ErrorKind::WouldBlock,
        "the upstream saw nothing of it"
    );
    upstream.set_nonblocking(false).unwrap();
    start(move || upstream.incoming().for_each(|connection| echo_on(&connection.unwrap())));
    ping(&mut connect(address, &pki.client("client"))).expect("others are served");
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
    let listener = UnixListener::bind(&inside).unwrap();
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
    let mut client = StreamOwned::new(tls, socket);
    ping(&mut client).unwrap();
    gateway.signal(Signal::TERM);
    // In its grace; by its name, the place is free for the next one.
    eventually(LIMIT, "cleaned up", || !outside.exists());
    ping(&mut client).expect("it has its grace");
    let _successor = run();
    drop(client);
    gateway.exit();
    UnixStream::connect(&outside).expect("the file of the successor stays");
}

#[test]
fn descriptors_that_are_few_limit_connections_and_not_the_withdrawal_of_trust() {
    let pki = Pki::new();
    let (files, other) = (Mount::new(), Ca::new("other clients").unwrap());
    pki.put(&files, &[pki.clients.cert_pem(), other.cert_pem()].concat());
    let (secret, upstream) = (files.path(), echo());
    let args = ["--listen", "127.0.0.1:0", "--secret", secret.to_str().unwrap(), "--connect", &upstream];
    let args = [&args[..], &["--client-auth", "required", "--grace", "1"]].concat();
    let gateway = Gateway::start_by("sh", &["-c", "ulimit -n 104; exec \"$0\" \"$@\""], &args);
    gateway.says("suffice for 20 connections at a time, not for 1024");
    let of_other = pki.config(Some(&other.client("old").issue().unwrap()));
    let mut removed = connect(gateway.address(), &of_other);
    ping(&mut removed).unwrap();
    let _silent: Vec<_> = (0..200).map(|_| TcpStream::connect(gateway.address()).unwrap()).collect();
    pki.put(&files, pki.clients.cert_pem());
    assert_eq!(removed.read(&mut [0]).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    assert_eq!(gateway.lines_with("Too many open files"), [""; 0], "there was one for everything else");
}

#[test]
fn log_that_nobody_reads_holds_up_neither_the_withdrawal_of_trust_nor_the_end() {
    let pki = Pki::new();
    let (files, other, dir) = (Mount::new(), Ca::new("other clients").unwrap(), tempfile::tempdir().unwrap());
    pki.put(&files, &[pki.clients.cert_pem(), other.cert_pem()].concat());
    let (path, secret, upstream) = (dir.path().join("socket"), files.path(), echo());
    let mut command = Command::new(binary());
    command.args(["--listen", &format!("unix:{}", path.display()), "--secret"]).arg(&secret);
    command.args(["--connect", &upstream, "--client-auth", "required", "--grace", "1"]);
    let mut process = Unheard(command.env("RUST_LOG", "debug").stderr(Stdio::piped()).spawn().unwrap());
    eventually(LIMIT, "it listens", || UnixStream::connect(&path).is_ok());
    // A line each, until the pipe is full, and the queue of the program.
    let to = path.clone();
    let flood = start(move || {
        for _ in 0..3_000 {
            UnixStream::connect(&to).unwrap().write_all(b"GET / HTTP/1.1\r\n\r\n").ok();
        }
    });
    eventually(LIMIT, "all were taken", || flood.is_finished());
    let socket = UnixStream::connect(&path).unwrap();
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    let config = pki.config(Some(&other.client("old").issue().unwrap()));
    let tls = ClientConnection::new(config, ServerName::try_from("localhost").unwrap()).unwrap();
    let mut client = StreamOwned::new(tls, socket);
    ping(&mut client).unwrap();
    pki.put(&files, pki.clients.cert_pem());
    assert_eq!(client.read(&mut [0]).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    rustix::process::kill_process(Pid::from_child(&process.0), Signal::TERM).unwrap();
    let mut status = None;
    eventually(LIMIT, "it ends", || {
        status = process.0.try_wait().unwrap();
        status.is_some()
    });
    assert!(status.unwrap().success());
}

#[test]
fn second_signal_does_not_wait_for_the_grace() {
    let pki = Pki::new();
    let files = pki.files();
    let mut gateway = Gateway::mutual(&files, &echo(), &["--grace", "3600"]);
    let mut client = connect(gateway.address(), &pki.client("client"));
    ping(&mut client).unwrap();
    gateway.signal(Signal::TERM);
    gateway.says("ending on signal");
    ping(&mut client).expect("it has its grace");
    gateway.signal(Signal::INT);
    assert_eq!(gateway.exit().code(), Some(1));
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

/// Sockets of three parties, two of them in this process.
fn allow_many_descriptors() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(16_384, |hard| hard.min(16_384));
    if limit.current.is_some_and(|soft| soft < wanted) {
        let more = Rlimit { current: Some(wanted), maximum: limit.maximum };
        rustix::process::setrlimit(Resource::Nofile, more).unwrap();
    }
}

const WORKERS: usize = 16;
