//! The two threads that any number of reloaders share.

use std::fmt;
use std::io;
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender};

use super::health::Health;
use super::worker::{Busy, Command, Worker};
use crate::thread::{self, Thread};
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

    /// The thread that callbacks run on.
    pub(super) fn reload_thread(&self) -> Option<ThreadId> {
        self.inner.worker.as_ref().map(Thread::id)
    }

    /// Tells how the threads are, and does not keep them.
    pub(super) fn pulse(&self) -> Pulse {
        Pulse {
            worker: self.inner.worker.as_ref().map(Thread::pulse),
            watch: Arc::downgrade(&self.inner.watch),
            busy: Arc::clone(&self.inner.busy),
        }
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

/// How the threads of a watcher are. Holds no handle: asking never ends them.
#[derive(Debug)]
pub(super) struct Pulse {
    worker: Option<thread::Pulse>,
    watch: Weak<Watch>,
    busy: Arc<Busy>,
}

impl Pulse {
    /// What is wrong, if anything. Wakes nobody.
    pub(super) fn health(&self, now: Instant) -> Option<Health> {
        // The worker comes first: in a forked child no lock may be taken.
        let lives = self.worker.as_ref().is_some_and(thread::Pulse::is_alive)
            && self.watch.upgrade().is_some_and(|watch| watch.is_alive());
        if !lives {
            return Some(Health::WatcherLost);
        }
        let busy = self.busy.duration(now);
        (busy > STUCK).then_some(Health::Stuck { busy })
    }
}

/// How long the end of a thread is waited for before it is left alone.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

/// Busy for longer than this is stuck.
const STUCK: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    fn health(pulse: &Pulse, after: Duration) -> Option<String> {
        pulse.health(Instant::now() + after).map(|health| health.to_string())
    }

    #[test]
    fn a_thread_that_is_busy_for_over_30_s_is_stuck_and_one_that_sleeps_is_not() {
        let watcher = Watcher::start(Backend::Poll).unwrap();
        let busy = Arc::new(Busy::new());
        let pulse = Pulse { busy: Arc::clone(&busy), ..watcher.pulse() };
        assert_eq!(health(&pulse, Duration::from_secs(3600)), None, "asleep");
        busy.begin();
        assert_eq!(health(&pulse, Duration::from_secs(29)), None);
        let stuck = health(&pulse, Duration::from_secs(31)).unwrap();
        assert!(stuck.starts_with("nothing is reloaded: busy for 3"), "{stuck}");
        busy.end();
        assert_eq!(health(&pulse, Duration::from_secs(3600)), None, "asleep again");
    }

    #[test]
    fn a_thread_that_is_gone_is_noticed_without_its_help() {
        let watcher = Watcher::start(Backend::Poll).unwrap();
        let (say, wait) = crossbeam_channel::bounded::<()>(0);
        let worker = Thread::spawn("tls-dies", move || {
            wait.recv().unwrap_err();
            panic!("on purpose");
        });
        let worker = worker.unwrap();
        let pulse = Pulse { worker: Some(worker.pulse()), ..watcher.pulse() };
        assert_eq!(health(&pulse, Duration::ZERO), None);
        drop(say);
        worker.join(Instant::now() + Duration::from_secs(5));
        let lost = health(&pulse, Duration::ZERO).unwrap();
        assert_eq!(lost, "the watcher is lost: nothing will be reloaded");
    }

    #[test]
    fn asking_keeps_no_thread_and_no_descriptor() {
        let watcher = Watcher::start(Backend::Auto).unwrap();
        let pulse = watcher.pulse();
        assert_eq!(health(&pulse, Duration::ZERO), None);
        let watch = Arc::downgrade(&watcher.inner.watch);
        watcher.release(Instant::now() + Duration::from_secs(5));
        assert!(watch.upgrade().is_none(), "dropped with the last handle");
        assert!(health(&pulse, Duration::ZERO).is_some());
    }
}
