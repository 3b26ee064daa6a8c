//! How an identity is doing, in one value and one line.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::UnixTime;

use crate::bundle::{Bundle, Date, Validity, ValidityState};
use crate::load::LoadError;
use crate::watch::WatchFailure;

/// How an identity is doing: the most urgent of what is true.
///
/// | | ready | live | healthy |
/// |---|---|---|---|
/// | [`Ready`](Self::Ready), [`ExpiringSoon`](Self::ExpiringSoon) | yes | yes | yes |
/// | [`WatchDegraded`](Self::WatchDegraded), [`Stale`](Self::Stale), [`NotYetValid`](Self::NotYetValid) | yes | yes | no |
/// | [`Expired`](Self::Expired), [`Absent`](Self::Absent), [`Stopped`](Self::Stopped) | no | yes | no |
/// | [`WatcherLost`](Self::WatcherLost), [`Stuck`](Self::Stuck) | yes | no | no |
///
/// *Ready* and *live* are the rules for the probes of the same names; *healthy* is what metrics show.
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
    /// A sixth of its lifetime or less is left to the certificate. Whoever renews it should have, at a third.
    #[non_exhaustive]
    ExpiringSoon {
        /// Its last second, in seconds since 1970.
        not_after: i64,
    },
    /// The files have been wrong for a while; the last good generation serves.
    #[non_exhaustive]
    Stale {
        /// Since when.
        since: Instant,
        /// What is wrong.
        last_error: Arc<LoadError>,
    },
    /// The certificate that is served begins to be valid later. The clock of the machine is the likelier
    /// mistake, and clients go by theirs: handshakes may well succeed.
    #[non_exhaustive]
    NotYetValid {
        /// Its first second, in seconds since 1970.
        not_before: i64,
    },
    /// The certificate that is served has expired: clients refuse it.
    #[non_exhaustive]
    Expired {
        /// Its last second, in seconds since 1970.
        not_after: i64,
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
    /// Something has run for over 30 s on the reload thread, a callback or a read: nothing is reloaded
    /// meanwhile.
    #[non_exhaustive]
    Stuck {
        /// For how long already.
        busy: Duration,
    },
    /// It was shut down.
    Stopped,
}

impl Health {
    /// Whether handshakes can succeed: for a readiness probe. A process that cannot reload any more is still
    /// ready, for as long as its certificate is.
    pub fn is_ready(&self) -> bool {
        !matches!(self, Self::Absent { .. } | Self::Expired { .. } | Self::Stopped)
    }

    /// Whether a restart would not help: for a liveness probe. Wrong files and an expired certificate are
    /// nothing that a restart repairs; a lost or stuck thread is.
    pub fn is_live(&self) -> bool {
        !matches!(self, Self::WatcherLost | Self::Stuck { .. })
    }

    /// A short stable word.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::WatchDegraded { .. } => "watch_degraded",
            Self::ExpiringSoon { .. } => "expiring_soon",
            Self::Stale { .. } => "stale",
            Self::NotYetValid { .. } => "not_yet_valid",
            Self::Expired { .. } => "expired",
            Self::Absent { .. } => "absent",
            Self::WatcherLost => "watcher_lost",
            Self::Stuck { .. } => "stuck",
            Self::Stopped => "stopped",
        }
    }

    /// What the dates of a leaf say at `now`, if they say anything.
    fn of_dates(validity: Validity, now: UnixTime) -> Option<Self> {
        let Validity { not_before, not_after } = validity;
        match validity.at(now) {
            ValidityState::NotYetValid => Some(Self::NotYetValid { not_before }),
            ValidityState::Expired => Some(Self::Expired { not_after }),
            ValidityState::Valid => {
                let end = u64::try_from(not_after).unwrap_or(0);
                let left = end.saturating_sub(now.as_secs());
                let soon = left <= validity.lifetime() / EXPIRING_SOON;
                soon.then_some(Self::ExpiringSoon { not_after })
            }
        }
    }
}

/// One line.
impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready => f.write_str("ready"),
            Self::WatchDegraded { reason } => write!(f, "ready, by polling: {reason}"),
            Self::ExpiringSoon { not_after } => {
                write!(f, "ready, but the certificate expires at {}: is it renewed?", Date(*not_after))
            }
            Self::Stale { since, last_error } => {
                write!(f, "stale for {} s: {last_error}", since.elapsed().as_secs())
            }
            Self::NotYetValid { not_before } => {
                write!(f, "the certificate is valid only from {}: is the clock right?", Date(*not_before))
            }
            Self::Expired { not_after } => {
                write!(f, "the certificate expired at {}", Date(*not_after))
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

impl Status {
    /// How the files and the certificate are; the threads are judged elsewhere.
    pub(super) fn health(&self, live: Option<&Bundle>, now: UnixTime) -> Health {
        let Some(live) = live else {
            let last_error = self.failing.as_ref().map(|(_, error)| Arc::clone(error));
            return Health::Absent { last_error };
        };
        match (Health::of_dates(live.leaf().validity(), now), &self.failing, &self.degraded) {
            (Some(worst @ (Health::Expired { .. } | Health::NotYetValid { .. })), ..) => worst,
            (_, Some((since, error)), _) => Health::Stale { since: *since, last_error: Arc::clone(error) },
            (Some(soon), ..) => soon,
            (None, None, Some(reason)) => Health::WatchDegraded { reason: reason.clone() },
            (None, None, None) => Health::Ready,
        }
    }
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

/// At one part in so many of the lifetime left, it is said. cert-manager and certbot renew at a third.
const EXPIRING_SOON: u64 = 6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_judged_by_the_share_of_the_lifetime_that_is_left() {
        let at = |now| {
            let validity = Validity { not_before: 1_000, not_after: 1_599 };
            let now = UnixTime::since_unix_epoch(Duration::from_secs(now));
            Health::of_dates(validity, now).map_or("-", |health| health.as_str())
        };
        let table = [
            (0, "not_yet_valid"),
            (999, "not_yet_valid"),
            (1_000, "-"),
            (1_498, "-"),
            (1_499, "expiring_soon"),
            (1_599, "expiring_soon"),
            (1_600, "expired"),
            (u64::MAX, "expired"),
        ];
        for (now, expected) in table {
            assert_eq!(at(now), expected, "at {now}");
        }
    }

    #[test]
    fn odd_dates_do_not_overflow() {
        let now = UnixTime::since_unix_epoch(Duration::from_secs(2_000_000_000));
        for (not_before, not_after) in [(i64::MIN, i64::MAX), (0, i64::MAX), (i64::MAX, i64::MIN), (5, 4)] {
            drop(Health::of_dates(Validity { not_before, not_after }, now));
        }
        let endless = Validity { not_before: 0, not_after: 253_402_300_799 };
        assert!(Health::of_dates(endless, now).is_none(), "valid until the year 9999");
    }
}
