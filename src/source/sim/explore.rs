//! Runs the read against a writer, with the writer's calls between the reader's in many or in all ways, and
//! judges each answer by what the disk showed meanwhile.

use std::fmt::Write as _;
use std::sync::Arc;

use super::recipe::{Clock, Nature, Recipe};
use super::state::{CONTENT, State};
use super::{FileSystem, Reuse, SimDisk, Switch};
use crate::paths::Role;
use crate::source::{ReadError, Sabotage, Snapshot, read};

/// One recipe on one kind of disk, with what an instant shows after each of the writer's calls.
pub(super) struct Ground {
    pub(super) recipe: Recipe,
    /// The disk after each of the writer's calls, and what it shows.
    disks: Vec<FileSystem>,
    pub(super) states: Vec<State>,
    sabotage: Sabotage,
}

/// What became of one interleaving.
struct Run {
    answer: Result<Snapshot, ReadError>,
    calls: usize,
    written: usize,
}

/// How many interleavings were right, or the first that was not.
pub(super) type Report = Result<usize, String>;

impl Ground {
    pub(super) fn new(recipe: Recipe, clock: Clock, reuse: Reuse) -> Self {
        let disk = SimDisk::new(recipe.disk(clock, reuse), Arc::clone(&recipe.ops));
        let mut disks = vec![disk.with_fs(|fs| fs.clone())];
        for _ in recipe.ops.iter() {
            disk.run_writer(1);
            disks.push(disk.with_fs(|fs| fs.clone()));
        }
        let states = disks.iter().map(|fs| State::of(fs, &recipe.paths)).collect();
        Self { recipe, disks, states, sabotage: Sabotage::default() }
    }

    pub(super) fn with_sabotage(self, sabotage: Sabotage) -> Self {
        Self { sabotage, ..self }
    }

    /// A reader that comes after `done` calls of the writer.
    fn run(&self, done: usize, switches: &[Switch]) -> Run {
        let disk = SimDisk::new(self.disks[done].clone(), Arc::clone(&self.recipe.ops))
            .after(done)
            .with_chunk(CONTENT / 2)
            .with_switches(switches)
            .with_sabotage(self.sabotage);
        let answer = read(&disk, &self.recipe.paths).map_err(|(_, error)| error);
        Run { answer, calls: disk.calls(), written: disk.written() }
    }

    /// Whether the answer was the state of the disk at one instant of the time that the read took. Returns
    /// how many calls the reader needed.
    fn judge(&self, done: usize, switches: &[Switch]) -> Report {
        let run = self.run(done, switches);
        let seen = &self.states[done..=run.written];
        let gave_up = matches!(run.answer, Err(ReadError::Unsettled { .. })) && run.written > done;
        let instant = gave_up || seen.iter().any(|state| state.agrees_with(&run.answer));
        let steady = self.recipe.nature != Nature::Atomic || run.answer.is_ok();
        if instant && steady { Ok(run.calls) } else { Err(self.describe(done, switches, &run)) }
    }

    fn describe(&self, done: usize, switches: &[Switch], run: &Run) -> String {
        let mut text = format!("{}: after {done} calls, {switches:?}\n", self.recipe.name);
        match &run.answer {
            Ok(snapshot) => {
                for role in [Role::Cert, Role::Key, Role::Ca, Role::Crl] {
                    for (path, bytes) in snapshot.all(role) {
                        let bytes = String::from_utf8_lossy(bytes);
                        writeln!(text, "  read {role}: {}: {bytes:?}", path.display()).unwrap();
                    }
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
    pub(super) fn one_switch(&self) -> Report {
        let mut count = 0;
        for done in 0..=self.recipe.ops.len() {
            for before_call in 0..self.judge(done, &[])? {
                for ops in 1..=self.recipe.ops.len() - done {
                    self.judge(done, &[Switch { before_call, ops }])?;
                    count += 1;
                }
            }
        }
        Ok(count)
    }

    /// Every pair of points, every two numbers of calls there, from the first state on.
    pub(super) fn two_switches(&self) -> Report {
        let mut count = 0;
        let all = self.recipe.ops.len();
        for before_call in 0..self.judge(0, &[])? {
            for ops in 1..all {
                let first = Switch { before_call, ops };
                for before_call in before_call + 1..self.judge(0, &[first])? {
                    for ops in 1..=all - first.ops {
                        self.judge(0, &[first, Switch { before_call, ops }])?;
                        count += 1;
                    }
                }
            }
        }
        Ok(count)
    }

    /// One switch after the other of these sizes, each at every point.
    pub(super) fn switches_of(&self, sizes: &[usize]) -> Report {
        self.place(sizes, &mut Vec::new())
    }

    fn place(&self, sizes: &[usize], placed: &mut Vec<Switch>) -> Report {
        let calls = self.judge(0, placed)?;
        let Some((&ops, sizes)) = sizes.split_first() else { return Ok(1) };
        let from = placed.last().map_or(0, |switch| switch.before_call + 1);
        let mut count = 0;
        for before_call in from..calls {
            placed.push(Switch { before_call, ops });
            count += self.place(sizes, placed)?;
            placed.pop();
        }
        Ok(count)
    }

    /// As many switches as the writer has calls, anywhere.
    pub(super) fn random(&self, rounds: u64) -> Report {
        let calls = self.judge(0, &[])?;
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
            self.judge(done, &switches)?;
        }
        Ok(usize::try_from(rounds).unwrap())
    }
}

/// SplitMix64: the same numbers on every machine.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        usize::try_from(mixed % u64::try_from(end.max(1)).unwrap()).unwrap()
    }
}
