//! Follows one set of files: decides what an event means, when to load, and what was seen last.
//!
//! Generic over the disk and over what happens to what was read ([`Host`]), so that tests drive the same
//! code over a simulated disk and invented time.

use std::time::Instant;

use super::schedule::{Schedule, Step, Timing, Verdict};
use crate::events::Trigger;
use crate::load::LoadError;
use crate::paths::Paths;
use crate::source::{self, Digest, Disk, ReadError, Snapshot, Timestamp, Trace, Walk};
use crate::watch::Touch;

/// What a tracker needs from around it.
pub(crate) trait Host {
    type Disk: Disk;

    fn disk(&self) -> &Self::Disk;
    fn now(&self) -> Instant;
    /// The clock that stamps files.
    fn wall_clock(&self) -> Timestamp;
    /// Watches what `trace` looked up. Whether something is watched that was not before.
    fn watch(&mut self, trace: &Trace) -> bool;
    /// Validates what was read, and publishes it.
    fn accept(&mut self, snapshot: &Snapshot, trigger: Trigger) -> Result<(), LoadError>;
}

/// The state of one set of files.
#[derive(Debug)]
pub(crate) struct Tracker {
    paths: Paths,
    schedule: Schedule,
    /// What the last look found.
    seen: Option<Trace>,
    /// What was accepted last.
    live: Option<Live>,
    /// What made us look, if a load is to come.
    trigger: Option<Trigger>,
    looked_at: Option<Instant>,
    loaded_at: Option<Instant>,
    /// Files that were written a moment ago are not believed yet.
    hesitates: bool,
    /// What is read has to be what was looked at.
    bound: bool,
    /// It was not.
    slipped: bool,
    /// See [`Tracker::distrust_identities`].
    distrusts: bool,
}

#[derive(Debug)]
struct Live {
    digest: Digest,
    trace: Trace,
    /// The files were old enough: the same identities are the same bytes.
    proven: bool,
}

/// What a look found, the weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Change {
    Nothing,
    /// The same files, too young to be sure of their content.
    Unproven,
    /// One link that leads to all of them.
    MovedAsOne,
    Files,
}

/// What came of a load.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) trigger: Trigger,
    pub(crate) result: Result<Loaded, (LoadError, Verdict)>,
}

/// What a good load brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Loaded {
    pub(crate) swapped: bool,
}

impl Tracker {
    pub(crate) fn new(paths: Paths, timing: Timing, now: Instant) -> Self {
        Self {
            paths,
            schedule: Schedule::new(timing, now),
            seen: None,
            live: None,
            trigger: None,
            looked_at: None,
            loaded_at: None,
            hesitates: false,
            bound: false,
            slipped: false,
            distrusts: false,
        }
    }

    pub(crate) fn paths(&self) -> &Paths {
        &self.paths
    }

    pub(crate) fn schedule(&mut self) -> &mut Schedule {
        &mut self.schedule
    }

    pub(crate) fn deadline(&self) -> Instant {
        self.schedule.deadline()
    }

    /// Whether equal identities prove nothing, whatever their age: a network file system shows them from its
    /// cache until a file is opened.
    pub(crate) fn distrust_identities(&mut self, distrusts: bool) {
        self.distrusts = distrusts;
    }

    /// Whether something was touched that is not loaded yet.
    pub(crate) fn expects_load(&self) -> bool {
        self.schedule.is_settling()
    }

    /// The kernel told of a change at `at`, or before.
    pub(crate) fn touched<H: Host>(&mut self, host: &mut H, touch: Touch, at: Instant) {
        let covered = match touch {
            Touch::Entries => self.looked_at,
            Touch::Contents => self.loaded_at,
        };
        if covered.is_some_and(|begun| at < begun) {
            return;
        }
        match touch {
            Touch::Entries => self.look(host, Trigger::Event),
            Touch::Contents => {
                self.trigger.get_or_insert(Trigger::Event);
                self.schedule.touched(host.now());
            }
        }
    }

