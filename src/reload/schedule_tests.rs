//! The schedule under random events, clocks and outcomes: it never starves, never spins, and a failure is
//! told once.

use std::time::{Duration, Instant};

use proptest::collection::vec;
use proptest::prelude::*;

use super::{Schedule, Step, Timing, Verdict};

/// What happens to a slot from outside.
#[derive(Clone, Copy, Debug)]
enum Event {
    Touched,
    LoadNow,
    PeriodSet(Duration),
}

/// How the worker answers a step.
#[derive(Clone, Copy, Debug)]
enum Answer {
    Succeeds,
    Fails,
    /// The files are seen to change still; where that is no reason to wait, the load fails.
    ChangesStill,
}

/// A worker that is never late, with what must be true of its schedule.
struct Worker {
    schedule: Schedule,
    now: Instant,
    /// The first touch that no load has answered.
    touched_at: Option<Instant>,
    /// The first failure since the last success.
    failing_since: Option<Instant>,
    reported: bool,
}

const TIMING: Timing = Timing {
    settle: Duration::from_millis(50),
    ceiling: Duration::from_secs(1),
    retry_first: Duration::from_millis(10),
    retry_window: Duration::from_secs(1),
    repair: Duration::from_secs(2),
    period: Duration::from_secs(10),
};

impl Worker {
    fn new() -> Self {
        let now = Instant::now();
        let schedule = Schedule::new(TIMING, now);
        Self { schedule, now, touched_at: None, failing_since: None, reported: false }
    }

    /// Lets time pass, and does what falls due meanwhile.
    fn pass(&mut self, time: Duration, answers: &mut impl Iterator<Item = Answer>) {
        let end = self.now + time;
        while self.schedule.deadline() <= end {
            let deadline = self.schedule.deadline();
            assert_eq!(self.schedule.step(deadline - NANOSECOND), None, "nothing is due before the deadline");
            self.now = self.now.max(deadline);
            let step = self.schedule.step(self.now).expect("something is due at the deadline");
            self.answer(step, answers.next().unwrap_or(Answer::Succeeds));
            assert!(self.schedule.deadline() > self.now, "an answered step is not due again at once");
            self.check();
        }
        self.now = end;
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Touched => {
                self.schedule.touched(self.now);
                self.touched_at.get_or_insert(self.now);
            }
            Event::LoadNow => {
                self.schedule.load_now(self.now);
                assert_eq!(self.schedule.step(self.now), Some(Step::Load));
            }
            Event::PeriodSet(period) => self.schedule.set_period(period, self.now),
        }
        self.check();
    }

    fn answer(&mut self, step: Step, answer: Answer) {
        match (step, answer) {
            (Step::Resync, _) => {
                assert_eq!(self.touched_at, None, "a touch is answered by a load");
                assert_eq!(self.failing_since, None, "a failure is answered by a load");
                self.schedule.resynced(self.now);
            }
            (Step::Settled, Answer::ChangesStill) if self.schedule.still_changing(self.now) => {}
            (_, Answer::Succeeds) => {
                let recovered = self.schedule.succeeded(self.now);
                assert_eq!(recovered, self.reported, "the end of a failure is told if its begin was");
                self.loaded();
                (self.failing_since, self.reported) = (None, false);
            }
            (_, Answer::Fails | Answer::ChangesStill) => {
                let verdict = self.schedule.failed(self.now);
                self.loaded();
                self.judge(verdict);
            }
        }
    }

    fn loaded(&mut self) {
        let waited = self.touched_at.take().map(|touched_at| self.now - touched_at);
        assert!(waited <= Some(TIMING.ceiling), "nothing pushes a load beyond the ceiling: {waited:?}");
    }

    fn judge(&mut self, verdict: Verdict) {
        let lasted = self.now - *self.failing_since.get_or_insert(self.now);
        match verdict {
            Verdict::Report => {
                assert!(!self.reported, "a failure is told once");
                assert!(lasted >= TIMING.retry_window, "told after {lasted:?}");
                self.reported = true;
            }
            Verdict::Known => assert!(self.reported, "known before it was told"),
            Verdict::Transient if self.reported => {}
            Verdict::Transient => assert!(lasted < TIMING.retry_window, "not told after {lasted:?}"),
        }
    }

    fn check(&self) {
        let ahead = self.schedule.deadline().saturating_duration_since(self.now);
        let limit = if self.failing_since.is_some() { TIMING.repair } else { TIMING.period };
        assert!(ahead <= limit, "the next look is {ahead:?} away");
        let waited = self.touched_at.map(|touched_at| self.now - touched_at);
        assert!(waited <= Some(TIMING.ceiling), "a touch waits for a load since {waited:?}");
    }
}

fn event() -> impl Strategy<Value = (Duration, Event)> {
    let event = prop_oneof![
        6 => Just(Event::Touched),
        1 => Just(Event::LoadNow),
        1 => (1..=10_u64).prop_map(|seconds| Event::PeriodSet(Duration::from_secs(seconds))),
    ];
    // Close together, apart, and far apart.
    let gap = prop_oneof![0..5_u64, 30..70_u64, 500..15_000_u64];
    (gap.prop_map(Duration::from_millis), event)
}

fn answer() -> impl Strategy<Value = Answer> {
    prop_oneof![Just(Answer::Succeeds), Just(Answer::Fails), Just(Answer::ChangesStill)]
}

