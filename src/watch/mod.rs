//! Waits for the kernel to say that something was touched, and says for which slots.
//!
//! The thread `tls-watch` blocks on the kernel, maps what it reads to slots and hands their ids on. It
//! never opens a file, so the kernel's queue drains however slow loading is. What a touch means is decided
//! by the receiver.

mod failure;
mod plan;

pub use failure::WatchFailure;
pub(crate) use plan::{Depth, Difference, Kind, Plan, Reach, SlotId, Watched};

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, TrySendError};
use log::{debug, info, warn};
use parking_lot::Mutex;

use crate::source::Trace;
use crate::sys::{self, kernel};
use crate::thread::Thread;

/// How changes are noticed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Backend {
    /// By the events of the kernel, and by polling where it has none.
    #[default]
    Auto,
    /// By polling alone, every 2 s by default.
    Poll,
}

/// What the watcher thread tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Touched {
    Slot {
        slot: SlotId,
        touch: Touch,
        at: Instant,
    },
    /// Events were lost: anything may have happened.
    Everything {
        at: Instant,
    },
}

/// What was touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Touch {
    /// A file was written in place, or its permissions changed.
    Contents,
    /// A name came, went or was replaced.
    Entries,
}

/// What one event of the kernel says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    Changed {
        token: kernel::Token,
        name: Option<OsString>,
        touch: Touch,
    },
    /// The watch is no more.
    Gone {
        token: kernel::Token,
    },
    /// The queue of the kernel was full.
    #[allow(dead_code, reason = "not every kernel has one that can be full")]
    Lost,
}

/// The plan of all slots, armed at the kernel, and the thread that listens to it.
#[derive(Debug)]
pub(crate) struct Watch {
    shared: Arc<Shared>,
    listener: Mutex<Option<Listener>>,
    /// When events were tried for last, after they could not be had.
    revived_at: Mutex<Option<Instant>>,
    room: usize,
}

/// The thread, and what wakes it.
#[derive(Debug)]
struct Listener {
    wake: File,
    thread: Thread,
}

struct Shared {
    state: Mutex<State>,
    sender: Sender<Touched>,
    /// The receiver was too slow to be told which slots were touched.
    overrun: AtomicBool,
    overflows: AtomicU64,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("overflows", &self.overflows).finish_non_exhaustive()
    }
}

struct State {
    plan: Plan,
    armer: Option<kernel::Armer>,
    /// Why there is no armer, although one is wanted.
    failure: Option<WatchFailure>,
    /// Whose directories cannot all be watched.
    failures: HashMap<SlotId, WatchFailure>,
    /// A directory could not be watched: said once.
    dir_failure_said: bool,
}

impl Watch {
    /// Starts the thread, unless polling is wanted or the kernel refuses.
    pub(crate) fn start(backend: Backend) -> (Self, Receiver<Touched>) {
        Self::start_with_room(backend, ROOM)
    }

