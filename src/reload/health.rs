//! How an identity is doing, in one value and one line.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::bundle::Validity;
use crate::load::LoadError;
use crate::watch::WatchFailure;

/// How an identity is doing. The most urgent of what is true.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Health {
    /// A valid certificate is served, the files are right, and changes will be seen.
    Ready,
    /// All is well, but the kernel does not tell of changes: they are seen by polling.
    WatchDegraded {
        /// Why.
        reason: WatchFailure,
    },
    /// The files have been wrong for a while; the last good generation serves.
    #[non_exhaustive]
    Stale {
        /// Since when.
        since: Instant,
        /// What is wrong.
        last_error: Arc<LoadError>,
    },
    /// The certificate that is served has expired, or is not valid yet.
    #[non_exhaustive]
    NotValidNow {
        /// When it is valid.
        validity: Validity,
    },
    /// There is no certificate yet: every handshake is refused.
    #[non_exhaustive]
    Absent {
        /// What is wrong with the files, once it has lasted.
        last_error: Option<Arc<LoadError>>,
    },
    /// Nothing will be reloaded any more: the threads are gone, or this is a forked child that never had
    /// them. What was loaded last is still served.
    WatcherLost,
    /// Something runs for too long on the reload thread, a callback or a read: nothing is reloaded meanwhile.
    #[non_exhaustive]
    Stuck {
        /// For how long already.
        busy: Duration,
    },
    /// It was shut down.
    Stopped,
}

impl Health {
    /// Whether handshakes can succeed: for a readiness probe.
    pub fn is_ready(&self) -> bool {
        !matches!(self, Self::Absent { .. } | Self::NotValidNow { .. } | Self::Stopped)
    }

    /// Whether a restart would not help: for a liveness probe.
    pub fn is_live(&self) -> bool {
        !matches!(self, Self::WatcherLost | Self::Stuck { .. })
    }
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready => f.write_str("ready"),
            Self::WatchDegraded { reason } => write!(f, "ready, by polling: {reason}"),
            Self::Stale { since, last_error } => {
                write!(f, "stale for {} s: {last_error}", since.elapsed().as_secs())
            }
            Self::NotValidNow { validity } => {
                let Validity { not_before, not_after } = validity;
                write!(
                    f,
                    "the certificate is not valid now, but from {not_before} to {not_after} (Unix seconds)"
                )
            }
            Self::Absent { last_error: None } => f.write_str("no certificate yet"),
            Self::Absent { last_error: Some(error) } => write!(f, "no certificate yet: {error}"),
            Self::WatcherLost => f.write_str("the watcher is lost: nothing will be reloaded"),
            Self::Stuck { busy } => write!(f, "nothing is reloaded: busy for {} s", busy.as_secs()),
            Self::Stopped => f.write_str("stopped"),
        }
    }
}

/// What the reload thread notes for [`Health`] and for counters.
#[derive(Debug, Default)]
pub(super) struct Status {
    pub(super) failing: Option<(Instant, Arc<LoadError>)>,
    pub(super) degraded: Option<WatchFailure>,
    pub(super) stats: Stats,
}

/// Counters of one identity since it was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Loads that were tried, the quick retries of one failure counted as one; unchanged resyncs are not loads.
    pub loads: u64,
    /// Generations that were published, the first included.
    pub swaps: u64,
    /// Failures that lasted longer than a rotation takes.
    pub failures: u64,
    /// Failures that ended.
    pub recoveries: u64,
    /// Generations that were found by a resync although the kernel should have told.
    pub missed_events: u64,
    /// Callbacks that panicked.
    pub callback_panics: u64,
    /// Events that were dropped because a subscriber was too slow.
    pub dropped_events: u64,
}
