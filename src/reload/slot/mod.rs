//! One identity, as the reload thread looks after it.

mod host;
mod report;
mod shared;

pub(super) use self::shared::Shared;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use log::{debug, info, warn};

use self::host::SlotHost;
use super::expiry;
use super::schedule::{Step, Timing, Verdict};
use super::tracker::{Loaded, Outcome, Tracker};
use crate::events::{Event, Trigger};
use crate::load::LoadError;
use crate::metrics::ReloadResult;
use crate::paths::Paths;
use crate::watch::{self, Touch, Watch, WatchFailure};

/// The reload thread's side of an identity.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) shared: Arc<Shared>,
    tracker: Tracker,
    /// The first event that the coming load answers.
    first_event: Option<Instant>,
    timing: Timing,
    poll: Duration,
    /// The kernel tells of changes to every file.
    by_events: bool,
    /// What the place of the files says about their changes.
    place: Option<WatchFailure>,
    /// Losses of events that were told of.
    overflows: u64,
    /// Not yet compared since it is watched.
    starting: bool,
    /// What metrics were told last.
    healthy: Option<bool>,
    /// What is still to be said of the certificate that is served.
    expiry: Option<expiry::Expiry>,
    expiry_at: Option<Instant>,
    /// The revocation list that was said to have expired.
    crl_expired: Option<i64>,
}

impl Slot {
    pub(super) fn new(shared: Arc<Shared>, paths: Paths, timing: Timing, poll: Duration) -> Self {
        let tracker = Tracker::new(paths, timing, Instant::now());
        Self {
            shared,
            tracker,
            first_event: None,
            timing,
            poll,
            by_events: false,
            place: None,
            overflows: 0,
            healthy: None,
            expiry: None,
            expiry_at: None,
            crl_expired: None,
            starting: false,
        }
    }

    pub(super) fn deadline(&self) -> Instant {
        let deadline = self.tracker.deadline();
        self.expiry_at.map_or(deadline, |at| at.min(deadline))
    }

    /// The first load, on the thread that starts. Nothing is watched yet: [`Slot::watched`] makes up for it.
    pub(super) fn first_load(&mut self, last_try: bool) -> Result<(), LoadError> {
        self.load(None, |tracker, host| tracker.first_load(host, last_try)).map(|_| ())
    }

    /// Nothing can be loaded at start, and that is allowed.
    pub(super) fn begins_without(&self, error: LoadError) {
        warn!("identity={} serving nothing yet: {error}", self.shared.identity);
        self.report_failure(Trigger::Startup, &error);
        self.shared.status.lock().failing = Some((Instant::now(), Arc::new(error)));
    }

    /// Taken up by the reload thread: from now on it is watched, and what happened until now is looked for.
    pub(super) fn watched(&mut self, watch: &Watch) {
        self.place = self.failure_of_place();
        self.overflows = watch.overflows();
        self.drive(Some(watch), |tracker, host| {
            tracker.look(host, Trigger::Event);
            None
        });
        // Young files are read once more, which is part of the start.
        self.starting = self.tracker.expects_load();
    }

    pub(super) fn touched(&mut self, watch: &Watch, touch: Touch, at: Instant) {
        self.first_event.get_or_insert(at);
        self.drive(Some(watch), |tracker, host| {
            tracker.touched(host, touch, at);
            None
        });
        if !self.tracker.expects_load() {
            self.first_event = None;
        }
    }

    /// Events were lost.
    pub(super) fn look(&mut self, watch: &Watch, at: Instant) {
        let overflows = watch.overflows();
        for _ in self.overflows..overflows {
            self.shared.report(|metrics, subject| metrics.watch_overflow(subject));
        }
        self.overflows = overflows;
        self.touched(watch, Touch::Entries, at);
        self.touched(watch, Touch::Contents, at);
    }

    /// Does what is due.
    pub(super) fn run(&mut self, watch: &Watch) {
        if watch.failure_of(self.shared.id).is_some() {
            // The limit may have been lifted, or others have let go. That is no touch: it must not push a load.
            watch.revive();
            self.drive(Some(watch), |tracker, host| {
                tracker.watch_again(host);
                None
            });
        }
        let resync = self.tracker.schedule().step(Instant::now()) == Some(Step::Resync);
        let mut loaded = false;
        self.drive(Some(watch), |tracker, host| {
            let outcome = tracker.run(host);
            loaded = outcome.is_some();
            outcome
        });
        if resync && !loaded && !self.tracker.expects_load() {
            self.checked(ReloadResult::Unchanged);
        }
    }