    /// With room for so many events in one read, and for so many touches that wait for the receiver.
    pub(crate) fn start_with_room(backend: Backend, events: usize) -> (Self, Receiver<Touched>) {
        let (sender, receiver) = crossbeam_channel::bounded(events);
        let state = State {
            plan: Plan::new(kernel::REACH),
            armer: None,
            failure: None,
            failures: HashMap::new(),
            dir_failure_said: false,
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            sender,
            overrun: AtomicBool::new(false),
            overflows: AtomicU64::new(0),
        });
        let listener = match backend {
            Backend::Poll => None,
            Backend::Auto => listen(&shared, events).map_err(|error| shared.fail(&error)).ok(),
        };
        (
            Self { shared, listener: Mutex::new(listener), revived_at: Mutex::new(None), room: events },
            receiver,
        )
    }

    /// Whether the kernel tells of changes.
    pub(crate) fn listens(&self) -> bool {
        self.shared.state.lock().armer.is_some()
    }

    /// Why the kernel does not tell of every change that concerns `slot`, where it was asked to.
    pub(crate) fn failure_of(&self, slot: SlotId) -> Option<WatchFailure> {
        let state = self.shared.state.lock();
        state.failure.clone().or_else(|| state.failures.get(&slot).cloned())
    }

    /// Tries to get events again, if there are none. Then everybody is told to look.
    pub(crate) fn revive(&self) {
        if self.shared.state.lock().failure.is_none() {
            return;
        }
        let mut listener = self.listener.lock();
        // Thousands of slots ask, and one answer is enough.
        let now = Instant::now();
        let mut revived_at = self.revived_at.lock();
        if revived_at.is_some_and(|last| now < last + REVIVAL) {
            return;
        }
        *revived_at = Some(now);
        let Ok(new) = listen(&self.shared, self.room) else { return };
        info!("the kernel tells of changes again");
        *listener = Some(new);
        self.shared.send(Touched::Everything { at: Instant::now() });
    }

    /// How often events were lost.
    pub(crate) fn overflows(&self) -> u64 {
        self.shared.overflows.load(Ordering::Relaxed)
    }

    /// Whether slots were touched that nobody could be told of; asking forgets it.
    pub(crate) fn take_overrun(&self) -> bool {
        self.shared.overrun.swap(false, Ordering::AcqRel)
    }

    /// Watches what `trace` looked up on behalf of `slot`, and nothing else any more.
    ///
    /// Says whether something is watched that was not before: what happened to it until now has no event.
    pub(crate) fn set(&self, slot: SlotId, trace: &Trace) -> bool {
        let mut state = self.shared.state.lock();
        let State { plan, armer: Some(armer), failures, dir_failure_said, .. } = &mut *state else {
            return false;
        };
        let Difference { arm, release } = plan.set(slot, trace);
        let mut newly_watched = false;
        failures.remove(&slot);
        for (watched, depth) in arm {
            debug!("watching {} ({depth:?})", watched.path.display());
            let Err(error) = armer.arm(&watched, depth) else {
                newly_watched = true;
                continue;
            };
            plan.lost(&watched);
            if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) {
                // It is gone by now: to be resolved once more.
                newly_watched = true;
                continue;
            }
            if watched.kind == Kind::File && error.kind() == io::ErrorKind::PermissionDenied {
                // It cannot be read either: the load says so, and tries again until it can.
                continue;
            }
            let failure = WatchFailure::of_place(&watched.path, &error);
            if !std::mem::replace(dir_failure_said, true) {
                warn!("{failure}; what lies there is polled");
            }
            failures.insert(slot, failure);
        }
        for watched in release {
            debug!("no longer watching {}", watched.path.display());
            armer.release(&watched);
        }
        newly_watched
    }

    /// Forgets `slot`.
    pub(crate) fn remove(&self, slot: SlotId) {
        let mut state = self.shared.state.lock();
        let released = state.plan.remove(slot);
        state.failures.remove(&slot);
        if let Some(armer) = &mut state.armer {
            for watched in released {
                armer.release(&watched);
            }
        }
    }

    /// Whether the thread is there, if there has to be one.
    pub(crate) fn is_alive(&self) -> bool {
        self.listener.lock().as_ref().is_none_or(|listener| listener.thread.is_alive())
    }

    /// Ends the thread and closes its descriptors.
    pub(crate) fn stop(&self, deadline: Instant) {
        let listener = self.listener.lock().take();
        if let Some(Listener { mut wake, thread }) = listener {
            // A full pipe wakes as well.
            wake.write_all(b"!").ok();
            thread.join(deadline);
        }
        // What is watched may be held open. Not waited for longer: a disk that hangs may hold the lock.
        if let Some(mut state) = self.shared.state.try_lock_until(deadline) {
            state.armer = None;
        }
    }
}

