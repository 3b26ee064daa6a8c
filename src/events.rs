//! What a reloader tells: callbacks and channels.
//!
//! User code runs on the reload thread, in order, outside every lock; a panic in it is caught and counted.
//! Nothing here ever waits for a subscriber.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, TrySendError};
use log::{error, warn};
use parking_lot::{Condvar, Mutex};

use crate::difference::Difference;
use crate::generation::Generation;
use crate::load::LoadError;
use crate::watch::WatchFailure;

pub use crate::trigger::Trigger;

/// Something that happened to one identity.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// A new generation is served.
    Swapped(Swap),
    /// The files have been wrong for longer than a rotation takes; the last good generation keeps serving.
    /// Sent once, and again when the reason changes.
    Failed(Arc<LoadError>),
    /// The files are right again, whether or not they brought a new generation.
    Recovered,
    /// The certificate that is served runs out: sent with a sixth of its life left, seven days, and one day.
    #[non_exhaustive]
    Expiring {
        /// What is served.
        generation: Arc<Generation>,
        /// The time that is left.
        left: Duration,
    },
    /// The certificate that is served has expired. It is served on, for want of a better one.
    #[non_exhaustive]
    Expired {
        /// What is served.
        generation: Arc<Generation>,
    },
    /// The kernel does not tell of changes; the files are polled.
    WatchDegraded(WatchFailure),
    /// The kernel tells of changes again.
    WatchRestored,
}

/// One line, without the identity.
impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = |generation: &Generation| generation.number();
        match self {
            Self::Swapped(swap) => write!(f, "generation {} is served", number(&swap.generation)),
            Self::Failed(error) => write!(f, "not loaded: {error}"),
            Self::Recovered => f.write_str("the files are right again"),
            Self::Expiring { generation, left } => {
                write!(f, "generation {} expires in {} min", number(generation), left.as_secs() / 60)
            }
            Self::Expired { generation } => {
                write!(f, "generation {} has expired, and is still served", number(generation))
            }
            Self::WatchDegraded(failure) => write!(f, "polling: {failure}"),
            Self::WatchRestored => f.write_str("the kernel tells of every change again"),
        }
    }
}

/// A change from one generation to the next.
#[derive(Clone, Debug)]
pub struct Swap {
    previous: Option<Arc<Generation>>,
    generation: Arc<Generation>,
    trigger: Trigger,
    latency: Option<Duration>,
}

impl Swap {
    pub(crate) fn new(
        previous: Option<Arc<Generation>>,
        generation: Arc<Generation>,
        trigger: Trigger,
        latency: Option<Duration>,
    ) -> Self {
        Self { previous, generation, trigger, latency }
    }

    /// What was served before; `None` for the first generation.
    pub fn previous(&self) -> Option<&Arc<Generation>> {
        self.previous.as_ref()
    }

    /// What is served now.
    pub fn generation(&self) -> &Arc<Generation> {
        &self.generation
    }

    /// What changed; `None` for the first generation.
    pub fn difference(&self) -> Option<Difference> {
        Some(Difference::between(self.previous.as_ref()?.bundle(), self.generation.bundle()))
    }

    /// What made the reloader look.
    pub fn trigger(&self) -> Trigger {
        self.trigger
    }

    /// From the first event to the new generation being served; `None` where no event led to it.
    pub fn latency(&self) -> Option<Duration> {
        self.latency
    }
}

/// A callback on swaps.
pub(crate) type OnSwap = Box<dyn Fn(&Swap) + Send + Sync>;
/// A callback on every event.
pub(crate) type OnEvent = Box<dyn Fn(&Event) + Send + Sync>;

/// Everybody who wants to be told.
#[derive(Default)]
pub(crate) struct Listeners {
    pub(crate) on_swap: Vec<OnSwap>,
    pub(crate) on_event: Vec<OnEvent>,
    subscribers: Mutex<Vec<Sender<Event>>>,
    dropped: AtomicU64,
    panics: AtomicU64,
}

impl Listeners {
    /// A channel of events from now on. What does not fit in is dropped and counted.
    pub(crate) fn subscribe(&self) -> Receiver<Event> {
        let (sender, receiver) = crossbeam_channel::bounded(CAPACITY);
        self.subscribers.lock().push(sender);
        receiver
    }

    /// Events that a subscriber was too slow for.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Callbacks that panicked.
    pub(crate) fn panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }

    /// Nothing will be told any more: subscribers find their channel at its end.
    pub(crate) fn end(&self) {
        self.subscribers.lock().clear();
    }

    /// Tells everybody, for as long as `gate` is open.
    pub(crate) fn tell(&self, gate: &Gate, event: &Event) {
        if !gate.is_open() {
            return;
        }
        self.subscribers.lock().retain(|subscriber| match subscriber.try_send(event.clone()) {
            Ok(()) => true,
            Err(TrySendError::Full(_)) => {
                self.dropped.fetch_add(1, Ordering::Relaxed);
                true
            }
            Err(TrySendError::Disconnected(_)) => false,
        });
        if let Event::Swapped(swap) = event {
            for callback in &self.on_swap {
                self.call(gate, || callback(swap));
            }
        }
        for callback in &self.on_event {
            self.call(gate, || callback(event));
        }
    }

    /// Calls user code, if `gate` is open.
    pub(crate) fn call(&self, gate: &Gate, callback: impl FnOnce()) {
        let Some(_running) = gate.enter() else {
            return;
        };
        let begun = Instant::now();
        if catch_unwind(AssertUnwindSafe(callback)).is_err() {
            self.panics.fetch_add(1, Ordering::Relaxed);
            error!("a callback panicked; reloading goes on");
        }
        let took = begun.elapsed();
        if took > SLOW {
            warn!("a callback took {took:.1?}; meanwhile nothing was reloaded");
        }
    }
}

impl fmt::Debug for Listeners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listeners")
            .field("on_swap", &self.on_swap.len())
            .field("on_event", &self.on_event.len())
            .finish_non_exhaustive()
    }
}

/// Closed for good at shutdown: from then on no callback starts.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    closed: AtomicBool,
    running: Mutex<bool>,
    idle: Condvar,
}

impl Gate {
    pub(crate) fn is_open(&self) -> bool {
        !self.closed.load(Ordering::Acquire)
    }

    /// Lets no further callback start, and waits until `deadline` for one that runs, unless told not to.
    pub(crate) fn close(&self, wait_until: Option<Instant>) {
        let mut running = self.running.lock();
        self.closed.store(true, Ordering::Release);
        if let Some(deadline) = wait_until {
            while *running && !self.idle.wait_until(&mut running, deadline).timed_out() {}
        }
    }

    fn enter(&self) -> Option<Running<'_>> {
        let mut running = self.running.lock();
        if !self.is_open() {
            return None;
        }
        *running = true;
        Some(Running { gate: self })
    }
}

/// A callback runs.
struct Running<'a> {
    gate: &'a Gate,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        *self.gate.running.lock() = false;
        self.gate.idle.notify_all();
    }
}

/// Events that wait for a subscriber.
const CAPACITY: usize = 256;

/// A callback that takes longer is warned about.
const SLOW: Duration = Duration::from_secs(1);
