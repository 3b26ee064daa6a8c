//! A real TLS client that shakes hands without pause while the certificate rotates.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, bounded};
use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use crate::socket::Socket;
use crate::stop::Stop;

/// For one handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// For the new certificate to show up. Longer than a period of the polling backend.
const PATIENCE: Duration = Duration::from_secs(10);

/// After a handshake that failed.
const PAUSE: Duration = Duration::from_millis(20);

/// Where to knock, and whom to trust.
pub(crate) struct Probe {
    addr: SocketAddr,
    config: Arc<ClientConfig>,
}

/// One rotation as the client saw it.
#[derive(Default)]
pub(crate) struct Sight {
    /// When the first handshake with the new certificate was complete.
    pub(crate) first: Option<Instant>,
    pub(crate) handshakes: usize,
    pub(crate) failed: usize,
    /// What went wrong last.
    pub(crate) complaint: Option<String>,
}

impl Probe {
    /// A client that trusts `root` alone. Nothing is installed process-wide: the provider is handed over.
    pub(crate) fn new(
        addr: SocketAddr,
        root: &CertificateDer<'static>,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, rustls::Error> {
        let mut roots = RootCertStore::empty();
        roots.add(root.clone())?;
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        // A resumed session shows the certificate of the session, not the one that is served now.
        config.resumption = Resumption::disabled();
        Ok(Self { addr, config: Arc::new(config) })
    }

    /// Starts to knock, until `leaf` shows up or everything ends. The receiver hears of the first handshake:
    /// from then on the rotation may begin.
    pub(crate) fn watch_for(
        self: &Arc<Self>,
        leaf: CertificateDer<'static>,
        stop: Arc<Stop>,
    ) -> io::Result<(Receiver<()>, JoinHandle<Sight>)> {
        let probe = Arc::clone(self);
        let (started, running) = bounded(1);
        let thread = Builder::new().name("probe".to_owned()).spawn(move || {
            let end = Instant::now() + PATIENCE;
            let mut sight = Sight::default();
            while sight.first.is_none() && Instant::now() < end && !stop.is_set() {
                sight.handshakes += 1;
                match probe.handshake() {
                    Ok((shown, at)) => sight.first = (shown == leaf).then_some(at),
                    Err(error) => {
                        sight.failed += 1;
                        sight.complaint = Some(error.to_string());
                        // A server that is gone refuses in microseconds.
                        drop(stop.wait(None, Some(PAUSE)));
                    }
                }
                if sight.handshakes == 1 && started.try_send(()).is_err() {
                    break; // nobody waits for us any more
                }
            }
            sight
        })?;
        Ok((running, thread))
    }

    /// The leaf that was shown, and when the handshake was complete.
    fn handshake(&self) -> io::Result<(CertificateDer<'static>, Instant)> {
        let mut socket = Socket::new(TcpStream::connect(self.addr)?, HANDSHAKE)?;
        let name = ServerName::try_from("localhost").map_err(io::Error::other)?;
        let mut connection =
            ClientConnection::new(Arc::clone(&self.config), name).map_err(io::Error::other)?;
        while connection.is_handshaking() {
            connection.complete_io(&mut socket)?;
        }
        let at = Instant::now();
        let leaf = connection.peer_certificates().and_then(|chain| chain.first());
        let leaf = leaf.cloned().ok_or_else(|| io::Error::other("no certificate was shown"))?;
        connection.send_close_notify();
        connection.complete_io(&mut socket)?;
        Ok((leaf, at))
    }
}
