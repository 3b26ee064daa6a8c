//! Both sides rotate: trust that overlaps refuses nobody, and each generation keeps what was configured.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "test code outside of test functions")]

mod common;

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use common::tls::Server;
use common::{Mount, Pair, SOON};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, HandshakeKind, Stream};
use rustls_reload::issue::Ca;
use rustls_reload::{ClientAuth, Reloader, ServerRoots};

/// A party with its files and its reloader: a server that verifies clients, or a client.
struct Party {
    mount: Mount,
    reloader: Reloader,
}

impl Party {
    fn server(pair: &Pair, ca: &str) -> Self {
        let mount = Mount::new();
        mount.swap_with_ca(pair, ca);
        let reloader = Reloader::builder(mount.paths()).client_auth(ClientAuth::Required).alpn(["echo"]);
        Self { reloader: reloader.start().unwrap(), mount }
    }

    fn client(pair: &Pair, ca: &str) -> Self {
        let mount = Mount::new();
        mount.swap_with_ca(pair, ca);
        let reloader = Reloader::builder(mount.paths()).server_roots(ServerRoots::FileOnly);
        Self { reloader: reloader.client_alpn(["echo"]).start().unwrap(), mount }
    }

    /// Puts new files in place, and waits until they are used.
    fn rotate(&self, pair: &Pair, ca: &str) {
        let next = self.reloader.store().number() + 1;
        self.mount.swap_with_ca(pair, ca);
        self.reloader.wait_for(next, SOON).expect("published");
    }

    fn config(&self) -> Arc<ClientConfig> {
        self.reloader.client_config().expect("a client side was asked for")
    }
}

#[test]
fn client_of_a_rotating_server_with_a_rotating_certificate_never_fails() {
    let (mut server_ca, client_ca) = (Ca::new("servers 0").unwrap(), Ca::new("clients").unwrap());
    let server_pair = |ca: &Ca| Pair::from(ca.server(&["localhost"]).issue().unwrap());
    let client_pair = || Pair::from(client_ca.client("client").issue().unwrap());
    let server = Party::server(&server_pair(&server_ca), client_ca.cert_pem());
    let client = Party::client(&client_pair(), server_ca.cert_pem());
    let address = Server::start(&server.reloader).address;

    let (stop, shaken) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let connect = {
        let (stop, shaken, reloader) = (Arc::clone(&stop), Arc::clone(&shaken), client.reloader.clone());
        move || {
            while !stop.load(Ordering::Relaxed) {
                connect(address, reloader.client_config().unwrap()).expect("no connection fails");
                shaken.fetch_add(1, Ordering::Relaxed);
            }
        }
    };
    let connecting = thread::Builder::new().spawn(connect).unwrap();
    for round in 1..=10 {
        let next = Ca::new(&format!("servers {round}")).unwrap();
        // The overlap: trust both, then show the new one, then trust it alone.
        client.rotate(&client_pair(), &[server_ca.cert_pem(), next.cert_pem()].concat());
        let before = shaken.load(Ordering::Relaxed);
        common::eventually(SOON, "connections with the old trust have ended", || {
            shaken.load(Ordering::Relaxed) > before + 1
        });
        server.rotate(&server_pair(&next), client_ca.cert_pem());
        let before = shaken.load(Ordering::Relaxed);
        common::eventually(SOON, "connections with the old certificate have ended", || {
            shaken.load(Ordering::Relaxed) > before + 1
        });
        client.rotate(&client_pair(), next.cert_pem());
        server_ca = next;
    }
    stop.store(true, Ordering::Relaxed);
    connecting.join().expect("no connection failed");
    assert!(shaken.load(Ordering::Relaxed) > 40);
}

