//! Scenario scripts: what writers do to files, and when the outcome has to be served. Each runs by events, by
//! events with next to no room for them, and by polling.
//!
//! The scripts are the text files in `scenarios/`. Their first line says what happens and which public report
//! they guard against; `scenarios/README.md` has the commands. A script that needs mounts, a process of its own
//! or permissions that bind runs in a child: this binary once more. One that cannot run on a machine is counted
//! as skipped, with the reason.
//!
//! `SCENARIO=name` runs one script alone, `SCENARIO_TRACE=1` prints the raw events and the log of the library.

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::as_conversions,
    reason = "test code outside of test functions"
)]

mod common;
#[path = "scenarios/content.rs"]
mod content;
#[path = "scenarios/script.rs"]
mod script;
#[path = "scenarios/stage.rs"]
mod stage;
#[path = "scenarios/writer.rs"]
mod writer;

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::log::Print;
use log::LevelFilter;
use script::{Place, Script};
use stage::{Mode, Stage, Stop};

#[test]
fn every_scenario_holds_by_events() {
    run_all(Mode::Events);
}

#[test]
fn every_scenario_holds_by_events_with_room_for_two() {
    run_all(Mode::FewEvents);
}

#[test]
fn every_scenario_holds_by_polling() {
    run_all(Mode::Poll);
}

/// What a child runs; without being told which script, nothing.
#[test]
fn one_scenario_in_a_process_of_its_own() {
    let Ok(told) = env::var(CHILD) else {
        return;
    };
    let (mode, name) = told.split_once('/').unwrap();
    let mode = Mode::ALL.into_iter().find(|known| known.name() == mode).unwrap();
    let script = read(&scripts().join(name).with_extension("txt"));
    let outcome = here(&script, mode, Path::new(&env::var_os(DIR).unwrap()));
    match outcome {
        Outcome::Held { slowest: (took, line) } => println!("@held {} {line}", took.as_millis()),
        Outcome::Skipped(reason) => println!("@skipped {reason}"),
        Outcome::Failed(why) => panic!("{why}"),
    }
}

#[test]
fn script_that_is_wrong_is_refused_with_file_and_line() {
    for (text, wanted) in [
        ("write c.crt cert=1", "x.txt:1: the first line has to say"),
        ("# Why.\n\nwriet c.crt", "x.txt:3: no such command: wriet"),
        ("# Why.\nwrite c.crt crt=1", "x.txt:2: write has no option crt"),
        ("# Why.\nrename a", "x.txt:2: rename takes 2 to 2"),
        ("# Why.\nalone outside", "x.txt:2: no such place"),
    ] {
        let error = Script::parse(Path::new("x.txt"), text).err().unwrap();
        assert!(error.starts_with(wanted), "{error}");
    }
    let script =
        Script::parse(Path::new("x.txt"), "# Why.\nmkdir d\npause soon").unwrap_or_else(|e| panic!("{e}"));
    let dir = tempfile::tempdir().unwrap();
    let Outcome::Failed(why) = here(&script, Mode::Poll, dir.path()) else {
        panic!("it ran");
    };
    assert!(why.contains("x.txt:3 (poll): pause soon") && why.contains("soon is no duration"), "{why}");
}

/// How a script ended.
enum Outcome {
    Held { slowest: (Duration, usize) },
    Skipped(String),
    Failed(String),
}

/// Runs every script on a few threads; says how many ran, how many could not and why, and which was slow.
fn run_all(mode: Mode) {
    trace_if_asked();
    let begun = Instant::now();
    let scripts = all();
    let (next, outcomes) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while let Some(script) = scripts.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let outcome = run(script, mode);
                    outcomes.lock().unwrap().insert(script.name.clone(), outcome);
                }
            });
        }
    });
    let (mut ran, mut reasons, mut failed) = (0, BTreeMap::<_, Vec<_>>::new(), Vec::new());
    let mut slow = Vec::new();
    for (name, outcome) in outcomes.into_inner().unwrap() {
        match outcome {
            Outcome::Held { slowest: (took, line) } => {
                ran += 1;
                if took > SLOW {
                    slow.push(format!("{name}:{line} {} ms", took.as_millis()));
                }
            }
            Outcome::Skipped(reason) => reasons.entry(reason).or_default().push(name),
            Outcome::Failed(why) => failed.push(why),
        }
    }
    let skipped: usize = reasons.values().map(Vec::len).sum();
    let reasons: Vec<_> = reasons.iter().map(|(why, names)| format!("{}: {why}", names.join(", "))).collect();
    let mut report = format!("scenarios by {}: {ran} run, {skipped} skipped", mode.name());
    if skipped > 0 {
        report += &format!(" ({})", reasons.join("; "));
    }
    report += &format!(", {:.1} s", begun.elapsed().as_secs_f32());
    if !slow.is_empty() {
        report += &format!("\n  slower than {SLOW:?}: {}", slow.join(", "));
    }
    // Past the harness, which keeps what a test that passes prints to itself.
    report.push('\n');
    io::stderr().write_all(report.as_bytes()).unwrap();
    assert!(failed.is_empty(), "{} of {} failed\n\n{}", failed.len(), scripts.len(), failed.join("\n"));
}

