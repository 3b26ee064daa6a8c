//! The proof of the pinned read.
//!
//! For every recipe and every way in which the writer's calls fall between the reader's:
//!
//! 1. What the read returns is the state of the disk at one instant of the time that it took; so is each
//!    error, except [`ReadError::Unsettled`].
//! 2. A writer that is atomic is never seen in between, and never makes the read fail.
//! 3. A disk that stands still, wherever the writer stopped, is read as it is.
//!
//! One stop of the writer at any of its calls and one switch at any of the reader's: all combinations. A
//! second switch: all combinations for the recipes that are short enough. More: at random, from a fixed seed.

use std::fmt::Write as _;

use super::recipe::{self, Clock, Nature, Recipe};
use super::state::{CONTENT, State};
use super::{FileSystem, Reuse, SimDisk, Switch};
use crate::source::{ReadError, Sabotage, Snapshot, read};

/// One recipe on one kind of disk, with what an instant shows after each of the writer's calls.
pub(super) struct Ground {
    pub(super) recipe: Recipe,
    start: FileSystem,
    pub(super) states: Vec<State>,
    sabotage: Sabotage,
}

/// What became of one interleaving.
pub(super) struct Run {
    answer: Result<Snapshot, ReadError>,
    calls: usize,
    written: usize,
}

#[derive(Default)]
pub(super) struct Report {
    pub(super) interleavings: usize,
    pub(super) restarts_given_up: usize,
    pub(super) violations: Vec<String>,
}

impl Ground {
    pub(super) fn new(recipe: Recipe, clock: Clock, reuse: Reuse) -> Self {
        let start = recipe.disk(clock, reuse);
        let disk = SimDisk::new(start.clone(), recipe.ops.clone());
        let mut states = vec![State::of(&start, &recipe.paths)];
        for _ in &recipe.ops {
            disk.run_writer(1);
            states.push(disk.with_fs(|fs| State::of(fs, &recipe.paths)));
        }
        Self { recipe, start, states, sabotage: Sabotage::default() }
    }

    pub(super) fn with_sabotage(self, sabotage: Sabotage) -> Self {
        Self { sabotage, ..self }
    }

    /// A reader that comes after `done` calls of the writer.
    pub(super) fn run(&self, done: usize, switches: &[Switch]) -> Run {
        let disk = SimDisk::new(self.start.clone(), self.recipe.ops.clone())
            .with_chunk(CONTENT / 2)
            .with_switches(switches)
            .with_sabotage(self.sabotage);
        disk.run_writer(done);
        let answer = read(&disk, &self.recipe.paths).map_err(|(_, error)| error);
        Run { answer, calls: disk.calls(), written: disk.written() }
    }

    fn judge(&self, done: usize, switches: &[Switch], report: &mut Report) -> Run {
        let run = self.run(done, switches);
        report.interleavings += 1;
        let seen = &self.states[done..=run.written];
        let gave_up = matches!(run.answer, Err(ReadError::Unsettled { .. }));
        report.restarts_given_up += usize::from(gave_up);
        let instant = gave_up && run.written > done || seen.iter().any(|state| state.agrees_with(&run.answer));
        let steady = self.recipe.nature != Nature::Atomic || run.answer.is_ok();
        if !(instant && steady) {
            report.violations.push(self.describe(done, switches, &run));
        }
        run
    }

    fn describe(&self, done: usize, switches: &[Switch], run: &Run) -> String {
        let mut text = format!("{}: after {done} calls, {switches:?}\n", self.recipe.name);
        match &run.answer {
            Ok(snapshot) => {
                for (role, ..) in self.recipe.paths.files() {
                    let bytes = snapshot.bytes(role).map(String::from_utf8_lossy);
                    writeln!(text, "  read {role}: {bytes:?}").unwrap();
                }
            }
            Err(error) => writeln!(text, "  read: {error}").unwrap(),
        }
        for (state, op) in self.states[done..=run.written].iter().zip(self.recipe.ops.iter().skip(done)) {
            writeln!(text, "  disk {state:?}\n  then {op:?}").unwrap();
        }
        text
    }