    /// Resolves the paths, watches what they lead through, and decides whether there is something to load.
    pub(crate) fn look<H: Host>(&mut self, host: &mut H, trigger: Trigger) {
        match self.compare(host) {
            Change::Nothing => return,
            Change::MovedAsOne => self.schedule.load_now(host.now()),
            Change::Unproven | Change::Files => self.schedule.touched(host.now()),
        }
        self.trigger.get_or_insert(trigger);
    }

    /// Tries once more to watch what could not be watched. If that helps, what happened until now is looked for.
    pub(crate) fn watch_again<H: Host>(&mut self, host: &mut H) {
        if self.seen.as_ref().is_some_and(|seen| host.watch(seen)) {
            self.look(host, Trigger::Event);
        }
    }

    /// Does what is due; `None` where that was not a load.
    pub(crate) fn run<H: Host>(&mut self, host: &mut H) -> Option<Outcome> {
        let now = host.now();
        match self.schedule.step(now)? {
            Step::Load => Some(self.load_seen(host, Trigger::Event)),
            Step::Settled => {
                let changes = matches!(self.compare(host), Change::Files | Change::MovedAsOne);
                if changes && self.schedule.still_changing(host.now()) {
                    return None;
                }
                Some(self.load_seen(host, Trigger::Event))
            }
            Step::Retry => match self.compare(host) {
                Change::Nothing | Change::Unproven | Change::MovedAsOne => {
                    Some(self.load_seen(host, Trigger::Event))
                }
                // Somebody is still at work: the same pauses count as after an event.
                Change::Files => {
                    self.schedule.touched(host.now());
                    None
                }
            },
            Step::Resync => self.resync(host, now),
        }
    }

    /// The first load. No event has told whether somebody is at work on the files, so the files are asked:
    /// unless it is the last try, a set that does not move as one and was written a moment ago is refused.
    pub(crate) fn first_load<H: Host>(&mut self, host: &mut H, last_try: bool) -> Outcome {
        self.hesitates = !last_try;
        let outcome = self.load(host, Trigger::Startup);
        self.hesitates = false;
        outcome
    }

    /// Loads what the last look found. If a writer has begun since, the load is put off until it is quiet
    /// again: the first rename of a rotation may have come between look and read.
    fn load_seen<H: Host>(&mut self, host: &mut H, trigger: Trigger) -> Outcome {
        self.bound = self.seen.is_some();
        let outcome = self.load(host, trigger);
        self.bound = false;
        outcome
    }

    /// What it was at has panicked: a failure like any other, so that it is tried again, in time.
    pub(crate) fn panicked(&mut self, now: Instant) -> Outcome {
        (self.hesitates, self.bound, self.slipped) = (false, false, false);
        let trigger = self.trigger.take().unwrap_or(Trigger::Event);
        Outcome { trigger, result: Err((LoadError::Panicked, self.schedule.failed(now))) }
    }

    /// Reads by content, and publishes what is new.
    pub(crate) fn load<H: Host>(&mut self, host: &mut H, trigger: Trigger) -> Outcome {
        // Who asks gets an answer to his question, also where an event had asked before.
        let pending = self.trigger.take().filter(|_| trigger != Trigger::Manual);
        let trigger = pending.unwrap_or(trigger);
        let mut swapped = false;
        let mut result = Ok(());
        for _ in 0..MAX_LOOKS {
            let now = host.now();
            self.looked_at = Some(now);
            self.loaded_at = Some(now);
            let wall = host.wall_clock();
            let (trace, outcome) = match source::read(host.disk(), &self.paths) {
                Err((trace, error)) => (trace, Err(error.into())),
                Ok(snapshot) => {
                    let accepted = self.accept(host, &snapshot, trigger, wall);
                    (snapshot.into_trace(), accepted)
                }
            };
            swapped |= matches!(outcome, Ok(true));
            result = outcome.map(|_| ());
            let newly_watched = host.watch(&trace);
            // What happened to a directory before it was watched has no event. What slipped is not read again at
            // once: it has to be quiet first.
            let done =
                self.slipped || !newly_watched || (trace.is_proof_at(wall) && trace.still_holds(host.disk()));
            self.seen = Some(trace);
            if done {
                break;
            }
        }
        let now = host.now();
        let result = match result {
            Ok(()) => {
                self.schedule.succeeded(now);
                Ok(Loaded { swapped })
            }
            Err(error) if std::mem::take(&mut self.slipped) => {
                self.trigger.get_or_insert(trigger);
                Err((error, Verdict::Transient))
            }
            Err(error) => {
                let verdict = self.schedule.failed(now);
                Err((error, verdict))
            }
        };
        Outcome { trigger, result }
    }