/// Opens the kernel's queue and starts the thread that reads it.
fn listen(shared: &Arc<Shared>, room: usize) -> io::Result<Listener> {
    let (reader, armer) = kernel::open()?;
    let reader = reader.with_room(room);
    let (woken, wake) = sys::wake_pipe()?;
    let for_thread = Arc::clone(shared);
    let thread = Thread::spawn("tls-watch", move || for_thread.read_on(reader, &woken))?;
    let mut state = shared.state.lock();
    state.armer = Some(armer);
    state.plan = Plan::new(kernel::REACH);
    state.failure = None;
    drop(state);
    Ok(Listener { wake, thread })
}

impl Shared {
    /// The thread: reads until it is woken for good.
    fn read_on(&self, mut reader: kernel::Reader, wake: &OwnedFd) {
        loop {
            let notices = match reader.wait(wake) {
                Ok(true) => return,
                Ok(false) => reader.read(),
                Err(error) => Err(error),
            };
            match notices {
                Ok(notices) => self.tell(notices),
                Err(error) => {
                    self.fail(&error);
                    return self.send(Touched::Everything { at: Instant::now() });
                }
            }
        }
    }

    /// The kernel does not tell of changes, or no longer.
    fn fail(&self, error: &io::Error) {
        let failure = WatchFailure::of_queue(error);
        warn!("{failure}; polling instead");
        let mut state = self.state.lock();
        state.armer = None;
        state.failure = Some(failure);
    }

    /// Maps a batch of events to slots. One touch a slot and batch is enough.
    fn tell(&self, notices: Vec<Notice>) {
        let at = Instant::now();
        let mut touched = BTreeMap::new();
        let mut lost = false;
        {
            let mut state = self.state.lock();
            let State { plan, armer: Some(armer), .. } = &mut *state else {
                return;
            };
            for notice in notices {
                let mut touch_all = |slots: BTreeSet<SlotId>, touch: Touch| {
                    for slot in slots {
                        let strongest = touched.entry(slot).or_insert(touch);
                        *strongest = touch.max(*strongest);
                    }
                };
                match notice {
                    Notice::Changed { token, name, touch } => {
                        for watched in armer.watched(token) {
                            touch_all(plan.concerned(watched, name.as_deref()), touch);
                        }
                    }
                    Notice::Gone { token } => {
                        for watched in armer.gone(token) {
                            touch_all(plan.concerned(&watched, None), Touch::Entries);
                            plan.lost(&watched);
                        }
                    }
                    Notice::Lost => lost = true,
                }
            }
        }
        if lost {
            self.overflows.fetch_add(1, Ordering::Relaxed);
            warn!("the queue of the kernel overflowed, events are lost: everything is looked at");
            return self.send(Touched::Everything { at });
        }
        for (slot, touch) in touched {
            self.send(Touched::Slot { slot, touch, at });
        }
    }

    /// Never waits: the kernel's queue must drain whatever the receiver does.
    fn send(&self, touched: Touched) {
        if let Err(TrySendError::Full(_)) = self.sender.try_send(touched) {
            // Counted once for each time that the receiver has to catch up.
            if !self.overrun.swap(true, Ordering::AcqRel) {
                self.overflows.fetch_add(1, Ordering::Relaxed);
            }
            // The receiver may have emptied the channel meanwhile and sleep by now. If it is full still, the
            // receiver is yet to see the flag.
            self.sender.try_send(Touched::Everything { at: Instant::now() }).ok();
        }
    }
}

/// What the place of a file says about its changes, whatever the events say.
pub(crate) fn failure_of_place(path: &Path) -> Option<WatchFailure> {
    if let Some(gone) = sys::is_mounted_file(path) {
        return Some(WatchFailure::mounted_file(path, gone));
    }
    sys::silent_file_system(path).map(|name| WatchFailure::silent_file_system(path, name))
}

/// Events in one read, and touches that may wait for the receiver; with more of them, all slots are looked at.
const ROOM: usize = 1024;

/// Between two tries to get events again.
const REVIVAL: Duration = Duration::from_secs(1);
