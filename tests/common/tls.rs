//! A small blocking TLS server and client.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustls::client::WantsClientCert;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{
    ClientConfig, ClientConnection, ConfigBuilder, DEFAULT_VERSIONS, RootCertStore, Stream,
    SupportedProtocolVersion,
};
use rustls_reload::{Reloader, TlsListener, TlsStream};

use super::SOON;

/// Echoes one byte a connection.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
}

impl Server {
    pub(crate) fn start(reloader: &Reloader) -> Self {
        let listener = TlsListener::bind("127.0.0.1:0", reloader).unwrap();
        let address = listener.local_addr().unwrap();
        serve(&listener, SOON, echo);
        Self { address }
    }
}

/// Shakes hands with each client on a thread of its own, and has it answered there.
pub(crate) fn serve(listener: &TlsListener, limit: Duration, answer: fn(TlsStream) -> io::Result<()>) {
    let listener = listener.clone();
    let accept = move || {
        for pending in listener.incoming() {
            let pending = pending.unwrap();
            // A failure is counted, and is the client's to tell.
            let serve = move || pending.handshake(limit).map_err(io::Error::from).and_then(answer).ok();
            thread::Builder::new().spawn(serve).map(drop).unwrap();
        }
    };
    thread::Builder::new().name("accept".into()).spawn(accept).map(drop).unwrap();
}

fn echo(mut tls: TlsStream) -> io::Result<()> {
    let mut byte = [0];
    if tls.read_exact(&mut byte).is_ok() {
        tls.write_all(&byte).ok();
    }
    tls.close(SOON)
}

/// One verified handshake and one byte there and back; the serial number of the leaf.
pub(crate) fn shake(address: SocketAddr, config: &Arc<ClientConfig>) -> io::Result<u64> {
    let mut connection = TcpStream::connect(address)?;
    connection.set_nodelay(true)?;
    connection.set_read_timeout(Some(SOON))?;
    let name = ServerName::try_from("localhost").unwrap();
    let mut tls = ClientConnection::new(Arc::clone(config), name).map_err(io::Error::other)?;
    let mut stream = Stream::new(&mut tls, &mut connection);
    stream.write_all(b"!")?;
    stream.read_exact(&mut [0])?;
    let leaf = tls.peer_certificates().and_then(<[_]>::first).cloned().unwrap();
    Ok(serial_of(&leaf))
}

fn serial_of(leaf: &CertificateDer<'_>) -> u64 {
    use x509_parser::prelude::{FromDer as _, X509Certificate};
    let (_, leaf) = X509Certificate::from_der(leaf).unwrap();
    leaf.raw_serial().iter().fold(0, |serial, byte| serial << 8 | u64::from(*byte))
}

pub(crate) fn client_config(root: &CertificateDer<'static>) -> Arc<ClientConfig> {
    let mut config = trusting(root, DEFAULT_VERSIONS).with_no_client_auth();
    // A resumed session would show an older certificate.
    config.resumption = rustls::client::Resumption::disabled();
    Arc::new(config)
}

/// A client that verifies by `root` alone. What it shows is to be said.
pub(crate) fn trusting(
    root: &CertificateDer<'static>,
    versions: &[&'static SupportedProtocolVersion],
) -> ConfigBuilder<ClientConfig, WantsClientCert> {
    let mut roots = RootCertStore::empty();
    roots.add(root.clone()).unwrap();
    let builder = ClientConfig::builder_with_provider(super::provider());
    builder.with_protocol_versions(versions).unwrap().with_root_certificates(roots)
}
