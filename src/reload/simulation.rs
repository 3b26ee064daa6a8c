//! The tracker and its schedule on the simulated disk, in invented time: what is *published* is whole.
//!
//! The read proves one instant (`source/sim`); a writer that renames a certificate and then a CA has instants
//! that are mixed. Here the whole path from an event to a publish runs against every recipe, with a key that
//! fits every certificate, so that only the schedule stands between such an instant and the clients.
//!
//! The property, for a writer that pauses less than the settle time between its calls and is done before the
//! ceiling, and at any pace for one that moves its files as one:
//!
//! - whatever is published is one generation that was on the disk as a whole;
//! - when the writer is done, its last generation is published, by events at once, without any by a resync.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::builder::START_PAUSES;
use super::schedule::Timing;
use super::tracker::{Host, Tracker};
use crate::events::Trigger;
use crate::load::LoadError;
use crate::paths::Role;
use crate::source::sim::recipe::{self, Clock, Recipe};
use crate::source::sim::state::content;
use crate::source::sim::{Reuse, SimDisk, Switch};
use crate::source::{ReadError, Snapshot, Timestamp, Trace};
use crate::watch::Touch;

#[test]
fn what_is_published_is_one_generation_whatever_the_pace() {
    let mut runs = 0;
    for recipe in recipe::all() {
        for clock in [Clock::Fine, Clock::OneTickForTheWriter, Clock::OneTickForAll] {
            for pause in PAUSES {
                Run::new(&recipe, clock, Events::Told, *pause).judge();
                runs += 1;
            }
        }
        for pause in PAUSES {
            Run::new(&recipe, Clock::Fine, Events::Untold, *pause).judge();
            runs += 1;
        }
    }
    println!("{runs} runs at a steady pace");
}

#[test]
fn what_is_published_is_one_generation_wherever_the_tracker_is_held_up() {
    for recipe in recipe::all() {
        let mut runs = 0;
        for events in [Events::Told, Events::Untold] {
            let calls = Run::new(&recipe, Clock::Fine, events, PAUSES[1]).judge();
            for before_call in 0..calls {
                for ops in 1..=2 {
                    let run = Run::new(&recipe, Clock::Fine, events, PAUSES[1]);
                    run.held_up(Switch { before_call, ops }).judge();
                    runs += 1;
                }
            }
        }
        println!("{runs:6} interleavings: {}", recipe.name);
    }
}

#[test]
fn slower_writers_than_promised_are_caught_by_this_test() {
    let recipe = recipe::named("certificate, key and CA renamed over");
    let run = Run::new(&recipe, Clock::Fine, Events::Told, Duration::from_millis(200));
    assert!(std::panic::catch_unwind(|| run.judge()).is_err(), "a mix is published, and seen");
}

/// Seen: a harmless touch makes a load due, and the first rename of a rotation comes between the look at the end
/// of the quiet time and the read. What was read then stood still, was no failure, and was a mix.
#[test]
fn writer_that_begins_between_the_look_and_the_read_is_waited_for() {
    let mut runs = 0;
    for recipe in recipe::all() {
        let touched = |run: &Run<'_>| {
            let mut world = World::new(run);
            world.start();
            let at = world.host.now();
            world.tracker.touched(&mut world.host, Touch::Contents, at);
            world
        };
        let quiet = Run::new(&recipe, Clock::Fine, Events::Told, PAUSES[1]);
        let mut world = touched(&quiet);
        let before = world.host.disk.calls();
        world.run_until(Duration::from_millis(100));
        for before_call in before..world.host.disk.calls() {
            let run = Run::new(&recipe, Clock::Fine, Events::Told, PAUSES[1]);
            let run = run.held_up(Switch { before_call, ops: 1 });
            let mut world = touched(&run);
            while world.host.disk.written() == 0 {
                world.run_until(Duration::from_millis(1));
            }
            run.finish(&mut world);
            runs += 1;
        }
    }
    println!("{runs} runs with a writer that begins during a load");
}

/// Whether the kernel tells of changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Events {
    Told,
    /// The resync has to find them.
    Untold,
}

struct Run<'a> {
    recipe: &'a Recipe,
    clock: Clock,
    events: Events,
    pause: Duration,
    switches: Vec<Switch>,
}

impl<'a> Run<'a> {
    fn new(recipe: &'a Recipe, clock: Clock, events: Events, pause: Duration) -> Self {
        Self { recipe, clock, events, pause, switches: Vec::new() }
    }

    fn held_up(self, switch: Switch) -> Self {
        Self { switches: vec![switch], ..self }
    }

    /// Runs to the end; how many calls the tracker made on the disk.
    fn judge(&self) -> usize {
        let mut world = World::new(self);
        world.start();
        self.finish(&mut world);
        world.host.disk.calls()
    }

