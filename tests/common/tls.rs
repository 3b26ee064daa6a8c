//! A small blocking TLS server and client.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConnection, Stream};
use rustls_reload::Reloader;
use rustls_reload::metrics::{HandshakeFailure, Reporter};

use super::SOON;

/// Echoes one byte a connection, with the config of the moment.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
}

impl Server {
    pub(crate) fn start(reloader: Reloader) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let accept = move || {
            for connection in listener.incoming() {
                let (connection, config) = (connection.unwrap(), reloader.server_config());
                let reporter = reloader.reporter().clone();
                let serve = move || serve(connection, config, &reporter);
                thread::Builder::new().spawn(serve).map(drop).unwrap();
            }
        };
        thread::Builder::new().spawn(accept).map(drop).unwrap();
        Self { address }
    }
}

fn serve(mut connection: TcpStream, config: Arc<rustls::ServerConfig>, reporter: &Reporter) {
    let mut tls = ServerConnection::new(config).unwrap();
    while tls.is_handshaking() {
        if let Err(error) = tls.complete_io(&mut connection) {
            return reporter.handshake_failure(HandshakeFailure::of(&error));
        }
    }
    reporter.handshake(tls.handshake_kind().unwrap());
    let mut stream = Stream::new(&mut tls, &mut connection);
    let mut byte = [0];
    if stream.read_exact(&mut byte).is_ok() {
        stream.write_all(&byte).ok();
    }
    // The end of the other side is awaited: an alert must not be overtaken by a reset.
    connection.shutdown(std::net::Shutdown::Write).ok();
    while matches!(connection.read(&mut [0; 512]), Ok(1..)) {}
}

/// One verified handshake and one byte there and back; the serial number of the leaf.
pub(crate) fn shake(address: SocketAddr, config: &Arc<ClientConfig>) -> std::io::Result<u64> {
    let mut connection = TcpStream::connect(address)?;
    connection.set_nodelay(true)?;
    connection.set_read_timeout(Some(SOON))?;
    let name = ServerName::try_from("localhost").unwrap();
    let mut tls = ClientConnection::new(Arc::clone(config), name).map_err(std::io::Error::other)?;
    let mut stream = Stream::new(&mut tls, &mut connection);
    stream.write_all(b"!")?;
    stream.read_exact(&mut [0])?;
    let leaf = tls.peer_certificates().and_then(<[_]>::first).cloned().unwrap();
    Ok(serial_of(&leaf))
}

fn serial_of(leaf: &rustls::pki_types::CertificateDer<'_>) -> u64 {
    use x509_parser::prelude::{FromDer as _, X509Certificate};
    let (_, leaf) = X509Certificate::from_der(leaf).unwrap();
    leaf.raw_serial().iter().fold(0, |serial, byte| serial << 8 | u64::from(*byte))
}

pub(crate) fn client_config(root: &rustls::pki_types::CertificateDer<'static>) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(root.clone()).unwrap();
    let mut config = ClientConfig::builder_with_provider(super::provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    // A resumed session would show an older certificate.
    config.resumption = rustls::client::Resumption::disabled();
    Arc::new(config)
}
