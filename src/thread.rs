//! A named thread that says when it is gone, and is joined within a deadline.

use std::io;
use std::process;
use std::thread::{self, JoinHandle, ThreadId};
use std::time::Instant;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use log::error;

/// A running thread.
#[derive(Debug)]
pub(crate) struct Thread {
    handle: JoinHandle<()>,
    /// Never carries anything: it is disconnected when the thread is gone, by return or by panic.
    alive: Receiver<()>,
    process: u32,
}

impl Thread {
    /// Starts `run` on a thread of this name.
    pub(crate) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<Self> {
        let (guard, alive): (Sender<()>, _) = crossbeam_channel::bounded(0);
        let guard = Guard { _alive: guard, name: name.into() };
        let handle = thread::Builder::new().name(name.into()).spawn(move || {
            let _gone_with_the_thread = guard;
            run();
        })?;
        Ok(Self { handle, alive, process: process::id() })
    }

    /// Whether it runs, in this process.
    pub(crate) fn is_alive(&self) -> bool {
        self.pulse().is_alive()
    }

    /// Tells whether it runs, and does not keep it.
    pub(crate) fn pulse(&self) -> Pulse {
        Pulse { alive: self.alive.clone(), process: self.process }
    }

    pub(crate) fn id(&self) -> ThreadId {
        self.handle.thread().id()
    }

    /// Waits for its end, unless this is the thread itself or a forked child; detaches it at the deadline.
    pub(crate) fn join(self, deadline: Instant) {
        if self.process != process::id() || self.id() == thread::current().id() {
            return;
        }
        if self.alive.recv_deadline(deadline) == Err(RecvTimeoutError::Disconnected) {
            // A panic was reported where it happened.
            self.handle.join().ok();
        }
    }
}

/// Lives as long as the thread.
struct Guard {
    _alive: Sender<()>,
    name: String,
}

impl Drop for Guard {
    fn drop(&mut self) {
        if thread::panicking() {
            error!("the thread {} panicked and is gone: nothing is reloaded any more", self.name);
        }
    }
}

/// Whether a thread runs.
#[derive(Clone, Debug)]
pub(crate) struct Pulse {
    alive: Receiver<()>,
    process: u32,
}

impl Pulse {
    /// False in a forked child: a fork copies no threads.
    pub(crate) fn is_alive(&self) -> bool {
        // The process comes first: in a child, a lock may be held by a thread that is not there.
        self.process == process::id()
            && !matches!(self.alive.try_recv(), Err(crossbeam_channel::TryRecvError::Disconnected))
    }
}