proptest! {
    #[test]
    fn whatever_happens_it_neither_starves_nor_spins(
        events in vec(event(), 0..200),
        answers in vec(answer(), 0..400),
        more_failures in 0..30_usize,
    ) {
        let mut answers = answers.into_iter().chain(vec![Answer::Fails; more_failures]);
        let mut worker = Worker::new();
        for (gap, event) in events {
            worker.pass(gap, &mut answers);
            worker.happen(event);
        }
        worker.pass(Duration::from_secs(60), &mut answers);
    }

    #[test]
    fn chatter_delays_a_load_to_the_ceiling_and_not_beyond(gaps in vec(0..50_u64, 100..300)) {
        let mut worker = Worker::new();
        let mut answers = std::iter::repeat(Answer::ChangesStill);
        for gap in gaps {
            worker.happen(Event::Touched);
            worker.pass(Duration::from_millis(gap), &mut answers);
        }
    }

    #[test]
    fn without_events_there_are_only_resyncs(periods in 1..100_u32) {
        let start = Instant::now();
        let mut schedule = Schedule::new(TIMING, start);
        for count in 1..=periods {
            let now = schedule.deadline();
            prop_assert_eq!(now, start + TIMING.period * count);
            prop_assert_eq!(schedule.step(now), Some(Step::Resync));
            schedule.resynced(now);
        }
    }
}

#[test]
fn failed_loads_are_retried_with_growing_pauses_then_at_the_pace_of_repair() {
    let start = Instant::now();
    let mut schedule = Schedule::new(TIMING, start);
    schedule.load_now(start);
    let mut told = Vec::new();
    for at in [0, 10, 30, 70, 150, 310, 630, 1000, 3000, 5000] {
        let now = start + Duration::from_millis(at);
        assert_eq!(schedule.deadline(), now, "at {at} ms");
        assert_eq!(schedule.step(now), Some(if at == 0 { Step::Load } else { Step::Retry }));
        told.push(schedule.failed(now));
    }
    let mut expected = vec![Verdict::Transient; 7];
    expected.extend([Verdict::Report, Verdict::Known, Verdict::Known]);
    assert_eq!(told, expected);
}

/// A touch says that somebody is at work on it, which is no reason to tell of the failure again.
/// Polled every 100 ms, a repair was seen after 2 s: once a failure was reported, the period was forgotten.
#[test]
fn repair_is_looked_for_as_often_as_files_are_polled() {
    let period = Duration::from_millis(100);
    let begin = Instant::now();
    let mut schedule = Schedule::new(Timing { period, ..TIMING }, begin);
    let mut now = begin;
    while schedule.failed(now) == Verdict::Transient {
        now = schedule.deadline();
    }
    assert_eq!(schedule.deadline(), now + period);
}

#[test]
fn touch_after_a_report_is_looked_at_closely_and_not_told_twice() {
    let start = Instant::now();
    let mut schedule = Schedule::new(TIMING, start);
    assert_eq!(schedule.failed(start), Verdict::Transient);
    let reported = start + TIMING.retry_window;
    assert_eq!(schedule.failed(reported), Verdict::Report);
    schedule.touched(reported);
    let settled = reported + TIMING.settle;
    assert_eq!(schedule.step(settled), Some(Step::Settled));
    assert_eq!(schedule.failed(settled), Verdict::Transient);
    assert_eq!(schedule.deadline(), settled + TIMING.retry_first);
    assert_eq!(schedule.failed(settled + TIMING.retry_window), Verdict::Known);
    assert!(schedule.succeeded(settled + TIMING.retry_window));
}

#[test]
fn set_that_moves_as_one_is_loaded_at_once_whatever_is_touched_then() {
    let start = Instant::now();
    let mut schedule = Schedule::new(TIMING, start);
    schedule.touched(start);
    assert_eq!(schedule.step(start), None);
    schedule.load_now(start);
    schedule.touched(start);
    assert_eq!(schedule.step(start), Some(Step::Load));
}

/// Found by reading: each load that is asked for while nothing good is there doubled the pause to the next
/// retry, until the clock could not be added to: some seventy `reload_now()` within a second killed the thread.
#[test]
fn any_number_of_failures_within_the_window_leaves_the_next_retry_within_it() {
    let (timing, now) = (TIMING, Instant::now());
    let mut schedule = Schedule::new(timing, now);
    for _ in 0..1000 {
        assert_eq!(schedule.failed(now), Verdict::Transient);
        assert!(schedule.deadline() > now && schedule.deadline() <= now + timing.retry_window);
    }
}

/// Found by fuzzing: a period that stands for "never" was added to the clock, which panicked at start.
#[test]
fn a_period_may_be_for_ever() {
    let now = Instant::now();
    let mut schedule = Schedule::new(Timing { period: Duration::MAX, ..TIMING }, now);
    schedule.resynced(now);
    assert!(schedule.deadline() > now + Duration::from_secs(1 << 29));
    schedule.set_period(Duration::from_secs(2), now);
    assert_eq!(schedule.deadline(), now + Duration::from_secs(2));
}

const NANOSECOND: Duration = Duration::from_nanos(1);

/// Somebody who rewrote a broken file every 400 ms stopped the counting of its failure: each touch began a new
/// window in which failures are no news.
#[test]
fn failure_that_goes_on_is_told_again_however_often_files_are_touched() {
    let start = Instant::now();
    let mut schedule = Schedule::new(TIMING, start);
    let (mut told, mut now) = (0, start);
    while now < start + Duration::from_secs(20) {
        schedule.touched(now);
        now = schedule.deadline().max(now + Duration::from_millis(400));
        told += u32::from(schedule.failed(now) != Verdict::Transient);
    }
    assert!((8..=11).contains(&told), "about every 2 s: {told} times in 20 s");
}
