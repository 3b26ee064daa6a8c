//! The two threads that any number of reloaders share.

use std::fmt;
use std::io;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender};

use super::health::Health;
use super::worker::{Busy, Command, Worker};
use crate::thread::Thread;
use crate::watch::{Backend, SlotId, Touched, Watch};

/// Watches the files of any number of reloaders, with two threads and one inotify descriptor in all.
///
/// `tls-watch` waits for the kernel; `tls-reload` reads, validates, publishes and runs callbacks. A clone is
/// another handle to the same threads, which end with the last handle: a [`Reloader`](crate::Reloader) holds one.
#[derive(Clone)]
pub struct Watcher {
    inner: Arc<Inner>,
}

struct Inner {
    watch: Arc<Watch>,
    commands: Sender<Command>,
    worker: Option<Thread>,
    busy: Arc<Busy>,
    process: u32,
    next_slot: AtomicU64,
}

impl Watcher {
    /// Starts the threads. Where the kernel has no events to give, files are polled instead.
    ///
    /// # Errors
    ///
    /// If no thread can be started.
    pub fn start(backend: Backend) -> io::Result<Self> {
        Self::over(Watch::start(backend))
    }

    /// For tests: with so little room that a few events at a time are too many.
    #[doc(hidden)]
    pub fn start_with_room(backend: Backend, events: usize) -> io::Result<Self> {
        Self::over(Watch::start_with_room(backend, events))
    }

    fn over((watch, touches): (Watch, Receiver<Touched>)) -> io::Result<Self> {
        let watch = Arc::new(watch);
        let (commands, receiver) = crossbeam_channel::unbounded();
        let busy = Arc::new(Busy::new());
        let worker = Worker::new(Arc::clone(&watch), receiver, touches, Arc::clone(&busy));
        let worker = Thread::spawn("tls-reload", move || worker.run());
        if worker.is_err() {
            watch.stop(Instant::now() + PATIENCE);
        }
        let inner = Inner {
            watch,
            commands,
            worker: Some(worker?),
            busy,
            process: process::id(),
            next_slot: AtomicU64::new(1),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    pub(super) fn new_slot(&self) -> SlotId {
        SlotId(self.inner.next_slot.fetch_add(1, Ordering::Relaxed))
    }

    /// Hands something to the reload thread; false if it is gone.
    pub(super) fn send(&self, command: Command) -> bool {
        self.inner.commands.send(command).is_ok()
    }

    /// Whether the caller is a callback.
    pub(super) fn is_reload_thread(&self) -> bool {
        self.inner.worker.as_ref().is_some_and(|worker| worker.id() == thread::current().id())
    }

    /// Whether this is a forked child, which has the handles but not the threads.
    pub(super) fn is_forked(&self) -> bool {
        self.inner.process != process::id()
    }

    /// What is wrong with the threads, if anything.
    pub(super) fn health(&self) -> Option<Health> {
        // The process id comes first: in a forked child a lock may be held by a thread that is not there.
        let lost = self.is_forked()
            || !self.inner.worker.as_ref().is_some_and(Thread::is_alive)
            || !self.inner.watch.is_alive();
        if lost {
            return Some(Health::WatcherLost);
        }
        let busy = self.inner.busy.duration();
        (busy > STUCK).then_some(Health::Stuck { busy })
    }

    /// Drops this handle; if it was the last, ends the threads until `deadline`.
    pub(super) fn release(self, deadline: Instant) {
        if let Some(mut inner) = Arc::into_inner(self.inner) {
            inner.stop(deadline);
        }
    }
}

impl Inner {
    fn stop(&mut self, deadline: Instant) {
        // Gone already if it cannot be told.
        self.commands.send(Command::Stop).ok();
        self.watch.stop(deadline);
        if let Some(worker) = self.worker.take() {
            worker.join(deadline);
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.process != process::id() {
            // Even to free these may take a lock that nobody in this forked child will let go of.
            let commands = std::mem::replace(&mut self.commands, crossbeam_channel::bounded(0).0);
            std::mem::forget((commands, Arc::clone(&self.watch), self.worker.take()));
            return;
        }
        if self.worker.is_some() {
            self.stop(Instant::now() + PATIENCE);
        }
    }
}

impl fmt::Debug for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watcher").field("watch", &self.inner.watch).finish_non_exhaustive()
    }
}

/// How long the end of a thread is waited for before it is left alone.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

/// Busy for longer than this is stuck.
const STUCK: Duration = Duration::from_secs(30);
