//! When to look and when to load, as a pure state machine over `now`.
//!
//! It never sleeps, reads no clock and touches no disk. The worker tells it what happened and asks for the
//! next [`Step`]; tests invent the instants.
//!
//! - What moves as one is loaded at once. The rest settles: [`Timing::settle`] without events, but never
//!   longer than [`Timing::ceiling`] after the first one, so that chatter cannot starve a reload.
//! - A load that fails is retried after 10 ms, doubling, for [`Timing::retry_window`]. Then it is reported
//!   once, and the files are read every [`Timing::repair`], or every [`Timing::period`] if that is shorter,
//!   until they are right: the repair may come without any event.
//! - Whatever happens, the disk is compared every [`Timing::period`].

use std::time::{Duration, Instant};

/// How long things take. See the table in `ARCHITECTURE.md` for the reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timing {
    pub(crate) settle: Duration,
    pub(crate) ceiling: Duration,
    pub(crate) retry_first: Duration,
    pub(crate) retry_window: Duration,
    pub(crate) repair: Duration,
    /// The resync where the kernel tells of changes, the poll period where it does not.
    pub(crate) period: Duration,
}

/// What is to be done now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing was touched for long enough: load, unless the files still change.
    Settled,
    /// Load by content, whatever else happens.
    Load,
    /// Load again what failed, unless it changed meanwhile.
    Retry,
    /// Compare identities; load where they differ or prove nothing.
    Resync,
}

/// What a failed load means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It may be half of a rotation: not worth a word yet.
    Transient,
    /// It has lasted: count it, log it, show it.
    Report,
    /// It was reported already.
    Known,
}

/// The state of one slot.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    timing: Timing,
    settling: Option<Settling>,
    failing: Option<Failing>,
    resync_at: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Settling {
    /// No event pushes the load beyond this.
    ceiling: Instant,
    load_at: Instant,
    /// Nothing is waited for.
    at_once: bool,
}

#[derive(Clone, Copy, Debug)]
struct Failing {
    /// The first failure of this row, or the first touch after it was reported.
    since: Instant,
    pause: Duration,
    load_at: Instant,
    /// When it was told of last.
    told: Option<Instant>,
}

impl Schedule {
    /// Nothing is pending but the resync.
    pub(crate) fn new(timing: Timing, now: Instant) -> Self {
        Self { timing, settling: None, failing: None, resync_at: after(now, timing.period) }
    }

    /// Something was touched that does not move as one with the rest.
    pub(crate) fn touched(&mut self, now: Instant) {
        if self.settling.is_some_and(|settling| settling.at_once) {
            return;
        }
        let ceiling = self.settling.map_or(now + self.timing.ceiling, |settling| settling.ceiling);
        let load_at = ceiling.min(now + self.timing.settle);
        self.settling = Some(Settling { ceiling, load_at, at_once: false });
        if let Some(failing) = self.failing.as_mut().filter(|failing| failing.told.is_some()) {
            // Somebody is at work on it: look closely again.
            *failing = Failing { since: now, pause: self.timing.retry_first, ..*failing };
        }
    }

    /// The whole set moved in one step, or somebody asks: load at once.
    pub(crate) fn load_now(&mut self, now: Instant) {
        self.settling = Some(Settling { ceiling: now, load_at: now, at_once: true });
    }

    /// At the end of the quiet time the files are seen to have changed once more. Whether to wait on.
    pub(crate) fn still_changing(&mut self, now: Instant) -> bool {
        let waits = self.settling.is_some_and(|settling| now < settling.ceiling);
        if waits {
            self.touched(now);
        }
        waits
    }

    /// What was read is not what was looked at: a writer has just begun. Whether to wait for it.
    pub(crate) fn slipped(&mut self, now: Instant) -> bool {
        match self.settling {
            Some(settling) if !settling.at_once => self.still_changing(now),
            _ => {
                self.settling = None;
                self.touched(now);
                true
            }
        }
    }

    /// A resync found nothing new.
    pub(crate) fn resynced(&mut self, now: Instant) {
        self.resync_at = after(now, self.timing.period);
    }

    /// A load succeeded, whether it brought something new or not. Whether a reported failure ends with it.
    pub(crate) fn succeeded(&mut self, now: Instant) -> bool {
        self.settling = None;
        self.resynced(now);
        self.failing.take().is_some_and(|failing| failing.told.is_some())
    }

    /// A load failed.
    pub(crate) fn failed(&mut self, now: Instant) -> Verdict {
        let Timing { retry_first, retry_window, repair, period, .. } = self.timing;
        self.settling = None;
        self.resynced(now);
        let failing =
            self.failing.get_or_insert(Failing { since: now, pause: retry_first, load_at: now, told: None });
        let end = failing.since + retry_window;
        if now < end {
            failing.load_at = end.min(now + failing.pause);
            // However many loads are asked for within the window.
            failing.pause = retry_window.min(failing.pause * 2);
            // Somebody who keeps writing does not make a failure that was told of a new one.
            if failing.told.is_some_and(|told| now >= told + repair) {
                failing.told = Some(now);
                return Verdict::Known;
            }
            return Verdict::Transient;
        }
        // Whoever polls more often than that wants a repair to be seen as soon as any other change.
        failing.load_at = now + repair.min(period);
        if failing.told.replace(now).is_some() { Verdict::Known } else { Verdict::Report }
    }

    /// Sets the period from the next resync on.
    pub(crate) fn set_period(&mut self, period: Duration, now: Instant) {
        if self.timing.period != period {
            self.timing.period = period;
            self.resync_at = self.resync_at.min(after(now, period));
        }
    }

    /// How long nothing may have happened.
    pub(crate) fn settle(&self) -> Duration {
        self.timing.settle
    }

    /// Whether a load is to come because of a touch.
    pub(crate) fn is_settling(&self) -> bool {
        self.settling.is_some()
    }

    /// When [`Schedule::step`] will have something to do.
    pub(crate) fn deadline(&self) -> Instant {
        match (self.settling, self.failing) {
            (Some(settling), _) => settling.load_at,
            (None, Some(failing)) => failing.load_at,
            (None, None) => self.resync_at,
        }
    }

    /// What is due.
    pub(crate) fn step(&self, now: Instant) -> Option<Step> {
        if now < self.deadline() {
            return None;
        }
        Some(match (self.settling, self.failing) {
            (Some(settling), _) if !settling.at_once => Step::Settled,
            (Some(_), _) => Step::Load,
            (None, Some(_)) => Step::Retry,
            (None, None) => Step::Resync,
        })
    }
}

/// A period may be as long as "never", which no clock reaches.
fn after(now: Instant, period: Duration) -> Instant {
    now.checked_add(period).unwrap_or_else(|| now + NEVER)
}

/// 30 years.
const NEVER: Duration = Duration::from_secs(30 * 365 * 24 * 60 * 60);

impl Default for Timing {
    fn default() -> Self {
        Self {
            settle: Duration::from_millis(50),
            ceiling: Duration::from_secs(1),
            retry_first: Duration::from_millis(10),
            retry_window: Duration::from_secs(1),
            repair: Duration::from_secs(2),
            period: Duration::from_secs(10),
        }
    }
}

#[cfg(test)]
#[path = "schedule_tests.rs"]
mod tests;
