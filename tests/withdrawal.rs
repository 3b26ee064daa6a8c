//! Trust that comes and goes under clients that connect without pause: after each drain, nobody is served whose CA
//! is gone, and everybody else is.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "test code outside of test functions"
)]

mod common;

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::Builder;
use std::time::Duration;

use common::tls::trusting;
use common::{Mount, Pki, SOON, eventually};
use parking_lot::Mutex;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, HandshakeKind, StreamOwned, SupportedProtocolVersion};
use rustls_reload::issue::Ca;
use rustls_reload::{ClientAuth, Drain, Reloader, TlsListener, TlsStream};

#[test]
fn nobody_of_a_withdrawn_ca_is_served_after_a_drain() {
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        toggle(version, 12);
    }
}

#[test]
#[ignore = "two thousand rounds take some minutes"]
fn nobody_of_a_withdrawn_ca_is_served_after_any_of_many_drains() {
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        toggle(version, 1_000);
    }
}

fn toggle(version: &'static SupportedProtocolVersion, rounds: u64) {
    let pki = Pki::new();
    let pair = pki.pair(1);
    let (toggled, stays) = (Ca::new("toggled").unwrap(), Ca::new("stays").unwrap());
    let both = [toggled.cert_pem(), stays.cert_pem()].concat();
    let mount = Mount::new();
    mount.swap_with_ca(&pair, &both);
    let reloader = Reloader::builder(mount.paths()).client_auth(ClientAuth::Required).start().unwrap();
    let listener = TlsListener::bind("127.0.0.1:0", &reloader).unwrap();
    let address = listener.local_addr().unwrap();
    let (held, resumed) = (Arc::<Mutex<Vec<TlsStream>>>::default(), Arc::new(AtomicU64::new(0)));
    let accept = || {
        let (listener, held, resumed) = (listener.clone(), Arc::clone(&held), Arc::clone(&resumed));
        let accept = move || {
            for pending in listener.incoming() {
                let Ok(mut tls) = pending.unwrap().handshake(SOON) else { continue };
                let again = tls.tls().handshake_kind() == Some(HandshakeKind::Resumed);
                resumed.fetch_add(u64::from(again), Ordering::Relaxed);
                if tls.write_all(b"!").is_ok() {
                    held.lock().push(tls);
                }
            }
        };
        Builder::new().spawn(accept).unwrap()
    };
    let servers = [accept(), accept()];

    let stop = Arc::new(AtomicBool::new(false));
    let issued = [&toggled, &stays].map(|ca| ca.client("client").issue().unwrap());
    let of_toggled = issued[0].leaf_der().clone();
    let clients = issued.map(|issued| {
        let builder = trusting(pki.root().cert_der(), &[version]);
        let config = Arc::new(builder.with_client_auth_cert(issued.chain_der(), issued.key_der()).unwrap());
        let (stop, done) = (Arc::clone(&stop), Arc::new(AtomicU64::new(0)));
        let counted = Arc::clone(&done);
        let connect = move || {
            let mut open = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                if let Ok(client) = connect(address, &config) {
                    counted.fetch_add(1, Ordering::Relaxed);
                    open.push(client);
                    open.truncate(3);
                }
            }
        };
        (Builder::new().spawn(connect).unwrap(), done)
    });

    let publish = |ca: &str| {
        let next = reloader.store().number() + 1;
        mount.swap_with_ca(&pair, ca);
        reloader.wait_for(next, SOON).expect("published");
    };
    let mut cut = 0;
    for round in 0..rounds {
        publish(stays.cert_pem());
        cut += reloader.connections().drain(Drain::Withdrawn, Duration::ZERO).cut.len();
        let served = std::mem::take(&mut *held.lock());
        for tls in served {
            let withdrawn = shown(&tls) == &of_toggled;
            let cut = is_cut(tls);
            assert!(cut || !withdrawn, "{version:?}, round {round}: still served");
            assert!(!cut || withdrawn, "{version:?}, round {round}: cut, though its CA is there");
        }
        publish(&both);
        // Some of both, for the next round.
        let before = clients.each_ref().map(|(_, done)| done.load(Ordering::Relaxed));
        eventually(SOON, "both connect", || {
            clients.iter().zip(before).all(|((_, done), before)| done.load(Ordering::Relaxed) > before)
        });
    }
    stop.store(true, Ordering::Relaxed);
    clients.into_iter().for_each(|(client, _)| client.join().unwrap());
    listener.shutdown(Duration::ZERO);
    servers.into_iter().for_each(|server| server.join().unwrap());
    held.lock().clear();
    let resumed = resumed.load(Ordering::Relaxed);
    println!("{version:?}: {cut} were cut in {rounds} rounds, {resumed} had resumed a session");
    assert!(cut > 0 && resumed > 0);
    assert!(reloader.connections().is_empty());
}

fn connect(
    address: SocketAddr,
    config: &Arc<ClientConfig>,
) -> io::Result<StreamOwned<ClientConnection, TcpStream>> {
    let tls = ClientConnection::new(Arc::clone(config), ServerName::try_from("localhost").unwrap());
    let socket = TcpStream::connect(address)?;
    socket.set_read_timeout(Some(SOON))?;
    let mut client = StreamOwned::new(tls.map_err(io::Error::other)?, socket);
    client.read_exact(&mut [0])?;
    Ok(client)
}

fn shown(tls: &TlsStream) -> &CertificateDer<'static> {
    tls.tls().peer_certificates().and_then(<[_]>::first).expect("it was asked for")
}

/// Whether the server's side is over by our hand.
fn is_cut(mut tls: TlsStream) -> bool {
    tls.set_nonblocking();
    tls.read(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::ConnectionAborted)
}
