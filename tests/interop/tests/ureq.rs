//! ureq as a client whose certificate and roots rotate.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "test code outside of test functions")]

mod common;
mod connector;

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use common::{Mount, Pair, Pki, SOON, leaf_of, provider, serves};
use connector::Reloading;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use rustls_reload::issue::Ca;
use rustls_reload::{Reloader, ServerRoots};
use ureq::Agent;
use ureq::unversioned::resolver::DefaultResolver;
use ureq::unversioned::transport::{Connector as _, TcpConnector};

#[test]
fn new_connection_shows_the_new_certificate_and_a_pooled_one_keeps_the_old() {
    let pki = Pki::new();
    let pairs = [1, 2].map(|serial| pki.client(serial));
    let mount = Mount::with_ca(&pairs[0], pki.root.cert_pem());
    let reloader = reloader(&mount);
    let address = serve(&pki, &pki.server(100));
    let (pooling, never_pooling) = (agent(&reloader, 3), agent(&reloader, 0));
    for agent in [&pooling, &never_pooling] {
        assert_eq!(shown(agent, address).unwrap(), *pairs[0].leaf, "before");
    }

    mount.swap_with_ca(&pairs[1], pki.root.cert_pem());
    serves(&reloader, &pairs[1]);

    assert_eq!(shown(&never_pooling, address).unwrap(), *pairs[1].leaf, "the same agent, a new connection");
    assert_eq!(shown(&agent(&reloader, 3), address).unwrap(), *pairs[1].leaf, "a new agent");
    assert_eq!(shown(&pooling, address).unwrap(), *pairs[0].leaf, "a connection that was kept");
}

#[test]
fn server_is_refused_once_its_ca_is_gone() {
    let pki = Pki::new();
    let pair = pki.client(1);
    let mount = Mount::with_ca(&pair, pki.root.cert_pem());
    let reloader = reloader(&mount);
    let address = serve(&pki, &pki.server(100));
    let agent = agent(&reloader, 0);
    assert_eq!(shown(&agent, address).unwrap(), *pair.leaf);

    let other = Ca::new("another root").unwrap();
    let renewed = pki.client(2);
    mount.swap_with_ca(&renewed, &format!("{}{}", pki.root.cert_pem(), other.cert_pem()));
    serves(&reloader, &renewed);
    assert_eq!(shown(&agent, address).unwrap(), *renewed.leaf, "while both are trusted");

    let renewed = pki.client(3);
    mount.swap_with_ca(&renewed, other.cert_pem());
    serves(&reloader, &renewed);
    let error = shown(&agent, address).expect_err("the CA is gone").to_string();
    assert!(error.contains("UnknownIssuer"), "{error}");
}

fn reloader(mount: &Mount) -> Reloader {
    let builder = Reloader::builder(mount.paths()).provider(provider());
    builder.server_roots(ServerRoots::FileOnly).client_alpn(["http/1.1"]).start().unwrap()
}

/// An agent that keeps so many idle connections.
fn agent(reloader: &Reloader, idle: usize) -> Agent {
    let config =
        Agent::config_builder().max_idle_connections(idle).timeout_global(Some(SOON)).proxy(None).build();
    let connector = ().chain(TcpConnector::default()).chain(Reloading::new(reloader.clone()));
    Agent::with_parts(config, connector, DefaultResolver::default())
}

/// The client certificate that the server has seen, which is what it answers.
fn shown(agent: &Agent, address: SocketAddr) -> Result<Vec<u8>, ureq::Error> {
    agent.get(format!("https://localhost:{}/", address.port())).call()?.body_mut().read_to_vec()
}

/// A server that wants a client certificate and answers each request with what it was shown.
fn serve(pki: &Pki, pair: &Pair) -> SocketAddr {
    let mut roots = RootCertStore::empty();
    roots.add(pki.root.cert_der().clone()).unwrap();
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider()).build().unwrap();
    let chain = CertificateDer::pem_slice_iter(pair.chain.as_bytes()).collect::<Result<_, _>>().unwrap();
    let config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap());
    let config = Arc::new(config.unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let accept = move || {
        for connection in listener.incoming() {
            let (connection, config) = (connection.unwrap(), Arc::clone(&config));
            thread::Builder::new()
                .name("https".into())
                .spawn(|| answer(connection, config))
                .map(drop)
                .unwrap();
        }
    };
    thread::Builder::new().name("accept".into()).spawn(accept).map(drop).unwrap();
    address
}

/// Until the client closes, or the handshake fails: the client says why.
fn answer(connection: TcpStream, config: Arc<ServerConfig>) -> Option<()> {
    connection.set_nodelay(true).ok()?;
    connection.set_read_timeout(Some(SOON)).ok()?;
    let tls = StreamOwned::new(ServerConnection::new(config).unwrap(), connection);
    let mut reader = BufReader::new(tls);
    loop {
        let mut line = String::new();
        // The head of a request has no empty line but its last.
        while line != "\r\n" {
            line.clear();
            if reader.read_line(&mut line).ok()? == 0 {
                return None;
            }
        }
        let leaf = leaf_of(&reader.get_ref().conn);
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", leaf.len());
        reader.get_mut().write_all(&[head.as_bytes(), &leaf].concat()).ok()?;
    }
}
