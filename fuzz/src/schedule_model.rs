//! A world around the schedule: files that change, break and are repaired, a worker that is late, people who ask.
//! It does what is due and holds every answer against the promises.

use std::time::{Duration, Instant};

use arbitrary::Arbitrary;
use rustls_reload::fuzzing::{Schedule, Step, Verdict};

/// What happens in the world.
#[derive(Arbitrary, Debug)]
pub enum Action {
    /// Time passes; the worker is late by so much each time.
    Wait {
        millis: u16,
        late_millis: u8,
    },
    Touch,
    /// Everything moved in one step.
    Move,
    /// Somebody asks for a load, so many times in a row.
    Reload {
        times: u8,
    },
    /// From now on loads fail, or succeed.
    Broken(bool),
    /// From now on the files change whenever they are looked at, or hold still.
    Restless(bool),
    /// In tenths of a second; 255 is for ever.
    Period(u8),
}

pub struct World {
    schedule: Schedule,
    now: Instant,
    period: Duration,
    is_broken: bool,
    is_restless: bool,
    /// The first touch that no load has answered.
    unanswered: Option<Instant>,
    failing: Option<Failing>,
}

struct Failing {
    since: Instant,
    reported: bool,
}

impl World {
    pub fn new(period: u8) -> Self {
        let (period, now) = (duration(period), Instant::now());
        Self {
            schedule: Schedule::new(period, now),
            now,
            period,
            is_broken: false,
            is_restless: false,
            unanswered: None,
            failing: None,
        }
    }

    pub fn act(&mut self, action: &Action) {
        match *action {
            Action::Wait { millis, late_millis } => self.wait(millis.into(), late_millis.into()),
            Action::Touch => self.touch(),
            Action::Move => {
                self.schedule.load_now(self.now);
                assert_eq!(self.schedule.step(self.now), Some(Step::Load));
            }
            Action::Reload { times } => (0..times).for_each(|_| self.load()),
            Action::Broken(is_broken) => self.is_broken = is_broken,
            Action::Restless(is_restless) => self.is_restless = is_restless,
            Action::Period(period) => {
                self.period = self.period.max(duration(period));
                self.schedule.set_period(duration(period), self.now);
            }
        }
        self.run();
        self.check();
    }

    fn wait(&mut self, millis: u64, late_millis: u64) {
        let end = self.now + Duration::from_millis(millis);
        let mut steps = 0;
        while self.schedule.deadline() <= end {
            self.now = self.now.max(self.schedule.deadline()) + Duration::from_millis(late_millis);
            self.run();
            steps += 1;
            assert!(steps <= 16 + millis / PACE_MILLIS, "spins: {steps} steps in {millis} ms");
        }
        self.now = self.now.max(end);
    }

    /// Does what is due, once: nothing may be due at the same instant again.
    fn run(&mut self) {
        match self.schedule.step(self.now) {
            None => assert!(self.now < self.schedule.deadline()),
            Some(Step::Retry) if self.is_restless => self.touch(),
            Some(Step::Load | Step::Retry) => self.load(),
            Some(Step::Resync) => self.schedule.resynced(self.now),
            Some(Step::Settled) => {
                if !(self.is_restless && self.schedule.still_changing(self.now)) {
                    self.load();
                }
            }
        }
        assert_eq!(self.schedule.step(self.now), None, "due again at once");
    }

    fn touch(&mut self) {
        self.schedule.touched(self.now);
        self.unanswered.get_or_insert(self.now);
    }

    fn load(&mut self) {
        self.unanswered = None;
        if !self.is_broken {
            let was_reported = self.failing.take().is_some_and(|failing| failing.reported);
            assert_eq!(self.schedule.succeeded(self.now), was_reported);
            return;
        }
        let verdict = self.schedule.failed(self.now);
        let failing = self.failing.get_or_insert(Failing { since: self.now, reported: false });
        if failing.reported {
            assert_ne!(verdict, Verdict::Report, "reported twice");
        } else {
            let has_lasted = self.now >= failing.since + RETRY_WINDOW;
            assert_eq!(verdict, if has_lasted { Verdict::Report } else { Verdict::Transient });
            failing.reported = has_lasted;
        }
    }

    fn check(&self) {
        let is_starved = self.unanswered.is_some_and(|touch| self.now >= touch + CEILING);
        assert!(!is_starved, "a touch was not answered within the ceiling");
        let longest = match (self.unanswered, &self.failing) {
            (Some(_), _) => SETTLE,
            (None, Some(_)) => REPAIR,
            (None, None) => self.period,
        };
        assert!(self.schedule.deadline().duration_since(self.now) <= longest, "sleeps too long");
    }
}

fn duration(tenths: u8) -> Duration {
    match tenths {
        u8::MAX => Duration::MAX,
        _ => Duration::from_millis(100) * u32::from(tenths.max(1)),
    }
}

/// As documented in `ARCHITECTURE.md`.
const SETTLE: Duration = Duration::from_millis(50);
const CEILING: Duration = Duration::from_secs(1);
const RETRY_WINDOW: Duration = Duration::from_secs(1);
const REPAIR: Duration = Duration::from_secs(2);

/// A step for each quiet time, and a first retry after 10 ms now and then.
const PACE_MILLIS: u64 = 40;
