//! One identity: what its handles and the reload thread share, and what the thread does for it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use log::{debug, error, info, warn};
use parking_lot::Mutex;
use rustls::pki_types::UnixTime;
use rustls::time_provider::TimeProvider;

use super::expiry;
use super::health::{Health, Stats, Status};
use super::schedule::{Step, Timing, Verdict};
use super::tracker::{Host, Loaded, Outcome, Tracker};
use super::watcher::Pulse;
use crate::bundle::{Purpose, Warning};
use crate::events::{Event, Gate, Listeners, Swap, Trigger};
use crate::load::{self, LoadError};
use crate::metrics::{Expiry, Live, Metrics, ReloadResult, Reporter, Subject};
use crate::paths::Paths;
use crate::source::{OsDisk, Snapshot, Timestamp, Trace};
use crate::store::Store;
use crate::watch::{self, SlotId, Touch, Watch, WatchFailure};

/// What handles, the reload thread and health share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) id: SlotId,
    /// The label of logs and metrics.
    pub(super) identity: String,
    pub(super) store: Arc<Store>,
    pub(super) listeners: Listeners,
    pub(super) gate: Gate,
    pub(super) reporter: Reporter,
    pub(super) pulse: Pulse,
    pub(super) time_provider: Option<Arc<dyn TimeProvider>>,
    pub(super) status: Mutex<Status>,
}

impl Shared {
    pub(super) fn now(&self) -> UnixTime {
        self.time_provider.as_ref().and_then(|time| time.current_time()).unwrap_or_else(UnixTime::now)
    }

    pub(super) fn stats(&self) -> Stats {
        Stats {
            callback_panics: self.listeners.panics() + self.reporter.panics(),
            dropped_events: self.listeners.dropped(),
            ..self.status.lock().stats
        }
    }

    pub(super) fn health(&self) -> Health {
        if !self.gate.is_open() {
            return Health::Stopped;
        }
        self.pulse.health(Instant::now()).unwrap_or_else(|| {
            let live = self.store.current();
            self.status.lock().health(live.as_ref().map(|live| live.bundle().as_ref()), self.now())
        })
    }

    /// Tells metrics, as if it were a callback.
    fn report(&self, tell: impl FnOnce(&dyn Metrics, &Subject)) {
        self.listeners.call(&self.gate, || self.reporter.report(tell));
    }
}

impl Live for Shared {
    fn generation(&self) -> u64 {
        self.store.number()
    }

    fn expiry(&self) -> Option<Expiry> {
        let generation = self.store.current()?;
        let bundle = generation.bundle();
        let validity = bundle.leaf().validity();
        let trust = bundle.trust().and_then(|trust| trust.trust_not_after());
        Some(Expiry::new(validity.not_before, validity.not_after, bundle.chain_not_after(), trust))
    }

    fn is_healthy(&self) -> bool {
        let well = matches!(self.health(), Health::Ready | Health::ExpiringSoon { .. });
        well && self.status.lock().degraded.is_none()
    }
}

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
        let mut host = SlotHost {
            shared: &self.shared,
            paths: self.tracker.paths().clone(),
            watch,
            first_event: self.first_event,
            swaps: Vec::new(),
            recovered: false,
        };
        let outcome = work(&mut self.tracker, &mut host);
        if outcome.as_ref().is_some_and(|outcome| outcome.result.is_ok()) {
            // Before anybody is called back: a callback may ask how we are.
            host.ends_failure();
        }
        let SlotHost { swaps, recovered, .. } = host;
        if let Some(watch) = watch {
            self.judge_watching(watch);
        }
        for swap in swaps {
            self.expiry = Some(expiry::Expiry::of(swap.generation().bundle().leaf().validity()));
            self.announce(swap);
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
                debug!("identity={} trigger={trigger:?} loaded", self.shared.identity);
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
        self.warn_of_expiry();
        self.report_health();
    }

    /// Warns when the certificate that is served runs out, whatever happens on the disk. Judged by the wall
    /// clock each time that the slot is looked after, so that a clock that jumps is seen within a resync.
    fn warn_of_expiry(&mut self) {
        let Some(expiry) = &mut self.expiry else { return };
        let now = i64::try_from(self.shared.now().as_secs()).unwrap_or(i64::MAX);
        let due = expiry.due(now);
        self.expiry_at = expiry.next(now).and_then(|wait| Instant::now().checked_add(wait));
        let Some(generation) = self.shared.store.current().filter(|_| due.is_some()) else { return };
        let leaf = generation.bundle().leaf();
        let (identity, serial, not_after) = (&self.shared.identity, leaf.serial(), leaf.validity().not_after);
        match due {
            Some(expiry::Notice::Expiring { left }) => {
                let hours = left.as_secs() / 3600;
                warn!("identity={identity} serial={serial} not_after={not_after} expires in {hours} h");
                self.tell(&Event::Expiring { generation, left });
            }
            Some(expiry::Notice::Expired) => {
                error!(
                    "identity={identity} serial={serial} not_after={not_after} has expired, and is still served"
                );
                self.tell(&Event::Expired { generation });
            }
            None => {}
        }
    }

    fn announce(&self, swap: Swap) {
        let missed = swap.trigger() == Trigger::Resync && self.by_events;
        {
            let mut status = self.shared.status.lock();
            status.stats.swaps += 1;
            status.stats.missed_events += u64::from(missed);
        }
        log_swap(&self.shared.identity, &swap);
        self.report_swap(&swap, missed);
        if swap.trigger() != Trigger::Startup {
            self.tell(&Event::Swapped(swap));
        }
    }

    /// A failure that lasts: said once, and again when the reason changes.
    fn failed(&mut self, error: LoadError, verdict: Verdict) {
        if verdict == Verdict::Transient {
            return;
        }
        self.first_event = None;
        let text = error.to_string();
        let error = Arc::new(error);
        {
            let mut status = self.shared.status.lock();
            let said = status.failing.as_ref().is_some_and(|(_, said)| said.to_string() == text);
            if verdict == Verdict::Known && said {
                return;
            }
            let since = status.failing.as_ref().map_or_else(Instant::now, |(since, _)| *since);
            status.failing = Some((since, Arc::clone(&error)));
            if verdict == Verdict::Report {
                status.stats.loads += 1;
                status.stats.failures += 1;
            }
        }
        let serving = self.shared.store.number();
        warn!("identity={} generation={serving} keeps serving: {text}", self.shared.identity);
        self.tell(&Event::Failed(error));
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

    fn report_swap(&self, swap: &Swap, missed: bool) {
        self.checked(ReloadResult::Swapped);
        let number = swap.generation().number();
        self.shared.report(|metrics, subject| {
            metrics.reload_attempt(subject, swap.trigger(), ReloadResult::Swapped);
            metrics.set_generation(subject, number);
            if let Some(expiry) = subject.expiry() {
                metrics.set_expiry(subject, expiry);
            }
            if let Some(latency) = swap.latency() {
                metrics.reload_duration(subject, latency);
            }
            if missed {
                metrics.missed_event_swap(subject);
            }
        });
    }

    fn report_failure(&self, trigger: Trigger, error: &LoadError) {
        self.checked(ReloadResult::Failed);
        self.shared.report(|metrics, subject| {
            metrics.reload_attempt(subject, trigger, ReloadResult::Failed);
            metrics.reload_failure(subject, error.reason());
        });
    }

    /// A look from time to time that finds nothing new is no attempt, and neither is the second look at start.
    fn unchanged(&mut self, trigger: Trigger) {
        self.checked(ReloadResult::Unchanged);
        let starting = std::mem::replace(&mut self.starting, false) && trigger == Trigger::Event;
        if trigger != Trigger::Resync && !starting {
            self.shared
                .report(|metrics, subject| metrics.reload_attempt(subject, trigger, ReloadResult::Unchanged));
        }
    }

    fn checked(&self, result: ReloadResult) {
        let now = self.shared.now();
        self.shared.report(|metrics, subject| metrics.checked(subject, result, now));
    }

    fn report_health(&mut self) {
        let healthy = self.shared.is_healthy();
        if self.healthy.replace(healthy) != Some(healthy) {
            self.shared.report(|metrics, subject| metrics.set_healthy(subject, healthy));
        }
    }

    fn tell(&self, event: &Event) {
        self.shared.listeners.tell(&self.shared.gate, event);
    }
}

