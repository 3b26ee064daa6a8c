//! Connections live through rotations, and end when they should: slow clients at the deadline, those under
//! withdrawn trust when it is withdrawn, all others when they like.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "test code outside of test functions")]

mod common;

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::Builder;
use std::time::{Duration, Instant};

use common::log::Print;
use common::tls::{client_config, serve, trusting};
use common::{Clock, Mount, Pair, Pki, SOON, child, eventually};
use log::LevelFilter;
use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, DEFAULT_VERSIONS, HandshakeKind, StreamOwned};
use rustls_reload::issue::{Ca, LeafBuilder};
use rustls_reload::metrics::{HandshakeFailure, Metrics, Subject};
use rustls_reload::{ClientAuth, Drain, Paths, Pending, Reloader, ServerRoots, TlsListener, TlsStream};

/// An echo server with a thread a connection.
struct Server {
    listener: TlsListener,
    reloader: Reloader,
    counts: Arc<Counts>,
}

impl Server {
    fn start(paths: Paths, client_auth: ClientAuth, limit: Duration) -> Self {
        let counts = Arc::<Counts>::default();
        let builder = Reloader::builder(paths).client_auth(client_auth).allow_absent();
        let reloader = builder.metrics(Arc::<Counts>::clone(&counts)).start().unwrap();
        let listener = TlsListener::bind("127.0.0.1:0", &reloader).unwrap();
        serve(&listener, limit, answer);
        Self { listener, reloader, counts }
    }

    fn plain(mount: &Mount) -> Self {
        Self::start(mount.paths(), ClientAuth::None, SOON)
    }

    fn address(&self) -> SocketAddr {
        self.listener.local_addr().unwrap()
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address()).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        stream
    }

    /// A client that has echoed a byte.
    fn client(&self, config: &Arc<ClientConfig>) -> io::Result<Client> {
        let name = ServerName::try_from("localhost").unwrap();
        let tls = ClientConnection::new(Arc::clone(config), name).map_err(io::Error::other)?;
        let mut client = StreamOwned::new(tls, self.connect());
        echo(&mut client)?;
        Ok(client)
    }

    /// Swaps in new files and waits until they are served.
    fn swap<T>(&self, swap: impl FnOnce() -> T) {
        let next = self.reloader.store().number() + 1;
        swap();
        self.reloader.wait_for(next, SOON).expect("published");
    }
}

type Client = StreamOwned<ClientConnection, TcpStream>;

/// Answers each byte by the generation that the connection runs on.
fn answer(mut tls: TlsStream) -> io::Result<()> {
    while tls.read(&mut [0])? != 0 {
        let flags = u8::from(tls.is_stale()) << 1 | u8::from(tls.is_draining());
        tls.write_all(&[u8::try_from(tls.generation()).unwrap(), flags])?;
    }
    tls.close(SOON)
}

/// The generation of the connection, whether it is stale, whether it was asked to end.
fn echo(client: &mut Client) -> io::Result<(u8, bool, bool)> {
    let mut answer = [0; 2];
    client.write_all(b"!")?;
    client.read_exact(&mut answer)?;
    Ok((answer[0], answer[1] & 2 != 0, answer[1] & 1 != 0))
}

/// Handshakes, as metrics hear of them.
#[derive(Default)]
struct Counts {
    done: Mutex<Vec<HandshakeKind>>,
    failed: Mutex<BTreeMap<HandshakeFailure, u32>>,
}

impl Counts {
    fn failed(&self) -> BTreeMap<HandshakeFailure, u32> {
        self.failed.lock().clone()
    }

    /// Waits for `count` failures in all, and these are what they were.
    fn expect(&self, expected: &[(HandshakeFailure, u32)]) {
        let count = expected.iter().map(|(_, count)| count).sum();
        eventually(SOON, "as many failures", || self.failed().values().sum::<u32>() >= count);
        assert_eq!(self.failed(), expected.iter().copied().collect());
    }
}

impl Metrics for Counts {
    fn handshake(&self, _: &Subject, kind: HandshakeKind) {
        self.done.lock().push(kind);
    }

    fn handshake_failure(&self, _: &Subject, failure: HandshakeFailure) {
        *self.failed.lock().entry(failure).or_default() += 1;
    }
}

/// Two CAs for clients, with a client of each.
struct Clients {
    pki: Pki,
    pair: Pair,
    one: Ca,
    other: Ca,
}