    /// Lets the writer go on to its end, and judges what was published.
    fn finish(&self, world: &mut World) {
        let ops = self.recipe.ops.len();
        while world.host.disk.written() < ops {
            world.run_until(self.pause);
            world.host.disk.run_writer(1);
            world.tell();
        }
        world.run_until(PATIENCE);
        let published = &world.host.published;
        let about = format!(
            "{} {:?} {:?} pause {:?} {:?}",
            self.recipe.name, self.clock, self.events, self.pause, self.switches
        );
        for generations in published {
            assert_eq!(generations.len(), 1, "{about}: mixed: {published:?}");
        }
        let last = published.last().and_then(BTreeSet::first).copied();
        assert_eq!(last, Some(self.recipe.last), "{about}: not the last one: {published:?}");
    }
}

struct World {
    host: SimHost,
    tracker: Tracker,
    events: Events,
    /// Between two calls of the writer.
    pause: Duration,
    /// How many of the writer's calls the tracker was told of.
    told: usize,
}

impl World {
    fn new(run: &Run<'_>) -> Self {
        let fs = run.recipe.disk(run.clock, Reuse::AtOnce);
        let disk = SimDisk::new(fs, run.recipe.ops.clone()).with_switches(&run.switches);
        let start = disk.with_fs(|fs| fs.now);
        let host =
            SimHost { disk, epoch: Instant::now(), start, watched: BTreeSet::new(), published: Vec::new() };
        let period = match run.events {
            Events::Told => Duration::from_secs(3600),
            Events::Untold => Duration::from_secs(2),
        };
        let timing = Timing { period, ..Timing::default() };
        let tracker = Tracker::new(run.recipe.paths.clone(), timing, host.now());
        Self { host, tracker, events: run.events, pause: run.pause, told: 0 }
    }

    fn start(&mut self) {
        for pause in START_PAUSES {
            let first = self.tracker.first_load(&mut self.host, false);
            if first.result.is_ok() {
                break;
            }
            self.wait_at_start(*pause);
        }
        if self.host.published.is_empty() {
            self.tracker.first_load(&mut self.host, true);
        }
        // Taken up by the reload thread, which arms the watches and looks again.
        self.tracker.look(&mut self.host, Trigger::Event);
        self.told = self.host.disk.written();
    }

    /// Lets time pass while nothing is watched yet. A writer that was seen to have begun goes on meanwhile.
    fn wait_at_start(&self, time: Duration) {
        let end = self.host.now() + time;
        while self.host.disk.written() > 0 && self.host.now() + self.pause <= end {
            self.host.disk.advance(self.pause);
            self.host.disk.run_writer(1);
        }
        self.host.disk.advance(end.saturating_duration_since(self.host.now()));
    }

    /// Lets time pass, and the tracker do what is due.
    fn run_until(&mut self, time: Duration) {
        let end = self.host.now() + time;
        while self.tracker.deadline() <= end {
            let wait = self.tracker.deadline().saturating_duration_since(self.host.now());
            self.host.disk.advance(wait);
            self.tracker.run(&mut self.host);
            self.tell();
        }
        let rest = end.saturating_duration_since(self.host.now());
        self.host.disk.advance(rest);
    }

    /// Tells of what the writer did: more than the kernel would, who knows which names matter.
    fn tell(&mut self) {
        while self.told < self.host.disk.written() {
            self.told += 1;
            if self.events == Events::Told {
                let at = self.host.now();
                self.tracker.touched(&mut self.host, Touch::Entries, at);
                self.tracker.touched(&mut self.host, Touch::Contents, at);
            }
        }
    }
}

struct SimHost {
    disk: SimDisk,
    epoch: Instant,
    start: Duration,
    watched: BTreeSet<PathBuf>,
    /// The generations of the files of each snapshot that was published.
    published: Vec<BTreeSet<u32>>,
}

impl Host for SimHost {
    type Disk = SimDisk;

    fn disk(&self) -> &SimDisk {
        &self.disk
    }

    fn now(&self) -> Instant {
        self.epoch + self.disk.with_fs(|fs| fs.now).saturating_sub(self.start)
    }

    fn wall_clock(&self) -> Timestamp {
        self.disk.now()
    }

    fn watch(&mut self, trace: &Trace) -> bool {
        let wanted: BTreeSet<_> = trace.hops().iter().map(|hop| hop.dir.clone()).collect();
        let newly = wanted.difference(&self.watched).next().is_some();
        self.watched = wanted;
        newly
    }

    /// Takes every set of whole files: the key fits every certificate.
    fn accept(&mut self, snapshot: &Snapshot, _: Trigger) -> Result<(), LoadError> {
        let mut generations = BTreeSet::new();
        let roles = [Role::Cert, Role::Key, Role::Ca, Role::Crl];
        for (role, bytes) in
            roles.iter().flat_map(|role| snapshot.all(*role).map(|(_, bytes)| (*role, bytes)))
        {
            let whole = (1..=9)
                .find(|number| bytes == content(role, *number) || bytes == content(Role::Cert, *number));
            match whole {
                Some(number) => generations.insert(number),
                None => return Err(ReadError::torn_in_a_test(role).into()),
            };
        }
        self.published.push(generations);
        Ok(())
    }
}

/// Pauses of a writer between its calls, all below the settle time.
const PAUSES: &[Duration] = &[Duration::from_millis(1), Duration::from_millis(7), Duration::from_millis(30)];

/// Longer than every retry and resync.
const PATIENCE: Duration = Duration::from_secs(20);