/// The real surroundings of a tracker.
struct SlotHost<'a> {
    shared: &'a Shared,
    paths: Paths,
    watch: Option<&'a Watch>,
    first_event: Option<Instant>,
    swaps: Vec<Swap>,
    /// A failure that was told of has ended.
    recovered: bool,
}

impl SlotHost<'_> {
    fn ends_failure(&mut self) {
        let mut status = self.shared.status.lock();
        let ended = status.failing.take().is_some();
        status.stats.recoveries += u64::from(ended);
        self.recovered |= ended;
    }
}

impl Host for SlotHost<'_> {
    type Disk = OsDisk;

    fn disk(&self) -> &OsDisk {
        &OsDisk
    }

    fn now(&self) -> Instant {
        Instant::now()
    }

    fn wall_clock(&self) -> Timestamp {
        Timestamp::now()
    }

    fn watch(&mut self, trace: &Trace) -> bool {
        let Some(watch) = self.watch else {
            return false;
        };
        watch.set(self.shared.id, trace)
    }

    fn accept(&mut self, snapshot: &Snapshot, trigger: Trigger) -> Result<(), LoadError> {
        let now = self.shared.now();
        let store = &self.shared.store;
        let bundle = load::from_snapshot(snapshot, &self.paths, store.settings().provider(), now)?;
        let previous = store.current();
        load::refuse_worse(&bundle, previous.as_ref().map(|live| live.bundle().as_ref()), &self.paths, now)?;
        let known = previous.as_ref().map_or(&[][..], |live| live.bundle().warnings());
        let news = |warning: &&Warning| concerns_servers(warning) && !known.contains(warning);
        for warning in bundle.warnings().iter().filter(news) {
            warn!("identity={} {}", self.shared.identity, warning.display_with(&self.paths));
        }
        let published = store
            .try_publish(&Arc::new(bundle), || self.shared.gate.is_open())
            .map_err(|error| LoadError::Config { paths: Box::new(self.paths.clone()), error })?;
        if let Some(generation) = published {
            self.ends_failure();
            let latency = self.first_event.map(|event| event.elapsed());
            self.swaps.push(Swap::new(previous, generation, trigger, latency));
        }
        Ok(())
    }
}

/// A certificate that no client may use is what a server has.
fn concerns_servers(warning: &Warning) -> bool {
    !matches!(warning, Warning::PurposeMissing(Purpose::ClientAuth))
}

fn log_swap(identity: &str, swap: &Swap) {
    let number = swap.generation().number();
    let leaf = swap.generation().bundle().leaf();
    let (serial, not_after) = (leaf.serial(), leaf.validity().not_after);
    let trigger = swap.trigger().as_str();
    let latency = swap.latency().map_or_else(String::new, |latency| format!(" latency={latency:.1?}"));
    let changed = swap.difference().map_or_else(String::new, |changes| format!(" changed=\"{changes}\""));
    info!(
        "identity={identity} generation={number} serial={serial} not_after={not_after} trigger={trigger}{latency}{changed} now serving"
    );
}