impl Clients {
    fn new() -> Self {
        let pki = Pki::new();
        let pair = pki.pair(1);
        Self { pki, pair, one: Ca::new("clients one").unwrap(), other: Ca::new("clients other").unwrap() }
    }

    fn both(&self) -> String {
        [self.one.cert_pem(), self.other.cert_pem()].concat()
    }

    fn server(&self, mount: &Mount) -> Server {
        mount.swap_with_ca(&self.pair, &self.both());
        Server::start(mount.paths(), ClientAuth::Required, SOON)
    }

    fn config(&self, ca: &Ca) -> Arc<ClientConfig> {
        self.showing(ca.client("client"))
    }

    fn showing(&self, client: LeafBuilder<'_>) -> Arc<ClientConfig> {
        let issued = client.issue().unwrap();
        let config = trusting(self.pki.root().cert_der(), DEFAULT_VERSIONS);
        let config = config.with_client_auth_cert(issued.chain_der(), issued.key_der()).unwrap();
        Arc::new(config)
    }
}

#[test]
fn connection_keeps_its_generation_and_new_ones_get_the_new_one() {
    let pki = Pki::new();
    let mount = Mount::with(&pki.pair(1));
    let server = Server::plain(&mount);
    let config = client_config(pki.root().cert_der());
    let mut old = server.client(&config).unwrap();
    assert_eq!(echo(&mut old).unwrap(), (1, false, false));
    for round in 2..=5 {
        server.swap(|| mount.swap(&pki.pair(round)));
        let mut new = server.client(&config).unwrap();
        assert_eq!(echo(&mut new).unwrap(), (u8::try_from(round).unwrap(), false, false));
        assert_eq!(echo(&mut old).unwrap(), (1, true, false), "it lives on");
        let open = server.reloader.connections().by_generation();
        assert_eq!((open.get(&1), open.get(&round)), (Some(&1), Some(&1)), "{open:?}");
        drop(new);
    }
    eventually(SOON, "the others are gone", || server.reloader.connections().len() == 1);
    assert_eq!(server.reloader.connections().stale(), 1);
    assert_eq!(server.reloader.connections().list()[0].peer, Some(old.sock.local_addr().unwrap()));
    drop(old);
    assert!(server.reloader.connections().wait_idle(SOON));
}

#[test]
fn handshake_ends_at_its_deadline_however_the_bytes_are_spread() {
    let pki = Pki::new();
    let mount = Mount::with(&pki.pair(1));
    let limit = Duration::from_millis(400);
    let server = Server::start(mount.paths(), ClientAuth::None, limit);
    let config = client_config(pki.root().cert_der());
    let name = ServerName::try_from("localhost").unwrap();
    let mut hello = Vec::new();
    ClientConnection::new(config, name).unwrap().write_tls(&mut hello).unwrap();
    // The server begins as soon as it has accepted.
    let began = Instant::now();
    let mut slow = server.connect();
    slow.set_nodelay(true).unwrap();
    slow.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
    let mut sent = 0;
    // Always something new to read, at ten times the pace that a timeout for each read would allow.
    for byte in &hello {
        if slow.write_all(&[*byte]).is_err() {
            break;
        }
        sent += 1;
        match slow.read(&mut [0]) {
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            _ended => break,
        }
    }
    assert!(began.elapsed() >= limit, "{:?}", began.elapsed());
    assert!(sent < hello.len(), "all of it was taken");
    server.counts.expect(&[(HandshakeFailure::Timeout, 1)]);
    // Who does not say a word at all costs no more, and holds nobody else up.
    let _silent = server.connect();
    server.client(&client_config(pki.root().cert_der())).unwrap();
    server.counts.expect(&[(HandshakeFailure::Timeout, 2)]);
}

