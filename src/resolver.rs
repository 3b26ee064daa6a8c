//! The current certificate for a `ServerConfig` that somebody else made and keeps.

use std::sync::Arc;

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
