//! How a reloader is set up and started.

use std::fmt;
use std::io;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustls::crypto::CryptoProvider;
use rustls::time_provider::TimeProvider;
use rustls::{ClientConfig, ServerConfig};

use super::Reloader;
use super::health::Status;
use super::schedule::Timing;
use super::slot::{Shared, Slot};
use super::watcher::Watcher;
use super::worker::Command;
use crate::client::{ClientSettings, ServerRoots};
use crate::connections::Connections;
use crate::events::{Event, Gate, Listeners, Swap};
use crate::load::LoadError;
use crate::metrics::{Metrics, Reporter, Subject};
use crate::paths::Paths;
use crate::server::{ClientAuth, ConfigError, ServerSettings};
use crate::store::Store;
use crate::trust::CrlExpiry;
use crate::watch::Backend;

/// Sets up a [`Reloader`]; made by [`Reloader::builder`].
#[must_use = "nothing happens until `start`"]
pub struct ReloaderBuilder {
    paths: Paths,
    identity: String,
    client_auth: ClientAuth,
    crl_expiry: CrlExpiry,
    alpn: Vec<Vec<u8>>,
    provider: Option<Arc<CryptoProvider>>,
    time_provider: Option<Arc<dyn TimeProvider>>,
    adjust: Option<Adjust>,
    server_roots: Option<ServerRoots>,
    client_alpn: Vec<Vec<u8>>,
    adjust_client: Option<AdjustClient>,
    watcher: Option<Watcher>,
    backend: Backend,
    timing: Timing,
    poll: Duration,
    absence: Absence,
    listeners: Listeners,
    metrics: Option<Arc<dyn Metrics>>,
}

type Adjust = Box<dyn Fn(&mut ServerConfig) + Send + Sync>;
type AdjustClient = Box<dyn Fn(&mut ClientConfig) + Send + Sync>;

/// What to do when there is nothing good to load at start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Absence {
    Refused,
    Allowed,
}

impl ReloaderBuilder {
    pub(super) fn new(paths: Paths) -> Self {
        Self {
            paths,
            identity: "default".into(),
            client_auth: ClientAuth::None,
            crl_expiry: CrlExpiry::default(),
            alpn: Vec::new(),
            provider: None,
            time_provider: None,
            adjust: None,
            server_roots: None,
            client_alpn: Vec::new(),
            adjust_client: None,
            watcher: None,
            backend: Backend::Auto,
            timing: Timing::default(),
            poll: POLL,
            absence: Absence::Refused,
            listeners: Listeners::default(),
            metrics: None,
        }
    }

    /// The label of metrics and logs. Default: "default".
    pub fn identity(mut self, identity: impl Into<String>) -> Self {
        self.identity = identity.into();
        self
    }

    /// Whether clients are verified against the CA file. Default: they are not.
    pub fn client_auth(mut self, client_auth: ClientAuth) -> Self {
        self.client_auth = client_auth;
        self
    }

    /// What a revocation list that has expired means, for clients and for servers. Default:
    /// [`CrlExpiry::Warn`]: it stays in force.
    pub fn crl_expiry(mut self, crl_expiry: CrlExpiry) -> Self {
        self.crl_expiry = crl_expiry;
        self
    }

    /// The application protocols, most wanted first (RFC 7301). Default: none.
    pub fn alpn<P: Into<Vec<u8>>>(mut self, protocols: impl IntoIterator<Item = P>) -> Self {
        self.alpn = protocols.into_iter().map(Into::into).collect();
        self
    }

    /// The crypto provider. Default: that of the process if one is installed, else the one of the crate's
    /// feature `ring`, else that of `aws-lc-rs`. None is ever installed for the process.
    pub fn provider(mut self, provider: Arc<CryptoProvider>) -> Self {
        self.provider = Some(provider);
        self
    }

    /// The clock that certificates are judged by, ours and the peers'. Default: that of the operating system.
    pub fn time_provider(mut self, time_provider: Arc<dyn TimeProvider>) -> Self {
        self.time_provider = Some(time_provider);
        self
    }

    /// Changes the `ServerConfig` of each generation before it is used. Runs on the reload thread, the first
    /// time in [`ReloaderBuilder::start`]. The session storage is set afterwards.
    pub fn adjust_server(mut self, adjust: impl Fn(&mut ServerConfig) + Send + Sync + 'static) -> Self {
        self.adjust = Some(Box::new(adjust));
        self
    }