/// old -> old + new -> new, with clients of both all the time: a refusal is right only where the trust of that
/// moment calls for it.
#[test]
fn overlap_of_client_cas_refuses_nobody_who_is_trusted() {
    let servers = Ca::new("servers").unwrap();
    let (old, new) = (Ca::new("clients old").unwrap(), Ca::new("clients new").unwrap());
    let pair = || Pair::from(servers.server(&["localhost"]).issue().unwrap());
    let server = Party::server(&pair(), old.cert_pem());
    let address = Server::start(&server.reloader).address;
    let stop = Arc::new(AtomicBool::new(false));
    // Trusted in the generations: old in 1 and 2, new in 2 and 3.
    let clients: Vec<_> = [(&old, [1, 2]), (&new, [2, 3])]
        .map(|(ca, trusted)| {
            let client = Party::client(&Pair::from(ca.client("c").issue().unwrap()), servers.cert_pem());
            let (stop, reloader) = (Arc::clone(&stop), server.reloader.clone());
            let run = move || {
                let (mut admitted, mut refused) = (0_u32, 0_u32);
                while !stop.load(Ordering::Relaxed) {
                    let before = reloader.store().number();
                    let result = connect(address, client.config());
                    let after = reloader.store().number();
                    let trusted = [before, after].map(|number| trusted.contains(&number));
                    match result {
                        Ok(_) => assert_ne!(trusted, [false, false], "admitted without trust"),
                        Err(ref error) => assert_ne!(trusted, [true, true], "refused with trust: {error}"),
                    }
                    admitted += u32::from(result.is_ok());
                    refused += u32::from(result.is_err());
                }
                (admitted, refused)
            };
            thread::Builder::new().spawn(run).unwrap()
        })
        .into();
    for ca in [[old.cert_pem(), new.cert_pem()].concat(), new.cert_pem().to_owned()] {
        thread::park_timeout(std::time::Duration::from_millis(300));
        server.rotate(&pair(), &ca);
    }
    thread::park_timeout(std::time::Duration::from_millis(300));
    stop.store(true, Ordering::Relaxed);
    for client in clients {
        let (admitted, refused) = client.join().expect("each answer was right");
        assert!(admitted > 3 && refused > 3, "both happened: {admitted}, {refused}");
    }
}

#[test]
fn what_was_configured_survives_a_hundred_rotations() {
    let ca = Ca::new("ca").unwrap();
    let pair = || Pair::from(ca.server(&["localhost"]).issue().unwrap());
    let mount = Mount::new();
    mount.swap_with_ca(&pair(), ca.cert_pem());
    let reloader = Reloader::builder(mount.paths())
        .client_auth(ClientAuth::Required)
        .alpn(["h2", "http/1.1"])
        .adjust_server(|config| {
            config.max_fragment_size = Some(4096);
            config.send_tls13_tickets = 1;
            // What must not survive: sessions would outlive their trust.
            config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
        })
        .start()
        .unwrap();
    for next in 2..=101 {
        // Every fifth rotation withdraws a CA too.
        let other = Ca::new("another").unwrap();
        let trust =
            if next % 5 == 0 { [ca.cert_pem(), other.cert_pem()].concat() } else { ca.cert_pem().into() };
        mount.swap_with_ca(&pair(), &trust);
        let generation = reloader.wait_for(next, SOON).expect("published");
        let config = generation.server_config();
        assert_eq!(config.alpn_protocols, [b"h2".to_vec(), b"http/1.1".to_vec()]);
        assert_eq!((config.max_fragment_size, config.send_tls13_tickets), (Some(4096), 1));
        assert!(
            config.session_storage.can_cache() && config.ticketer.enabled(),
            "the scope comes after the hook"
        );
    }
    let server = Server::start(&reloader);
    let without = Party::client(&pair(), ca.cert_pem());
    connect(server.address, without.config())
        .expect_err("clients are still verified, and ALPN still refused");
}

#[test]
fn client_resumes_until_trust_or_certificate_changes() {
    let (ca, other) = (Ca::new("ca").unwrap(), Ca::new("other").unwrap());
    let server_pair = || Pair::from(ca.server(&["localhost"]).issue().unwrap());
    let first = Pair::from(ca.client("client").issue().unwrap());
    let server = Party::server(&server_pair(), ca.cert_pem());
    let client = Party::client(&first, ca.cert_pem());
    let address = Server::start(&server.reloader).address;
    let kind = || connect(address, client.config()).unwrap();
    let (full, resumed) = (HandshakeKind::Full, HandshakeKind::Resumed);
    assert_eq!((kind(), kind()), (full, resumed));
    server.rotate(&server_pair(), ca.cert_pem());
    assert_eq!(kind(), resumed, "the server's renewal ends nothing");
    client.rotate(&first, &[ca.cert_pem(), other.cert_pem()].concat());
    assert_eq!((kind(), kind()), (full, resumed), "another trust begins anew");
    client.rotate(
        &Pair::from(ca.client("client").issue().unwrap()),
        &[ca.cert_pem(), other.cert_pem()].concat(),
    );
    assert_eq!((kind(), kind()), (full, resumed), "another certificate begins anew");
}

/// One byte there and back, which is the proof of having been let in.
fn connect(address: SocketAddr, config: Arc<ClientConfig>) -> io::Result<HandshakeKind> {
    let mut connection = TcpStream::connect(address)?;
    connection.set_nodelay(true)?;
    connection.set_read_timeout(Some(SOON))?;
    let name = ServerName::try_from("localhost").unwrap();
    let mut tls = ClientConnection::new(config, name).map_err(io::Error::other)?;
    let mut stream = Stream::new(&mut tls, &mut connection);
    stream.write_all(b"!")?;
    stream.read_exact(&mut [0])?;
    Ok(tls.handshake_kind().expect("the handshake is done"))
}
