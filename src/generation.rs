//! One published unit: everything that a handshake needs, from one state of the disk.

use std::sync::Arc;

use rustls::ServerConfig;

use crate::bundle::Bundle;
use crate::server::{ConfigError, ServerSettings, SessionScope};

/// A bundle with its number and the `ServerConfig` made from it. Immutable.
#[derive(Debug)]
pub struct Generation {
    number: u64,
    bundle: Arc<Bundle>,
    server_config: Arc<ServerConfig>,
    scope: SessionScope,
}

impl Generation {
    /// What follows `previous`.
    pub(crate) fn following(
        previous: Option<&Self>,
        bundle: Arc<Bundle>,
        settings: &ServerSettings,
    ) -> Result<Self, ConfigError> {
        let scope = SessionScope::following(previous.map(|previous| &previous.scope), &bundle);
        let server_config = Arc::new(settings.build(&bundle, &scope)?);
        let number = previous.map_or(0, |previous| previous.number) + 1;
        Ok(Self { number, bundle, server_config, scope })
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
}
