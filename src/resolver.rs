//! The current certificate for a config that somebody else made and keeps.

use std::sync::Arc;

use rustls::SignatureScheme;
use rustls::client::ResolvesClientCert;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::store::Store;

/// Answers every handshake with the certificate of the current generation.
///
/// For a framework that takes one `ServerConfig` for good. It must not verify clients: a session made under
/// a CA that is gone by now would be resumed. Servers that verify clients take
/// [`Store::server_config`] for each connection.
#[derive(Clone, Debug)]
pub struct Resolver {
    store: Arc<Store>,
}

impl Resolver {
    /// A resolver over `store`.
    pub fn new(store: Arc<Store>) -> Self {
        Self { store }
    }
}

impl ResolvesServerCert for Resolver {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(self.store.current()?.bundle().certified_key()))
    }
}

/// On the side that connects: the certificate of the current generation, for a `ClientConfig` that is kept.
///
/// [`Store::client_config`] is better where it can be used: it ends the resumption of sessions that were made
/// with an older certificate.
impl ResolvesClientCert for Resolver {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(self.store.current()?.bundle().certified_key()))
    }

    fn has_certs(&self) -> bool {
        self.store.current().is_some()
    }
}