fn run(script: &Script, mode: Mode) -> Outcome {
    let is_this = |not: &str| not == mode.kind() || not == mode.name() || not == mode.backend();
    if let Some((_, reason)) = script.not.iter().find(|(not, _)| is_this(not)) {
        return Outcome::Skipped(reason.clone());
    }
    let dir = tempfile::tempdir().unwrap();
    match script.place {
        Place::Shared => here(script, mode, dir.path()),
        place => apart(script, place, mode, dir.path()),
    }
}

fn here(script: &Script, mode: Mode, dir: &Path) -> Outcome {
    trace_if_asked();
    // Without links, as the scripts compare nothing but names of their own.
    let dir = dir.canonicalize().unwrap();
    let mut stage = Stage::new(script, mode, &dir);
    match stage.run() {
        Ok(()) => Outcome::Held { slowest: stage.slowest },
        Err(Stop::Skip(reason)) => Outcome::Skipped(reason),
        Err(Stop::Fail(why)) => Outcome::Failed(why),
    }
}

/// Runs a script in a child.
fn apart(script: &Script, place: Place, mode: Mode, dir: &Path) -> Outcome {
    let around: &[&str] = match place {
        Place::Mounts => &["unshare", "--mount", "--propagation", "private"],
        // Root without capabilities: still the owner of the files, and bound by their permissions.
        Place::Unprivileged if rustix::process::geteuid().is_root() => {
            &["setpriv", "--inh-caps=-all", "--bounding-set=-all"]
        }
        _ => &[],
    };
    if let Some((tool, options)) = around.split_first() {
        match Command::new(tool).args(options).arg("true").output() {
            Ok(output) if output.status.success() => {}
            Ok(_) => return Outcome::Skipped(format!("{tool} is not permitted")),
            Err(_) => return Outcome::Skipped(format!("{tool} is not there")),
        }
    }
    let binary = env::current_exe().unwrap();
    let mut words = around.iter().map(PathBuf::from).chain([binary]);
    let output = Command::new(words.next().unwrap())
        .args(words)
        .args(["one_scenario_in_a_process_of_its_own", "--exact", "--nocapture"])
        .env(CHILD, format!("{}/{}", mode.name(), script.name))
        .env(DIR, dir)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    if let Some(reason) = said.lines().find_map(|line| line.split_once("@skipped ")) {
        return Outcome::Skipped(reason.1.into());
    }
    if let Some((_, figures)) = said.lines().find_map(|line| line.split_once("@held ")) {
        let (took, line) = figures.split_once(' ').unwrap();
        return Outcome::Held {
            slowest: (Duration::from_millis(took.parse().unwrap()), line.parse().unwrap()),
        };
    }
    Outcome::Failed(format!("{said}{}", String::from_utf8_lossy(&output.stderr)))
}

/// The scripts, or the one that is asked for.
fn all() -> Vec<Script> {
    let files = fs::read_dir(scripts()).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = files.filter(|path| path.extension().is_some_and(|ext| ext == "txt")).collect();
    files.sort();
    let mut scripts: Vec<_> = files.iter().map(|path| read(path)).collect();
    if let Ok(name) = env::var("SCENARIO") {
        scripts.retain(|script| script.name == name);
        assert!(!scripts.is_empty(), "no scenario of the name {name}");
    }
    scripts
}

fn read(path: &Path) -> Script {
    Script::parse(path, &fs::read_to_string(path).unwrap()).unwrap_or_else(|error| panic!("{error}"))
}

fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios")
}

/// Prints what the library logs, raw events included.
fn trace_if_asked() {
    if env::var_os("SCENARIO_TRACE").is_some() {
        common::log::keep(LevelFilter::Trace, Print::Stderr);
    }
}

/// Mode and script, for a child.
const CHILD: &str = "SCENARIO_CHILD";

/// The directory of a child's script.
const DIR: &str = "SCENARIO_DIR";

/// Scripts at a time. They wait more than they compute.
const THREADS: usize = 6;

/// A change that takes longer to be served is named.
const SLOW: Duration = Duration::from_millis(300);