    fn accept<H: Host>(
        &mut self,
        host: &mut H,
        snapshot: &Snapshot,
        trigger: Trigger,
        wall: Timestamp,
    ) -> Result<bool, LoadError> {
        if self.hesitates && snapshot.trace().is_in_motion_at(host.wall_clock(), self.schedule.settle()) {
            return Err(ReadError::in_motion(self.paths.cert()).into());
        }
        if self.bound && self.differs_from_seen(snapshot.trace()) && self.schedule.slipped(host.now()) {
            self.slipped = true;
            return Err(ReadError::in_motion(self.paths.cert()).into());
        }
        let digest = snapshot.digest();
        let new = self.live.as_ref().is_none_or(|live| live.digest != digest);
        if new {
            host.accept(snapshot, trigger)?;
        }
        let trace = snapshot.trace().clone();
        let proven = trace.is_proof_at(wall);
        self.live = Some(Live { digest, trace, proven });
        Ok(new)
    }

    /// Resolves the paths, watches what they lead through, and compares with what was seen last.
    fn compare<H: Host>(&mut self, host: &mut H) -> Change {
        let mut change = Change::Nothing;
        for _ in 0..MAX_LOOKS {
            let now = host.now();
            let Ok(walk) = Walk::new(host.disk(), &self.paths) else {
                // Not even `/`: no descriptors left, most likely. The next load says so.
                return Change::Files;
            };
            let trace = walk.trace();
            drop(walk);
            self.looked_at = Some(now);
            let newly_watched = host.watch(&trace);
            change = change.max(self.weigh(&trace));
            self.seen = Some(trace);
            // What happened to a directory before it was watched has no event. A set that moved as one is loaded
            // next in any case, which looks again.
            if !newly_watched || change == Change::MovedAsOne {
                break;
            }
        }
        change
    }

    fn differs_from_seen(&self, trace: &Trace) -> bool {
        self.seen.as_ref().is_some_and(|seen| trace != seen && !trace.moved_as_one_since(seen))
    }

    fn weigh(&self, trace: &Trace) -> Change {
        match &self.seen {
            Some(seen) if seen == trace => {
                let proven = self.live.as_ref().is_some_and(|live| live.proven && live.trace == *trace);
                if proven { Change::Nothing } else { Change::Unproven }
            }
            Some(seen) if trace.moved_as_one_since(seen) => Change::MovedAsOne,
            _ => Change::Files,
        }
    }

    fn resync<H: Host>(&mut self, host: &mut H, now: Instant) -> Option<Outcome> {
        self.schedule.resynced(now);
        let Some(live) = &self.live else {
            return Some(self.load_seen(host, Trigger::Resync));
        };
        if !self.distrusts && !live.trace.still_holds(host.disk()) {
            self.look(host, Trigger::Resync);
            return None;
        }
        if live.proven && !self.distrusts { None } else { Some(self.load_seen(host, Trigger::Resync)) }
    }
}

/// How often the paths are resolved again because something newly watched was on the way.
const MAX_LOOKS: u32 = 4;
