//! One published unit: everything that a handshake needs, from one state of the disk.

use std::sync::Arc;

use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::{ClientConfig, Error, ServerConfig};

use crate::bundle::Bundle;
use crate::client::{ClientScope, ClientSettings};
use crate::server::{ConfigError, ScopeId, ServerSettings, SessionScope};

/// A bundle with its number and the `ServerConfig` made from it. Immutable.
#[derive(Debug)]
pub struct Generation {
    number: u64,
    bundle: Arc<Bundle>,
    server_config: Arc<ServerConfig>,
    scope: SessionScope,
    client_verifier: Arc<dyn ClientCertVerifier>,
    client: Option<Client>,
}

/// The side of a generation that connects to others.
#[derive(Debug)]
struct Client {
    config: Arc<ClientConfig>,
    scope: ClientScope,
}

impl Generation {
    /// What follows `previous`.
    pub(crate) fn following(
        previous: Option<&Self>,
        bundle: Arc<Bundle>,
        settings: &ServerSettings,
        client: Option<&ClientSettings>,
    ) -> Result<Self, ConfigError> {
        let (client_auth, time) = (settings.client_auth(), settings.time_provider());
        let scope =
            SessionScope::following(previous.map(|previous| &previous.scope), &bundle, client_auth, time)?;
        let client_verifier = settings.client_verifier(bundle.trust())?;
        let server_config = Arc::new(settings.build(&bundle, Arc::clone(&client_verifier), &scope)?);
        let client = client.map(|settings| Client::following(previous, &bundle, settings)).transpose()?;
        let number = previous.map_or(0, |previous| previous.number) + 1;
        Ok(Self { number, bundle, server_config, scope, client_verifier, client })
    }

    /// 1 for the first, and one more for each that was published since.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Certificate, key and trust.
    pub fn bundle(&self) -> &Arc<Bundle> {
        &self.bundle
    }

    /// The config of this generation, for any number of connections.
    pub fn server_config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.server_config)
    }

    /// The config of this generation for connecting to others; `None` if none was asked for.
    pub fn client_config(&self) -> Option<Arc<ClientConfig>> {
        self.client.as_ref().map(|client| Arc::clone(&client.config))
    }

    /// Which scope its sessions belong to.
    pub(crate) fn scope(&self) -> &ScopeId {
        self.scope.id()
    }

    /// Whether everybody who was let in under `scope` would be let in now: no trust was taken away since.
    pub(crate) fn upholds(&self, scope: &ScopeId) -> bool {
        self.scope() == scope
    }

    /// Whether a client that showed `chain`, leaf first, would be let in by this generation's trust at `now`.
    /// One that showed none was not asked for one.
    pub(crate) fn judge_client(&self, chain: &[CertificateDer<'_>], now: UnixTime) -> Result<(), Error> {
        match (self.client_verifier(), chain) {
            (Some(verifier), [leaf, intermediates @ ..]) => {
                verifier.verify_client_cert(leaf, intermediates, now).map(drop)
            }
            _ => Ok(()),
        }
    }

    /// What clients are verified by; `None` where they are not.
    pub(crate) fn client_verifier(&self) -> Option<Arc<dyn ClientCertVerifier>> {
        self.client_verifier.offer_client_auth().then(|| Arc::clone(&self.client_verifier))
    }
}

impl Client {
    fn following(
        previous: Option<&Generation>,
        bundle: &Bundle,
        settings: &ClientSettings,
    ) -> Result<Self, ConfigError> {
        let before = previous.and_then(|previous| previous.client.as_ref());
        let scope = ClientScope::following(before.map(|before| &before.scope), bundle, settings)?;
        Ok(Self { config: Arc::new(settings.build(&scope)?), scope })
    }
}
