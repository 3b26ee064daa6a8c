//! The one pointer that servers read: the current generation, replaced as a whole.
//!
//! Needs no files: bundles made in memory are published just as well.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use parking_lot::{Condvar, Mutex};
use rustls::pki_types::UnixTime;
use rustls::{ClientConfig, ServerConfig};

use crate::bundle::Bundle;
use crate::client::ClientSettings;
use crate::generation::Generation;
use crate::server::{ConfigError, ServerSettings};

/// Holds the current generation. Reading it takes no lock.
#[derive(Debug)]
pub struct Store {
    settings: ServerSettings,
    client: Option<ClientSettings>,
    /// Refuses every handshake; handed out while there is no generation.
    refusing: Arc<ServerConfig>,
    current: ArcSwapOption<Generation>,
    /// Taken by publishers and by those that wait for them, never by a handshake.
    publishing: Mutex<()>,
    published: Condvar,
}

impl Store {
    /// An empty store.
    ///
    /// # Errors
    ///
    /// [`ConfigError::Provider`] if the crypto provider has neither TLS 1.2 nor 1.3.
    pub fn new(settings: ServerSettings) -> Result<Self, ConfigError> {
        Ok(Self {
            refusing: Arc::new(settings.build_refusing()?),
            settings,
            client: None,
            current: ArcSwapOption::empty(),
            publishing: Mutex::new(()),
            published: Condvar::new(),
        })
    }

    /// Builds a `ClientConfig` for each generation as well.
    #[must_use]
    pub fn with_client(self, settings: ClientSettings) -> Self {
        Self { client: Some(settings), ..self }
    }

    /// Makes `bundle` the current generation. Handshakes that have begun keep theirs.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if clients are to be verified and the bundle has no usable CA. Nothing changes then.
    pub fn publish(&self, bundle: Arc<Bundle>) -> Result<Arc<Generation>, ConfigError> {
        loop {
            if let Some(next) = self.try_publish(&bundle, || true)? {
                return Ok(next);
            }
        }
    }

    /// Publishes once, unless `allowed` says no at the very last moment, or somebody else was quicker.
    pub(crate) fn try_publish(
        &self,
        bundle: &Arc<Bundle>,
        allowed: impl Fn() -> bool,
    ) -> Result<Option<Arc<Generation>>, ConfigError> {
        // Built outside the lock: the caller's hook runs in there.
        let previous = self.current();
        let next = Generation::following(
            previous.as_deref(),
            Arc::clone(bundle),
            &self.settings,
            self.client.as_ref(),
        )?;
        let _one_at_a_time = self.publishing.lock();
        if !allowed() || self.number() + 1 != next.number() {
            return Ok(None);
        }
        let next = Arc::new(next);
        self.current.store(Some(Arc::clone(&next)));
        self.published.notify_all();
        Ok(Some(next))
    }

    /// Returns when nobody is in the middle of publishing.
    pub(crate) fn barrier(&self) {
        drop(self.publishing.lock());
    }

    /// The current generation; `None` while nothing was published.
    pub fn current(&self) -> Option<Arc<Generation>> {
        self.current.load_full()
    }

    /// The number of the current generation; 0 while nothing was published.
    pub fn number(&self) -> u64 {
        self.current.load().as_ref().map_or(0, |generation| generation.number())
    }

    /// The config of the current generation. While there is none, a config that refuses every handshake.
    pub fn server_config(&self) -> Arc<ServerConfig> {
        match &*self.current.load() {
            Some(generation) => generation.server_config(),
            None => Arc::clone(&self.refusing),
        }
    }

    /// The config that refuses every handshake.
    pub(crate) fn refusing_config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.refusing)
    }

    /// The time, by the clock that peers are verified by.
    pub(crate) fn now(&self) -> UnixTime {
        let time = self.settings.time_provider();
        time.and_then(|time| time.current_time()).unwrap_or_else(UnixTime::now)
    }

    /// Whether generations have a side that connects to others.
    pub(crate) fn is_client(&self) -> bool {
        self.client.is_some()
    }

    /// The config of the current generation for connecting to others; `None` while there is none, or if the
    /// store has no [`ClientSettings`].
    pub fn client_config(&self) -> Option<Arc<ClientConfig>> {
        self.current.load().as_ref()?.client_config()
    }

    /// What every generation's config has in common.
    pub fn settings(&self) -> &ServerSettings {
        &self.settings
    }

    /// Blocks until generation `number` or a later one is current, for at most `timeout`.
    pub fn wait_for(&self, number: u64, timeout: Duration) -> Option<Arc<Generation>> {
        // A timeout beyond what the clock can hold is as good as for ever.
        let deadline = Instant::now().checked_add(timeout);
        let mut publishing = self.publishing.lock();
        while self.number() < number {
            let timed_out = match deadline {
                Some(deadline) => self.published.wait_until(&mut publishing, deadline).timed_out(),
                None => {
                    self.published.wait(&mut publishing);
                    false
                }
            };
            if timed_out && self.number() < number {
                return None;
            }
        }
        self.current()
    }
}