    /// Loads because somebody asks for it.
    pub(super) fn reload(&mut self, watch: &Watch) -> Result<Loaded, LoadError> {
        self.load(Some(watch), |tracker, host| tracker.load(host, Trigger::Manual))
    }

    fn load(
        &mut self,
        watch: Option<&Watch>,
        load: impl FnOnce(&mut Tracker, &mut SlotHost<'_>) -> Outcome,
    ) -> Result<Loaded, LoadError> {
        let mut result = Ok(Loaded { swapped: false });
        self.drive(watch, |tracker, host| {
            let outcome = load(tracker, host);
            result = match &outcome.result {
                Ok(loaded) => Ok(*loaded),
                Err((error, _)) => Err(error.clone()),
            };
            Some(outcome)
        });
        result
    }

    /// Lets the tracker work, then notes and tells what came of it.
    fn drive(
        &mut self,
        watch: Option<&Watch>,
        work: impl FnOnce(&mut Tracker, &mut SlotHost<'_>) -> Option<Outcome>,
    ) {
        let mut host = SlotHost::new(&self.shared, self.tracker.paths(), watch, self.first_event);
        // A panic in there must not end reloading for every identity of the watcher.
        let outcome = catch_unwind(AssertUnwindSafe(|| work(&mut self.tracker, &mut host)));
        let outcome = outcome.unwrap_or_else(|_| Some(self.tracker.panicked(Instant::now())));
        if outcome.as_ref().is_some_and(|outcome| outcome.result.is_ok()) {
            // Before anybody is called back: a callback may ask how we are.
            host.ends_failure();
        }
        let (swaps, recovered) = host.into_news();
        if let Some(watch) = watch {
            self.judge_watching(watch);
        }
        for swap in swaps {
            self.expiry = Some(expiry::Expiry::of(swap.generation().bundle().leaf().validity()));
            let missed = swap.trigger() == Trigger::Resync && self.by_events;
            self.announce(swap, missed);
        }
        if recovered {
            info!("identity={} recovered: the files are right again", self.shared.identity);
            self.tell(&Event::Recovered);
        }
        match outcome {
            Some(Outcome { result: Ok(loaded), trigger }) => {
                self.first_event = None;
                if loaded.swapped || self.place.is_some() {
                    self.place = self.failure_of_place();
                }
                if loaded.swapped {
                    self.starting = false;
                } else {
                    self.unchanged(trigger);
                }
                // Young files are read at each resync: that is no load until it brings something.
                let counts = loaded.swapped || trigger != Trigger::Resync;
                self.shared.status.lock().stats.loads += u64::from(counts);
                let news = if loaded.swapped { "loaded" } else { "unchanged" };
                debug!("identity={} trigger={} {news}", self.shared.identity, trigger.as_str());
            }
            Some(Outcome { result: Err((error, verdict)), trigger }) => {
                self.starting = false;
                let lasts = verdict != Verdict::Transient && trigger != Trigger::Startup;
                if lasts || trigger == Trigger::Manual {
                    self.report_failure(trigger, &error);
                } else {
                    self.checked(ReloadResult::Failed);
                }
                self.failed(error, verdict);
            }
            None => {}
        }
        self.drop_stale_staple();
        self.warn_of_expired_crl();
        self.warn_of_expiry();
        self.report_health();
    }

    /// Polls where the kernel does not tell of every change, and says so, once.
    fn judge_watching(&mut self, watch: &Watch) {
        let failure = watch.failure_of(self.shared.id).or_else(|| self.place.clone());
        self.by_events = watch.listens() && failure.is_none();
        let period = if self.by_events { self.timing.period } else { self.poll };
        self.tracker.schedule().set_period(period, Instant::now());
        self.tracker.distrust_identities(failure.as_ref().is_some_and(WatchFailure::caches_identities));
        let before = std::mem::replace(&mut self.shared.status.lock().degraded, failure.clone());
        match (before, failure) {
            (before, Some(failure)) if before.as_ref() != Some(&failure) => {
                // What concerns all of its identities is logged by the watch.
                if self.place.is_some() {
                    warn!("identity={} polling every {:.1?}: {failure}", self.shared.identity, self.poll);
                }
                self.tell(&Event::WatchDegraded(failure));
            }
            (Some(_), None) => {
                info!("identity={} the kernel tells of every change again", self.shared.identity);
                self.tell(&Event::WatchRestored);
            }
            _ => {}
        }
    }

    fn failure_of_place(&self) -> Option<WatchFailure> {
        self.tracker.paths().files().find_map(|(_, path, _)| watch::failure_of_place(path))
    }

    fn tell(&self, event: &Event) {
        self.shared.listeners.tell(&self.shared.gate, event);
    }
}
