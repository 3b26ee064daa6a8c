//! A small blocking TLS server and client.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, Stream};
use rustls_reload::{Pending, Reloader, TlsListener};

use super::SOON;

/// Echoes one byte a connection.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
}

impl Server {
    pub(crate) fn start(reloader: Reloader) -> Self {
        let listener = TlsListener::bind("127.0.0.1:0", &reloader).unwrap();
        let address = listener.local_addr().unwrap();
        drop(reloader);
        let accept = move || {
            for pending in listener.incoming() {
                let pending = pending.unwrap();
                thread::Builder::new().spawn(move || serve(pending)).map(drop).unwrap();
            }
        };
        thread::Builder::new().spawn(accept).map(drop).unwrap();
        Self { address }
    }
}

fn serve(pending: Pending) {
    // A failure is counted, and is the client's to tell.
    if let Ok(mut tls) = pending.handshake(SOON) {
        let mut byte = [0];
        if tls.read_exact(&mut byte).is_ok() {
            tls.write_all(&byte).ok();
        }
        tls.close(SOON).ok();
    }
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