    /// Builds a `ClientConfig` for each generation too: it verifies servers by these roots, and shows the
    /// certificate to servers that ask for one. Default: none is built.
    ///
    /// The roots of the operating system are loaded once per process, in [`ReloaderBuilder::start`].
    pub fn server_roots(mut self, roots: ServerRoots) -> Self {
        self.server_roots = Some(roots);
        self
    }

    /// The application protocols of the client side, most wanted first (RFC 7301). Default: none.
    pub fn client_alpn<P: Into<Vec<u8>>>(mut self, protocols: impl IntoIterator<Item = P>) -> Self {
        self.client_alpn = protocols.into_iter().map(Into::into).collect();
        self
    }

    /// Changes the `ClientConfig` of each generation before it is used. Runs where
    /// [`ReloaderBuilder::adjust_server`] does. The resumption is set afterwards.
    pub fn adjust_client(mut self, adjust: impl Fn(&mut ClientConfig) + Send + Sync + 'static) -> Self {
        self.adjust_client = Some(Box::new(adjust));
        self
    }

    /// Shares the threads of `watcher`. Default: two threads of its own.
    pub fn watcher(mut self, watcher: &Watcher) -> Self {
        self.watcher = Some(watcher.clone());
        self
    }

    /// How changes are noticed, if it has its own watcher. Default: [`Backend::Auto`].
    pub fn backend(mut self, backend: Backend) -> Self {
        self.backend = backend;
        self
    }

    /// How often the disk is compared although no event came. It is the upper bound for noticing what the
    /// kernel does not tell. Default: 10 s.
    pub fn resync_interval(mut self, interval: Duration) -> Self {
        self.timing.period = interval.max(SHORTEST);
        self
    }

    /// How often files are polled where the kernel has no events. Default: 2 s.
    pub fn poll_interval(mut self, interval: Duration) -> Self {
        self.poll = interval.max(SHORTEST);
        self
    }

    /// Starts even if there is nothing good to load: until there is, every handshake is refused, and
    /// [`Health::Absent`](super::Health::Absent) says so. Default: [`ReloaderBuilder::start`] fails.
    pub fn allow_absent(mut self) -> Self {
        self.absence = Absence::Allowed;
        self
    }

    /// Called after each swap, on the reload thread: nothing is reloaded until it returns. Not called for
    /// the generation that was loaded at start.
    pub fn on_swap(mut self, callback: impl Fn(&Swap) + Send + Sync + 'static) -> Self {
        self.listeners.on_swap.push(Box::new(callback));
        self
    }

    /// Called for every event, on the reload thread: nothing is reloaded until it returns.
    pub fn on_event(mut self, callback: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        self.listeners.on_event.push(Box::new(callback));
        self
    }

    /// Who is told the numbers. Any number of reloaders may share one. Default: nobody.
    pub fn metrics(mut self, metrics: Arc<dyn Metrics>) -> Self {
        self.metrics = Some(metrics);
        self
    }

