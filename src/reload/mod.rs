//! Keeps a store fresh from files: the schedule, the threads, and the handle to them.

mod builder;
mod expiry;
mod health;
mod schedule;
#[cfg(test)]
mod simulation;
mod slot;
mod tracker;
mod watcher;
mod worker;

pub use builder::{ReloaderBuilder, StartError};
pub use health::{Health, Stats};
#[cfg(fuzzing)]
pub(crate) use schedule::{Schedule, Step, Timing, Verdict};
pub use watcher::Watcher;

use std::fmt;
use std::process;
use std::sync::Arc;
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;
use parking_lot::Mutex;
use rustls::{ClientConfig, ServerConfig};

use self::slot::Shared;
use self::tracker::Loaded;
use self::watcher::PATIENCE;
use self::worker::Command;
use crate::connections::Connections;
use crate::events::Event;
use crate::generation::Generation;
use crate::load::LoadError;
use crate::metrics::Reporter;
use crate::paths::Paths;
use crate::resolver::Resolver;
use crate::store::Store;
use crate::verifier::ClientVerifier;

/// Keeps the certificate, key and trust of one identity as fresh as the files on disk.
///
/// A clone is another handle to the same identity. With the last one, watching ends; what was handed out
/// (configs, resolvers, generations) stays usable and is no longer renewed.
///
/// ```no_run
/// use rustls_reload::{Paths, Reloader};
///
/// let reloader = Reloader::builder(Paths::secret("/etc/tls")).alpn(["http/1.1"]).start()?;
/// // For each accepted connection: the newest certificate, one pointer load.
/// let config = reloader.server_config();
/// # Ok::<(), rustls_reload::StartError>(())
/// ```
#[derive(Clone)]
pub struct Reloader {
    inner: Arc<Inner>,
}

struct Inner {
    shared: Arc<Shared>,
    /// `None` after shutdown.
    watcher: Mutex<Option<Watcher>>,
    /// The thread that callbacks run on.
    reload_thread: Option<ThreadId>,
    /// A forked child has neither the threads nor whoever holds a lock.
    process: u32,
}

impl Reloader {
    /// Begins to set up a reloader for the files of `paths`.
    pub fn builder(paths: Paths) -> ReloaderBuilder {
        ReloaderBuilder::new(paths)
    }

    fn new(shared: Arc<Shared>, watcher: Watcher) -> Self {
        let reload_thread = watcher.reload_thread();
        let (watcher, process) = (Mutex::new(Some(watcher)), process::id());
        Self { inner: Arc::new(Inner { shared, watcher, reload_thread, process }) }
    }

    /// The generation that is served; `None` while there is none.
    pub fn current(&self) -> Option<Arc<Generation>> {
        self.store().current()
    }

    /// The config for one new connection: one pointer load, no lock, no disk.
    ///
    /// While there is no certificate, a config that refuses every handshake.
    ///
    /// With client authentication, take it when the ClientHello has come
    /// ([`rustls::server::Acceptor`]), not when the connection is accepted: a client could connect, wait, and
    /// resume by trust that was withdrawn meanwhile. A [`TlsListener`](crate::TlsListener) does so.
    pub fn server_config(&self) -> Arc<ServerConfig> {
        self.store().server_config()
    }

    /// A resolver for a `ServerConfig` that somebody else makes and keeps; see [`Resolver`] for its limits.
    pub fn resolver(&self) -> Arc<Resolver> {
        Arc::new(Resolver::new(Arc::clone(self.store())))
    }

    /// The config for one new connection to somebody else; `None` while there is no certificate, or if
    /// [`ReloaderBuilder::server_roots`] was not called.
    pub fn client_config(&self) -> Option<Arc<ClientConfig>> {
        self.store().client_config()
    }

    /// A certificate resolver for a `ClientConfig` that somebody else makes and keeps.
    pub fn client_resolver(&self) -> Arc<Resolver> {
        self.resolver()
    }

    /// A verifier of clients for a `ServerConfig` that somebody else makes and keeps; see [`ClientVerifier`]
    /// for what has to be off in it.
    pub fn client_verifier(&self) -> Arc<ClientVerifier> {
        Arc::new(ClientVerifier::new(Arc::clone(self.store())))
    }

    /// Where the generations are published.
    pub fn store(&self) -> &Arc<Store> {
        &self.inner.shared.store
    }

