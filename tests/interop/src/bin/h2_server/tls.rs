//! Where a connection has its TLS config from, and which generation that was.

use std::cell::Cell;
use std::io;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::server::{Acceptor, ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls_reload::{Generation, Reloader, Resolver, Store};
use tokio::net::TcpStream;
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;

pub(crate) const H2: &str = "h2";
pub(crate) const HTTP_1_1: &str = "http/1.1";

pub(crate) enum Tls {
    /// The config of the generation that is current when the ClientHello has come. The way to prefer: it is
    /// right with client certificates too.
    PerConnection(Reloader),
    /// One config for good. For a framework that lets nobody in between.
    Fixed(Arc<ServerConfig>),
}

/// A connection after its handshake.
pub(crate) struct Shaken {
    pub(crate) stream: TlsStream<TcpStream>,
    /// What was shown to the client. With a fixed config nobody tells, so it is `None` if a swap came at the
    /// very moment.
    pub(crate) generation: Option<Arc<Generation>>,
}

impl Tls {
    pub(crate) fn per_connection(reloader: Reloader) -> Self {
        Self::PerConnection(reloader)
    }

    pub(crate) fn fixed(reloader: &Reloader) -> Result<Self, rustls::Error> {
        let resolver = Noting { resolver: reloader.resolver(), store: Arc::clone(reloader.store()) };
        // Named, since the build may hold two providers.
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(resolver));
        config.alpn_protocols = [H2, HTTP_1_1].map(|protocol| protocol.as_bytes().to_vec()).to_vec();
        Ok(Self::Fixed(Arc::new(config)))
    }

    /// The whole handshake.
    pub(crate) async fn shake_hands(&self, stream: TcpStream) -> io::Result<Shaken> {
        let hello = LazyConfigAcceptor::new(Acceptor::default(), stream).await?;
        match self {
            Self::PerConnection(reloader) => {
                // Config and number come from one generation: `reloader.server_config()` and then
                // `reloader.current()` could be two.
                let generation =
                    reloader.current().ok_or_else(|| io::Error::other("there is no certificate yet"))?;
                let stream = hello.into_stream(generation.server_config()).await?;
                Ok(Shaken { stream, generation: Some(generation) })
            }
            Self::Fixed(config) => {
                let shake = async {
                    let stream = hello.into_stream(Arc::clone(config)).await?;
                    Ok(Shaken { stream, generation: SHOWN.with(Cell::take) })
                };
                SHOWN.scope(Cell::new(None), shake).await
            }
        }
    }
}

tokio::task_local! {
    /// What [`Noting`] showed in the handshake that this task makes.
    static SHOWN: Cell<Option<Arc<Generation>>>;
}

/// The reloader's resolver, and a note of what it answered: rustls does not tell which certificate a
/// connection has shown.
#[derive(Debug)]
struct Noting {
    resolver: Arc<Resolver>,
    store: Arc<Store>,
}

impl ResolvesServerCert for Noting {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let key = ResolvesServerCert::resolve(&*self.resolver, hello)?;
        let shown = |generation: &Arc<Generation>| Arc::ptr_eq(generation.bundle().certified_key(), &key);
        let generation = self.store.current().filter(shown);
        // Outside of a handshake of ours there is nobody to tell.
        SHOWN.try_with(|note| note.set(generation)).ok();
        Some(key)
    }
}