    /// Loads once, on this thread, then watches.
    ///
    /// A load that fails is tried again for up to 1 s: the process may have been started in the middle of a
    /// rotation.
    ///
    /// # Errors
    ///
    /// - [`StartError::Load`] if there is nothing good to load, unless that is allowed.
    /// - [`StartError::NoProvider`] if there is no crypto provider.
    /// - [`StartError::Config`] if the crypto provider cannot be used.
    /// - [`StartError::CurrentDir`] if a path is relative and the current directory cannot be had.
    /// - [`StartError::Thread`] if no thread can be started.
    pub fn start(self) -> Result<Reloader, StartError> {
        let needs_ca =
            self.client_auth != ClientAuth::None || self.server_roots == Some(ServerRoots::FileOnly);
        let paths = absolute(self.paths, needs_ca)?;
        let provider = self.provider.or_else(default_provider).ok_or(StartError::NoProvider)?;
        let client = self.server_roots.map(|roots| {
            let mut client = ClientSettings::new(Arc::clone(&provider), roots)
                .with_crl_expiry(self.crl_expiry)
                .with_alpn(self.client_alpn);
            if let Some(adjust) = self.adjust_client {
                client = client.with_adjustment(adjust);
            }
            match &self.time_provider {
                Some(time_provider) => client.with_time_provider(Arc::clone(time_provider)),
                None => client,
            }
        });
        let mut settings = ServerSettings::new(provider)
            .with_client_auth(self.client_auth)
            .with_crl_expiry(self.crl_expiry)
            .with_alpn(self.alpn);
        if let Some(adjust) = self.adjust {
            settings = settings.with_adjustment(adjust);
        }
        if let Some(time_provider) = &self.time_provider {
            settings = settings.with_time_provider(Arc::clone(time_provider));
        }
        let mut store = Store::new(settings).map_err(StartError::Config)?;
        if let Some(client) = client {
            store = store.with_client(client);
        }
        let store = Arc::new(store);
        let watcher = match self.watcher {
            Some(watcher) => watcher,
            None => Watcher::start(self.backend).map_err(StartError::Thread)?,
        };
        let shared = Arc::new_cyclic(|shared: &Weak<Shared>| Shared {
            id: watcher.new_slot(),
            reporter: Reporter::new(self.metrics, Subject::new(self.identity.clone(), shared.clone())),
            identity: self.identity,
            connections: Connections::new(Arc::clone(&store)),
            store,
            listeners: self.listeners,
            gate: Gate::default(),
            pulse: watcher.pulse(),
            status: Mutex::new(Status::default()),
        });
        shared.reporter.report(|metrics, subject| metrics.registered(subject));
        let mut slot = Slot::new(Arc::clone(&shared), paths, self.timing, self.poll);
        match (load_patiently(&mut slot), self.absence) {
            (Ok(()), _) => {}
            (Err(error), Absence::Allowed) => slot.begins_without(error),
            (Err(error), Absence::Refused) => {
                shared.reporter.report(|metrics, subject| metrics.removed(subject));
                watcher.release(Instant::now() + super::watcher::PATIENCE);
                return Err(StartError::Load(error));
            }
        }
        watcher.send(Command::Add(Box::new(slot)));
        Ok(Reloader::new(shared, watcher))
    }
}

impl fmt::Debug for ReloaderBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReloaderBuilder")
            .field("paths", &self.paths)
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}

/// Why a reloader did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// There is nothing good to load.
    #[error(transparent)]
    Load(LoadError),
    /// No crypto provider: none was given, none is installed, and the crate was built without one.
    #[error("no crypto provider: give one to the builder, or build with the feature `ring` or `aws-lc-rs`")]
    NoProvider,
    /// The crypto provider cannot be used.
    #[error(transparent)]
    Config(ConfigError),
    /// A path is relative, and there is no current directory.
    #[error("a path is relative, and the current directory cannot be had")]
    CurrentDir(#[source] io::Error),
    /// A thread could not be started.
    #[error("a thread could not be started")]
    Thread(#[source] io::Error),
}

fn absolute(paths: Paths, needs_ca: bool) -> Result<Paths, StartError> {
    let paths = if needs_ca { paths.require_ca() } else { paths };
    if paths.files().all(|(_, path, _)| path.is_absolute()) {
        return Ok(paths);
    }
    let current = std::env::current_dir().map_err(StartError::CurrentDir)?;
    Ok(paths.absolute_from(&current))
}

/// Tries a few times within 1 s.
fn load_patiently(slot: &mut Slot) -> Result<(), LoadError> {
    for pause in START_PAUSES {
        if slot.first_load(false).is_ok() {
            return Ok(());
        }
        thread::park_timeout(*pause);
    }
    slot.first_load(true)
}

fn default_provider() -> Option<Arc<CryptoProvider>> {
    if let Some(installed) = CryptoProvider::get_default() {
        return Some(Arc::clone(installed));
    }
    #[cfg(feature = "ring")]
    let built_in = Some(Arc::new(rustls::crypto::ring::default_provider()));
    #[cfg(all(feature = "aws-lc-rs", not(feature = "ring")))]
    let built_in = Some(Arc::new(rustls::crypto::aws_lc_rs::default_provider()));
    #[cfg(not(any(feature = "ring", feature = "aws-lc-rs")))]
    let built_in = None;
    built_in
}

/// The poll period where there are no events.
const POLL: Duration = Duration::from_secs(2);

/// Shorter intervals would only burn CPU.
const SHORTEST: Duration = Duration::from_millis(10);

/// Between the tries at start.
pub(super) const START_PAUSES: &[Duration] = &[
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(200),
    Duration::from_millis(400),
];