    /// Reads the files now, whatever the events say, and blocks until that is done.
    ///
    /// # Errors
    ///
    /// - [`ReloadError::Load`] if what is on the disk cannot be served; the last good generation stays.
    /// - [`ReloadError::OnReloadThread`] from a callback: it would wait for itself.
    /// - [`ReloadError::Stopped`] after shutdown, or if the reload thread is gone.
    pub fn reload_now(&self) -> Result<Reloaded, ReloadError> {
        if self.inner.is_forked() {
            return Err(ReloadError::Stopped);
        }
        let watcher = self.inner.watcher.lock().clone().ok_or(ReloadError::Stopped)?;
        if Some(thread::current().id()) == self.inner.reload_thread {
            return Err(ReloadError::OnReloadThread);
        }
        let (reply, answer) = crossbeam_channel::bounded(1);
        watcher.send(Command::Reload(self.inner.shared.id, reply));
        // The handle must not outlive a shutdown that happens meanwhile.
        drop(watcher);
        match answer.recv() {
            // Read, but not published any more.
            Ok(Ok(_)) if !self.inner.shared.gate.is_open() => Err(ReloadError::Stopped),
            Ok(Ok(Loaded { swapped: true })) => Ok(Reloaded::Swapped),
            Ok(Ok(Loaded { swapped: false })) => Ok(Reloaded::Unchanged),
            Ok(Err(error)) => Err(ReloadError::Load(error)),
            Err(_) => Err(ReloadError::Stopped),
        }
    }

    /// A channel of events from now on. It holds 256; what a slow subscriber has no room for is dropped and
    /// counted in [`Stats::dropped_events`].
    pub fn subscribe(&self) -> Receiver<Event> {
        self.inner.shared.listeners.subscribe()
    }

    /// Blocks until generation `number` or a later one is served, for at most `timeout`.
    pub fn wait_for(&self, number: u64, timeout: Duration) -> Option<Arc<Generation>> {
        self.store().wait_for(number, timeout)
    }

    /// How the identity is doing. Wakes no thread, and takes no lock that a reload holds for long.
    pub fn health(&self) -> Health {
        // The process comes first: in a forked child any lock may be held for ever.
        if self.inner.is_forked() {
            return Health::WatcherLost;
        }
        self.inner.shared.health()
    }

    /// The connections that listeners of this reloader accepted and that are open.
    pub fn connections(&self) -> &Connections {
        &self.inner.shared.connections
    }

    /// Tells the metrics of this reloader what came of a handshake. A [`TlsListener`](crate::TlsListener) does
    /// so by itself.
    pub fn reporter(&self) -> &Reporter {
        &self.inner.shared.reporter
    }

    /// Counters since the start.
    pub fn stats(&self) -> Stats {
        self.inner.shared.stats()
    }

    /// The label of metrics and logs.
    pub fn identity(&self) -> &str {
        &self.inner.shared.identity
    }

    /// Ends watching. After it has returned no callback starts and nothing is published; what is served
    /// stays. A callback that runs is waited for, for at most 1 s, unless this is called from one.
    ///
    /// May be called again, from any thread. Does nothing in a forked child.
    pub fn shutdown(&self) {
        self.inner.shutdown();
    }
}

impl Inner {
    fn shutdown(&self) {
        if self.is_forked() {
            return;
        }
        let deadline = Instant::now() + PATIENCE;
        let wait_until = (Some(thread::current().id()) != self.reload_thread).then_some(deadline);
        // Whoever calls second finds no watcher any more, and has the same promise.
        self.shared.gate.close(wait_until);
        self.shared.store.barrier();
        self.shared.listeners.end();
        let Some(watcher) = self.watcher.lock().take() else {
            return;
        };
        watcher.send(Command::Remove(self.shared.id));
        self.shared.reporter.report(|metrics, subject| metrics.removed(subject));
        watcher.release(deadline);
    }

    fn is_forked(&self) -> bool {
        self.process != process::id()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.is_forked() {
            // Even to free these may take a lock that nobody will let go of.
            std::mem::forget((self.watcher.get_mut().take(), Arc::clone(&self.shared)));
            return;
        }
        self.shutdown();
    }
}

impl fmt::Debug for Reloader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reloader")
            .field("identity", &self.identity())
            .field("generation", &self.store().number())
            .finish_non_exhaustive()
    }
}

/// What a reload brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reloaded {
    /// A new generation is served.
    Swapped,
    /// The files hold what is served already.
    Unchanged,
}

/// Why a reload brought nothing.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReloadError {
    /// What is on the disk cannot be served.
    #[error(transparent)]
    Load(LoadError),
    /// It was called from a callback, which runs on the thread that would have to do it.
    #[error("a callback cannot wait for the reload thread: it runs on it")]
    OnReloadThread,
    /// The reloader was shut down, or its threads are gone.
    #[error("the reloader was shut down")]
    Stopped,
}
