//! What the fuzz targets reach beyond the public API. Built with `--cfg fuzzing` only; promises nothing.
//!
//! Thin wrappers: the types inside stay as they are, and the models that they are held against are in `fuzz/`.
#![allow(missing_docs, clippy::missing_panics_doc, reason = "not an API")]

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustls::pki_types::{CertificateDer, UnixTime};

use crate::bundle::{self, Leaf, Warning};
use crate::reload::{self, Timing};
use crate::source::{FileKind, Found, Hop, Identity, Inode, Status, Timestamp, Trace};
use crate::watch::{self, Depth, Kind, Reach, SlotId};

/// The facts of a certificate, what is worth a warning if it is served, and whether it could be an anchor.
pub fn leaf(der: &[u8], now: UnixTime) -> Option<(Leaf, Vec<Warning>, bool)> {
    bundle::facts(&CertificateDer::from(der), now)
}

/// The watch plan.
#[derive(Debug)]
pub struct Plan(watch::Plan);

/// A directory, or a file by itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Watched {
    pub is_file: bool,
    pub path: PathBuf,
    pub inode: u64,
}

/// What a name was found to be.
#[derive(Clone, Debug)]
pub enum Look {
    Directory(u64),
    Link,
    File(u64),
    Fifo,
    /// A directory of files, in which every visible name matters.
    Names,
    Missing,
    Refused,
}

/// One name that was looked up.
#[derive(Clone, Debug)]
pub struct Lookup {
    pub dir: PathBuf,
    pub dir_inode: u64,
    pub name: OsString,
    pub look: Look,
}

/// What has to be armed, each with its depth (0 to 2), and what is to be let go.
pub type Difference = (Vec<(Watched, u8)>, Vec<Watched>);

impl Plan {
    /// `files_too` where the kernel tells of a write only to those who watch the file.
    pub fn new(files_too: bool) -> Self {
        Self(watch::Plan::new(if files_too { Reach::FilesToo } else { Reach::Directories }))
    }

    pub fn set(&mut self, slot: u64, lookups: &[Lookup]) -> Difference {
        let watch::Difference { arm, release } = self.0.set(SlotId(slot), &trace(lookups));
        let armed = arm.into_iter().map(|(watched, depth)| (outside(watched), number(depth)));
        (armed.collect(), release.into_iter().map(outside).collect())
    }

    pub fn remove(&mut self, slot: u64) -> Vec<Watched> {
        self.0.remove(SlotId(slot)).into_iter().map(outside).collect()
    }

    pub fn lost(&mut self, watched: &Watched) {
        self.0.lost(&inside(watched));
    }

    pub fn concerned(&self, watched: &Watched, name: Option<&OsStr>) -> Vec<u64> {
        self.0.concerned(&inside(watched), name).into_iter().map(|slot| slot.0).collect()
    }

    /// Whether there is no trace of anything.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn trace(lookups: &[Lookup]) -> Trace {
    let hops = lookups.iter().map(|lookup| Hop {
        dir: lookup.dir.clone(),
        dir_id: inode(lookup.dir_inode),
        name: lookup.name.clone(),
        found: match lookup.look {
            Look::Directory(number) => Found::Directory(inode(number)),
            Look::Link => Found::Link(OsString::from("elsewhere")),
            Look::File(number) => Found::File(status(FileKind::File, number)),
            Look::Fifo => Found::File(status(FileKind::Fifo, 1)),
            Look::Names => Found::Names(Ok(Vec::new())),
            Look::Missing => Found::Missing,
            Look::Refused => Found::Refused(io::ErrorKind::PermissionDenied),
        },
    });
    Trace::of_hops(hops.collect())
}

fn inside(watched: &Watched) -> watch::Watched {
    let kind = if watched.is_file { Kind::File } else { Kind::Directory };
    watch::Watched { kind, path: watched.path.clone(), inode: inode(watched.inode) }
}

fn outside(watched: watch::Watched) -> Watched {
    let watch::Watched { kind, path, inode } = watched;
    Watched { is_file: kind == Kind::File, path, inode: inode.number }
}

fn inode(number: u64) -> Inode {
    Inode { device: 1, number }
}

fn number(depth: Depth) -> u8 {
    match depth {
        Depth::Itself => 0,
        Depth::Entries => 1,
        Depth::Contents => 2,
    }
}

fn status(kind: FileKind, number: u64) -> Status {
    let stamp = Timestamp { seconds: 1, nanos: 0 };
    let identity = Identity { inode: inode(number), size: 1, modified: stamp, changed: stamp };
    Status { kind, mode: 0o600, identity }
}

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Settled,
    Load,
    Retry,
    Resync,
}

/// What a failure means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Transient,
    Report,
    Known,
}

/// The schedule of one identity, with the default timing but for the period.
#[derive(Debug)]
pub struct Schedule(reload::Schedule);

impl Schedule {
    pub fn new(period: Duration, now: Instant) -> Self {
        Self(reload::Schedule::new(Timing { period, ..Default::default() }, now))
    }

    pub fn touched(&mut self, now: Instant) {
        self.0.touched(now);
    }

    pub fn load_now(&mut self, now: Instant) {
        self.0.load_now(now);
    }

    pub fn still_changing(&mut self, now: Instant) -> bool {
        self.0.still_changing(now)
    }

    pub fn resynced(&mut self, now: Instant) {
        self.0.resynced(now);
    }

    pub fn succeeded(&mut self, now: Instant) -> bool {
        self.0.succeeded(now)
    }

    pub fn failed(&mut self, now: Instant) -> Verdict {
        match self.0.failed(now) {
            reload::Verdict::Transient => Verdict::Transient,
            reload::Verdict::Report => Verdict::Report,
            reload::Verdict::Known => Verdict::Known,
        }
    }

    pub fn set_period(&mut self, period: Duration, now: Instant) {
        self.0.set_period(period, now);
    }

    pub fn deadline(&self) -> Instant {
        self.0.deadline()
    }

    pub fn step(&self, now: Instant) -> Option<Step> {
        self.0.step(now).map(|step| match step {
            reload::Step::Settled => Step::Settled,
            reload::Step::Load => Step::Load,
            reload::Step::Retry => Step::Retry,
            reload::Step::Resync => Step::Resync,
        })
    }
}