    /// Every stop of the writer, every point of the read, every number of calls there.
    fn one_switch(&self, report: &mut Report) {
        for done in 0..=self.recipe.ops.len() {
            let calls = self.judge(done, &[], report).calls;
            for before_call in 0..calls {
                for ops in 1..=self.recipe.ops.len() - done {
                    self.judge(done, &[Switch { before_call, ops }], report);
                }
            }
        }
    }

    /// Every pair of points, every two numbers of calls there, from the first state on.
    fn two_switches(&self, report: &mut Report) {
        let all = self.recipe.ops.len();
        for before_call in 0..self.run(0, &[]).calls {
            for ops in 1..all {
                let first = Switch { before_call, ops };
                for before_call in before_call + 1..self.run(0, &[first]).calls {
                    for ops in 1..=all - first.ops {
                        self.judge(0, &[first, Switch { before_call, ops }], report);
                    }
                }
            }
        }
    }

    /// As many switches as the writer has calls, anywhere.
    fn random(&self, rounds: u64, report: &mut Report) {
        let calls = self.run(0, &[]).calls;
        for seed in 0..rounds {
            let mut random = Random(seed);
            let done = random.below(self.recipe.ops.len());
            let mut switches = Vec::new();
            let mut left = self.recipe.ops.len() - done;
            while left > 0 && random.below(8) > 0 {
                let ops = 1 + random.below(left.min(4));
                switches.push(Switch { before_call: random.below(calls * 2), ops });
                left -= ops;
            }
            self.judge(done, &switches, report);
        }
    }
}

/// SplitMix64: the same numbers on every machine.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        usize::try_from(mixed % u64::try_from(end.max(1)).unwrap()).unwrap()
    }
}

fn grounds(clock: Clock) -> impl Iterator<Item = Ground> {
    recipe::all().into_iter().map(move |recipe| Ground::new(recipe, clock, Reuse::AtOnce))
}

fn demand_none(name: &str, report: &Report) {
    println!("{name}: {} interleavings, {} given up", report.interleavings, report.restarts_given_up);
    let first = report.violations.first().map_or("", String::as_str);
    assert!(report.violations.is_empty(), "{} violations, the first: {first}", report.violations.len());
}

#[test]
fn recipes_are_what_they_claim_and_end_in_their_last_generation() {
    for Ground { recipe, states, .. } in grounds(Clock::Fine) {
        let whole = |state: &State| (1..=recipe.last).any(|number| state.is_generation(number));
        let first = states.first().unwrap();
        assert!(first.is_generation(1), "{}: {first:?}", recipe.name);
        let last = states.last().unwrap();
        assert!(last.is_generation(recipe.last), "{}: {last:?}", recipe.name);
        match recipe.nature {
            Nature::Atomic => assert!(states.iter().all(whole), "{}", recipe.name),
            Nature::Whole => assert!(states.iter().any(|state| !whole(state)), "{}", recipe.name),
            Nature::Stepwise => assert!(states.iter().any(|state| !whole(state)), "{}", recipe.name),
        }
    }
}

#[test]
fn one_switch_anywhere_shows_one_instant() {
    for ground in grounds(Clock::Fine) {
        let mut report = Report::default();
        ground.one_switch(&mut report);
        demand_none(&format!("one switch, {}", ground.recipe.name), &report);
    }
}

#[test]
fn two_switches_anywhere_show_one_instant() {
    for ground in grounds(Clock::Fine).filter(|ground| ground.recipe.ops.len() <= SHORT) {
        let mut report = Report::default();
        ground.two_switches(&mut report);
        demand_none(&format!("two switches, {}", ground.recipe.name), &report);
    }
}

#[test]
fn switches_at_random_show_one_instant() {
    for ground in grounds(Clock::Fine) {
        let mut report = Report::default();
        ground.random(300, &mut report);
        demand_none(&format!("at random, {}", ground.recipe.name), &report);
    }
}

/// The number of calls up to which a writer is explored with two switches.
const SHORT: usize = 8;