#[test]
fn what_is_not_tls_costs_one_counted_failure_and_a_few_bytes() {
    let pki = Pki::new();
    let mount = Mount::with(&pki.pair(1));
    let server = Server::plain(&mount);
    let inputs: [&[u8]; 4] =
        [b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", &[0; 60_000], b"SSH-2.0-OpenSSH_9.2\r\n", &[0xff; 64]];
    for input in inputs {
        let mut stream = server.connect();
        stream.write_all(input).unwrap();
        let mut answer = Vec::new();
        // A reset would be an error: the alert is to be read.
        stream.read_to_end(&mut answer).unwrap();
        assert!(answer.len() < 100, "{} bytes", answer.len());
        assert_eq!(answer.first(), Some(&0x15), "an alert");
    }
    // A port scan.
    drop(server.connect());
    server.counts.expect(&[(HandshakeFailure::Other, 4), (HandshakeFailure::PeerClosed, 1)]);
    assert!(server.reloader.connections().wait_idle(SOON));
}

#[test]
fn without_a_certificate_every_handshake_is_refused_and_counted() {
    let pki = Pki::new();
    let mount = Mount::new();
    let server = Server::plain(&mount);
    let config = client_config(pki.root().cert_der());
    assert!(server.client(&config).unwrap_err().to_string().contains("alert"));
    server.counts.expect(&[(HandshakeFailure::NoCertificateForName, 1)]);
    server.swap(|| mount.swap(&pki.pair(1)));
    server.client(&config).unwrap();
}

#[test]
fn trust_that_is_withdrawn_during_the_handshake_is_withdrawn_for_it() {
    let clients = Clients::new();
    let mount = Mount::new();
    let server = clients.server(&mount);
    let shakes = |ca: &Ca| {
        let name = ServerName::try_from("localhost").unwrap();
        let tls = ClientConnection::new(clients.config(ca), name).unwrap();
        let mut client = StreamOwned::new(tls, server.connect());
        client.conn.write_tls(&mut client.sock).unwrap();
        // The answer of the server is there, ours with the certificate is not sent.
        while client.conn.is_handshaking() {
            client.conn.read_tls(&mut client.sock).unwrap();
            client.conn.process_new_packets().unwrap();
        }
        client
    };
    let (mut removed, mut stays) = (shakes(&clients.one), shakes(&clients.other));
    server.swap(|| mount.swap_with_ca(&clients.pair, clients.other.cert_pem()));
    assert!(echo(&mut removed).is_err());
    assert_eq!(echo(&mut stays).unwrap(), (1, true, false));
    server.counts.expect(&[(HandshakeFailure::UnknownCa, 1)]);
}

#[test]
fn removed_ca_ends_exactly_the_connections_under_it() {
    let clients = Clients::new();
    let mount = Mount::new();
    let server = clients.server(&mount);
    let open = |ca: &Ca| -> Vec<_> {
        let config = clients.config(ca);
        (0..10).map(|_| server.client(&config).unwrap()).collect()
    };
    let (mut removed, mut stay) = (open(&clients.one), open(&clients.other));
    assert!(
        server.counts.done.lock().contains(&HandshakeKind::Resumed),
        "sessions that were resumed are judged too"
    );

    let connections = server.reloader.connections();
    let nothing = connections.drain(Drain::Withdrawn, SOON);
    assert_eq!((nothing.ended, nothing.cut.len()), (0, 0), "nothing was withdrawn");
    server.swap(|| mount.swap_with_ca(&clients.pair, clients.other.cert_pem()));
    let drained = connections.drain(Drain::Withdrawn, Duration::from_millis(50));
    assert_eq!((drained.ended, drained.cut.len()), (0, 10));
    assert!(removed.iter_mut().all(|client| echo(client).is_err()));
    for client in &mut stay {
        assert_eq!(echo(client).unwrap(), (1, true, false), "unharmed");
    }
    eventually(SOON, "only those", || connections.len() == 10);
}

#[test]
fn revoked_client_ends_although_its_ca_stays() {
    let clients = Clients::new();
    let mount = Mount::new();
    let put = |revoked: &[u64]| {
        let crl = clients.one.crl(revoked).number(1 + u64::try_from(revoked.len()).unwrap()).issue().unwrap();
        let (chain, key) = (&clients.pair.chain, &clients.pair.key);
        let files = [
            ("tls.crt", chain.as_str()),
            ("tls.key", key),
            ("ca.crt", clients.one.cert_pem()),
            ("crl", crl.pem()),
        ];
        mount.put(&files);
    };
    put(&[]);
    let server = Server::start(mount.paths().with_crl(mount.path().join("crl")), ClientAuth::Required, SOON);
    let config = |serial| clients.showing(clients.one.client("client").serial(serial));
    let (mut revoked, mut good) = (server.client(&config(41)).unwrap(), server.client(&config(42)).unwrap());
    server.swap(|| put(&[41]));
    let drained = server.reloader.connections().drain(Drain::Withdrawn, Duration::ZERO);
    assert_eq!(drained.cut.len(), 1);
    assert!(echo(&mut revoked).is_err());
    echo(&mut good).unwrap();
}

#[test]
fn session_of_an_expired_client_certificate_is_not_resumed() {
    let clients = Clients::new();
    let mount = Mount::new();
    mount.swap_with_ca(&clients.pair, clients.one.cert_pem());
    let now = rustls::pki_types::UnixTime::now().as_secs();
    let clock = Clock::at(now);
    let counts = Arc::<Counts>::default();
    let reloader = Reloader::builder(mount.paths())
        .client_auth(ClientAuth::Required)
        .time_provider(Arc::<Clock>::clone(&clock))
        .metrics(Arc::<Counts>::clone(&counts))
        .start()
        .unwrap();
    let listener = TlsListener::bind("127.0.0.1:0", &reloader).unwrap();
    serve(&listener, SOON, answer);
    let server = Server { listener, reloader, counts };
    let end = i64::try_from(now).unwrap() + 60;
    let config = clients.showing(clients.one.client("client").validity(end - 3600, end));
    for _ in 0..2 {
        server.client(&config).unwrap();
    }
    assert_eq!(*server.counts.done.lock(), [HandshakeKind::Full, HandshakeKind::Resumed]);
    clock.set(now + 61);
    // Of a full handshake, in which it could have shown a new one.
    let refused = server.client(&config).unwrap_err().to_string();
    assert!(refused.contains("CertificateExpired"), "{refused}");
    server.counts.expect(&[(HandshakeFailure::Expired, 1)]);
}

#[test]
fn drain_asks_first_and_cuts_later() {
    let pki = Pki::new();
    let mount = Mount::with(&pki.pair(1));
    let server = Server::plain(&mount);
    let config = client_config(pki.root().cert_der());
    let mut first = server.client(&config).unwrap();
    server.swap(|| mount.swap(&pki.pair(2)));
    let mut second = server.client(&config).unwrap();
    server.swap(|| mount.swap(&pki.pair(3)));
    let mut third = server.client(&config).unwrap();

    let connections = server.reloader.connections().clone();
    let drain = Builder::new().spawn({
        let connections = connections.clone();
        move || connections.drain(Drain::OlderThan(3), SOON)
    });
    eventually(SOON, "asked", || echo(&mut first).unwrap() == (1, true, true));
    assert_eq!(echo(&mut second).unwrap(), (2, true, true));
    assert_eq!(echo(&mut third).unwrap(), (3, false, false), "not asked");
    drop((first, second));
    let drained = drain.unwrap().join().unwrap();
    assert_eq!((drained.ended, drained.cut.len()), (2, 0), "as soon as they are gone");

    server.swap(|| mount.swap(&pki.pair(4)));
    let drained = connections.drain(Drain::Stale, Duration::from_millis(20));
    assert_eq!((drained.ended, drained.cut[0].generation), (0, Some(3)));
    assert!(echo(&mut third).is_err());
    assert!(connections.wait_idle(SOON));
    assert_eq!(connections.drain(Drain::All, SOON).ended, 0);
}

#[test]
fn shutdown_lets_live_ones_finish_and_says_what_was_cut() {
    let pki = Pki::new();
    let mount = Mount::with(&pki.pair(1));
    let server = Server::plain(&mount);
    let other = TlsListener::bind("127.0.0.1:0", &server.reloader).unwrap();
    serve(&other, SOON, answer);
    let config = client_config(pki.root().cert_der());
    let mut busy = server.client(&config).unwrap();
    let polite = server.client(&config).unwrap();
    let _shaking = server.connect();
    eventually(SOON, "all are known", || server.reloader.connections().len() == 3);

    let (listener, address) = (server.listener.clone(), server.address());
    let end = Builder::new().spawn(move || listener.shutdown(Duration::from_secs(2))).unwrap();
    eventually(SOON, "asked", || echo(&mut busy).unwrap() == (1, false, true));
    assert!(TcpStream::connect(address).is_err());
    drop(polite);
    let drained = end.join().unwrap();
    assert_eq!((drained.ended, drained.cut.len()), (1, 2), "{drained:?}");
    assert!(echo(&mut busy).is_err());
    assert!(server.listener.accept().unwrap().is_none());
    assert!(server.listener.incoming().next().is_none());
    // The threads of those that were cut are on their way.
    assert!(server.reloader.connections().wait_idle(SOON));
    assert_eq!(server.listener.shutdown(SOON).ended, 0, "again");
    assert!(TcpStream::connect(other.local_addr().unwrap()).is_ok(), "the other one goes on");
}

#[test]
fn shutdown_wakes_every_thread_that_accepts() {
    let pki = Pki::new();
    let mount = Mount::with(&pki.pair(1));
    let reloader = Reloader::builder(mount.paths()).start().unwrap();
    let listener = TlsListener::bind("127.0.0.1:0", &reloader).unwrap();
    let full = TlsListener::bind("127.0.0.1:0", &reloader).unwrap();
    full.set_max_connections(1);
    let _taken = TcpStream::connect(full.local_addr().unwrap()).unwrap();
    let _pending = full.accept().unwrap();
    let accept = |listener: &TlsListener| {
        let listener = listener.clone();
        Builder::new().spawn(move || listener.accept().unwrap().is_none()).unwrap()
    };
    let threads = [accept(&listener), accept(&listener), accept(&full), accept(&full)];
    listener.shutdown(SOON);
    full.shutdown(Duration::ZERO);
    for thread in threads {
        assert!(thread.join().unwrap());
    }
}

#[test]
fn at_the_cap_clients_wait_their_turn() {
    let pki = Pki::new();
    let mount = Mount::with(&pki.pair(1));
    let server = Server::plain(&mount);
    server.listener.set_max_connections(3);
    let config = client_config(pki.root().cert_der());
    let mut open: Vec<_> = (0..3).map(|_| server.client(&config).unwrap()).collect();
    let (sender, served) = crossbeam_channel::bounded(1);
    let waits = {
        let (config, address) = (Arc::clone(&config), server.address());
        move || {
            let name = ServerName::try_from("localhost").unwrap();
            let tls = ClientConnection::new(config, name).unwrap();
            let mut client = StreamOwned::new(tls, TcpStream::connect(address).unwrap());
            sender.send(echo(&mut client).is_ok()).unwrap();
        }
    };
    Builder::new().spawn(waits).map(drop).unwrap();
    for client in &mut open {
        echo(client).unwrap();
    }
    assert!(served.is_empty());
    assert_eq!(server.reloader.connections().len(), 3);
    drop(open.pop());
    assert_eq!(served.recv_timeout(SOON), Ok(true));
}

#[test]
fn cap_holds_for_several_threads_that_accept() {
    let pki = Pki::new();
    let mount = Mount::with(&pki.pair(1));
    let reloader = Reloader::builder(mount.paths()).start().unwrap();
    let listener = TlsListener::bind("127.0.0.1:0", &reloader).unwrap();
    listener.set_max_connections(1);
    let (open, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let accept = || {
        let (listener, open, most) = (listener.clone(), Arc::clone(&open), Arc::clone(&most));
        let accept = move || {
            while let Some(pending) = listener.accept().unwrap() {
                most.fetch_max(open.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                std::thread::yield_now();
                open.fetch_sub(1, Ordering::SeqCst);
                drop(pending);
            }
        };
        Builder::new().spawn(accept).unwrap()
    };
    let threads: Vec<_> = (0..8).map(|_| accept()).collect();
    let address = listener.local_addr().unwrap();
    for _ in 0..100 {
        let _at_once: Vec<_> = (0..8).map(|_| TcpStream::connect(address).unwrap()).collect();
    }
    listener.shutdown(Duration::ZERO);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(most.load(Ordering::SeqCst), 1);
}

#[test]
fn nothing_escapes_a_shutdown_and_its_port_is_free() {
    let pki = Pki::new();
    let mount = Mount::with(&pki.pair(1));
    let reloader = Reloader::builder(mount.paths()).start().unwrap();
    for round in 0..500 {
        // An address that no other test listens on, and no client has: a port that has become free may be taken
        // by either, and a client that has it by chance connects to itself.
        let listener = TlsListener::bind("127.0.0.77:0", &reloader).unwrap();
        let address = listener.local_addr().unwrap();
        let accepting = listener.clone();
        let accept = move || accepting.incoming().map(Result::unwrap).collect::<Vec<_>>();
        let accepted = Builder::new().spawn(accept).unwrap();
        let clients: Vec<_> = (0..round % 4).map(|_| TcpStream::connect(address).unwrap()).collect();
        let drained = listener.shutdown(Duration::ZERO);
        assert!(TcpStream::connect(address).is_err(), "round {round}");
        let accepted = accepted.join().unwrap();
        assert_eq!(accepted.len(), drained.cut.len(), "round {round}: not all of them were cut");
        drop((accepted, clients));
    }
}

#[test]
fn unix_socket_serves_as_tcp_does() {
    let pki = Pki::new();
    let mount = Mount::with(&pki.pair(1));
    let reloader = Reloader::builder(mount.paths()).start().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let listener = TlsListener::bind_unix(&path, &reloader).unwrap();
    serve(&listener, SOON, answer);
    let error = TlsListener::bind_unix(&path, &reloader).unwrap_err();
    assert!(error.to_string().starts_with(path.to_str().unwrap()), "{error}");
    let name = ServerName::try_from("localhost").unwrap();
    let tls = ClientConnection::new(client_config(pki.root().cert_der()), name).unwrap();
    let mut client = StreamOwned::new(tls, UnixStream::connect(&path).unwrap());
    client.write_all(b"!").unwrap();
    client.read_exact(&mut [0; 2]).unwrap();
    assert_eq!(reloader.connections().list()[0].peer, None);
    assert_eq!(listener.local_addr(), None);
    client.conn.send_close_notify();
    client.flush().unwrap();
    assert_eq!(client.read(&mut [0]).unwrap(), 0, "the server says goodbye");
}

#[test]
fn both_sides_of_a_reloader_meet_in_a_listener() {
    let clients = Clients::new();
    let (mount, mine) = (Mount::new(), Mount::new());
    let server = clients.server(&mount);
    let issued = Pair::from(clients.one.client("client").issue().unwrap());
    mine.swap_with_ca(&issued, clients.pki.root().cert_pem());
    let client = Reloader::builder(mine.paths()).server_roots(ServerRoots::FileOnly).start().unwrap();
    server.client(&client.client_config().unwrap()).unwrap();
}

#[test]
#[cfg(target_os = "linux")]
fn descriptors_that_run_out_neither_end_nor_spin_the_accepting_thread() {
    const NAME: &str = "descriptors_that_run_out_neither_end_nor_spin_the_accepting_thread";
    if child::plays(NAME) {
        return out_of_descriptors();
    }
    let shell = ["sh", "-c", "ulimit -n 40; exec \"$0\" \"$@\""];
    let status = child::command(&shell, NAME, NAME).status().unwrap();
    assert!(status.success());
}

#[cfg(target_os = "linux")]
fn out_of_descriptors() {
    common::log::keep(LevelFilter::Warn, Print::Nowhere);
    let pki = Pki::new();
    let mount = Mount::with(&pki.pair(1));
    // No handshake ends meanwhile, and no file is read: each would give descriptors back for a moment.
    let server = Server::start(mount.paths(), ClientAuth::None, 12 * SOON);
    server.reloader.shutdown();
    let config = client_config(pki.root().cert_der());
    let mut open = Vec::new();
    while let Ok(stream) = TcpStream::connect(server.address()) {
        open.push(stream);
    }
    eventually(SOON, "said", || !common::log::warnings("cannot accept").is_empty());
    let (began, spent) = (Instant::now(), cpu());
    while began.elapsed() < Duration::from_secs(1) {
        std::thread::park_timeout(Duration::from_millis(100));
    }
    // A loop that spins would use all of the second.
    assert!(cpu() - spent < Duration::from_millis(300), "{:?}", cpu() - spent);
    assert_eq!(common::log::warnings("cannot accept").len(), 1, "once, not once a try");
    drop(open);
    server.client(&config).unwrap();
}

/// User and system time of this process. Needs no descriptor.
#[cfg(target_os = "linux")]
fn cpu() -> Duration {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    spent.try_into().unwrap()
}

#[test]
fn pending_that_is_dropped_closes_the_connection() {
    let pki = Pki::new();
    let mount = Mount::with(&pki.pair(1));
    let reloader = Reloader::builder(mount.paths()).start().unwrap();
    let listener = TlsListener::bind("127.0.0.1:0", &reloader).unwrap();
    let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let pending: Pending = listener.accept().unwrap().unwrap();
    assert_eq!(pending.peer_addr(), Some(stream.local_addr().unwrap()));
    assert_eq!(reloader.connections().len(), 1);
    drop(pending);
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    assert!(reloader.connections().is_empty());
}
