//! The simulated disk: the pinned read runs on it unchanged, and a writer acts between any two of its calls.
//!
//! - [`FileSystem`] is the disk at one instant, [`Op`] one system call of a writer.
//! - [`SimDisk`] is what the read sees. Before each call it consults its [`Switch`]es: how many of the
//!   writer's calls come first. Errors can be injected at any call.
//! - `state` says, with a resolver of its own, what a reader of that instant would see.
//! - `recipe` holds the writers of the field, `explore` runs the read against them with the switch at every
//!   point, and `proof` says what must hold. `still` and `fault` are about disks without a writer, and
//!   `fidelity` holds the simulation against the real disk.

mod explore;
mod fault;
mod fidelity;
mod fs;
mod op;
mod proof;
pub(crate) mod recipe;
pub(crate) mod state;
mod steps;
mod still;

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use rustix::io::Errno;

use self::fs::{Body, Follow, READ, ROOT, timestamp};
pub(crate) use self::fs::{FileSystem, Reuse};
pub(crate) use self::op::Op;
use super::Sabotage;
use super::disk::{Disk, Inode, MAX_NAMES, Status, Timestamp};

/// A disk with a writer at work on it.
#[derive(Debug)]
pub(crate) struct SimDisk {
    state: Mutex<State>,
    sabotage: Sabotage,
}

#[derive(Debug)]
struct State {
    fs: FileSystem,
    writer: Arc<Vec<Op>>,
    written: usize,
    switches: Vec<Switch>,
    faults: Vec<(usize, Errno)>,
    calls: usize,
    step: Duration,
    chunk: usize,
}

/// Before its call number `before_call`, counted from 0, the reader is held up for `ops` calls of the writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Switch {
    pub(crate) before_call: usize,
    pub(crate) ops: usize,
}

/// A directory handle.
#[derive(Debug)]
pub(crate) struct SimDir {
    inode: u64,
    _pin: Arc<()>,
}

/// A file handle.
#[derive(Debug)]
pub(crate) struct SimFile {
    inode: u64,
    _pin: Arc<()>,
}

impl SimDisk {
    /// The disk with a writer that has `ops` to do.
    pub(crate) fn new(fs: FileSystem, writer: impl Into<Arc<Vec<Op>>>) -> Self {
        let state = State {
            fs,
            writer: writer.into(),
            written: 0,
            switches: Vec::new(),
            faults: Vec::new(),
            calls: 0,
            step: Duration::from_millis(1),
            chunk: usize::MAX,
        };
        Self { state: Mutex::new(state), sabotage: Sabotage::default() }
    }

    /// The writer has done its first `written` calls already.
    pub(crate) fn after(mut self, written: usize) -> Self {
        self.state.get_mut().written = written;
        self
    }

    /// Sets when the writer acts.
    pub(crate) fn with_switches(mut self, switches: &[Switch]) -> Self {
        self.state.get_mut().switches = switches.to_vec();
        self
    }

    /// One `read` returns at most this many bytes.
    pub(crate) fn with_chunk(mut self, chunk: usize) -> Self {
        self.state.get_mut().chunk = chunk;
        self
    }

    /// The reader's call number `call`, counted from 0, fails.
    pub(crate) fn with_fault(mut self, call: usize, errno: Errno) -> Self {
        self.state.get_mut().faults.push((call, errno));
        self
    }

    /// Takes something out of the read, to see that the proof fails.
    pub(crate) fn with_sabotage(mut self, sabotage: Sabotage) -> Self {
        self.sabotage = sabotage;
        self
    }

    /// The writer does its next `ops` calls, each one [`SimDisk::set_step`] later than the one before.
    pub(crate) fn run_writer(&self, ops: usize) {
        self.state.lock().run_writer(ops);
    }

    /// Gives the writer more to do.
    pub(crate) fn extend_writer(&self, ops: impl IntoIterator<Item = Op>) {
        Arc::make_mut(&mut self.state.lock().writer).extend(ops);
    }

    /// How many calls the writer has done.
    pub(crate) fn written(&self) -> usize {
        self.state.lock().written
    }

    /// How many calls the reader has done.
    pub(crate) fn calls(&self) -> usize {
        self.state.lock().calls
    }

    /// The disk's clock.
    pub(crate) fn now(&self) -> Timestamp {
        timestamp(self.state.lock().fs.now)
    }

    /// Sets the disk's clock, as time since 1970. It may go back.
    pub(crate) fn set_now(&self, now: Duration) {
        self.state.lock().fs.now = now;
    }

    /// Lets time pass on the disk.
    pub(crate) fn advance(&self, by: Duration) {
        self.state.lock().fs.now += by;
    }

    /// How much time each call of the writer takes. Default: 1 ms.
    pub(crate) fn set_step(&self, step: Duration) {
        self.state.lock().step = step;
    }

    /// Looks at the disk, or changes it, outside of any plan.
    pub(crate) fn with_fs<T>(&self, look: impl FnOnce(&mut FileSystem) -> T) -> T {
        look(&mut self.state.lock().fs)
    }

    /// One call of the reader: first the writer's turn, then the fault, then the call.
    fn call<T>(&self, call: impl FnOnce(&mut State) -> Result<T, Errno>) -> io::Result<T> {
        let mut state: MutexGuard<'_, State> = self.state.lock();
        let number = state.calls;
        state.calls += 1;
        let turn = state.switches.iter().filter(|switch| switch.before_call == number);
        let ops = turn.map(|switch| switch.ops).sum();
        state.run_writer(ops);
        match state.faults.iter().find(|(call, _)| *call == number) {
            Some((_, errno)) => Err((*errno).into()),
            None => call(&mut state).map_err(io::Error::from),
        }
    }
}

impl State {
    fn run_writer(&mut self, ops: usize) {
        let writer = Arc::clone(&self.writer);
        for op in writer.iter().skip(self.written).take(ops) {
            self.fs.now += self.step;
            op.apply(&mut self.fs).unwrap_or_else(|errno| panic!("the writer failed at {op:?}: {errno}"));
            self.written += 1;
        }
    }

    fn hold_dir(&self, inode: u64) -> Result<SimDir, Errno> {
        Ok(SimDir { inode, _pin: self.fs.hold(inode)? })
    }

    fn names(&self, inode: u64) -> Result<Vec<OsString>, Errno> {
        let node = self.fs.node(inode)?;
        match &node.body {
            _ if node.mode & READ == 0 => Err(Errno::ACCESS),
            // In no order, as `readdir(3)` says.
            Body::Directory { entries, .. } => {
                Ok(entries.keys().rev().take(MAX_NAMES + 1).cloned().collect())
            }
            _ => Err(Errno::NOTDIR),
        }
    }

    fn link_text(&self, inode: u64) -> Result<Option<OsString>, Errno> {
        match &self.fs.node(inode)?.body {
            Body::Link(text) => Ok(Some(text.clone())),
            _ => Ok(None),
        }
    }
}

impl Disk for SimDisk {
    type Dir = SimDir;
    type File = SimFile;

    fn root(&self) -> io::Result<SimDir> {
        self.call(|state| state.hold_dir(ROOT))
    }

    fn open_dir(&self, at: &SimDir, name: &OsStr) -> io::Result<Option<SimDir>> {
        self.call(|state| {
            let inode = state.fs.look_up(at.inode, name)?;
            match state.fs.node(inode)?.body {
                Body::Directory { .. } => state.hold_dir(inode).map(Some),
                _ => Ok(None),
            }
        })
    }

    fn dir_id(&self, dir: &SimDir) -> io::Result<Inode> {
        self.call(|state| Ok(state.fs.status(dir.inode)?.identity.inode))
    }

    fn read_link(&self, at: &SimDir, name: &OsStr) -> io::Result<Option<OsString>> {
        self.call(|state| state.link_text(state.fs.look_up(at.inode, name)?))
    }

    fn lstat(&self, at: &SimDir, name: &OsStr) -> io::Result<Status> {
        self.call(|state| state.fs.status(state.fs.look_up(at.inode, name)?))
    }

    fn list(&self, dir: &SimDir) -> io::Result<Vec<OsString>> {
        self.call(|state| state.names(dir.inode))
    }

    fn open_file(&self, at: &SimDir, name: &OsStr) -> io::Result<SimFile> {
        self.call(|state| {
            let inode = state.fs.look_up(at.inode, name)?;
            let node = state.fs.node(inode)?;
            match node.body {
                // O_NOFOLLOW
                Body::Link(_) => Err(Errno::LOOP),
                _ if node.mode & READ == 0 => Err(Errno::ACCESS),
                _ => Ok(SimFile { inode, _pin: state.fs.hold(inode)? }),
            }
        })
    }

    fn fstat(&self, file: &SimFile) -> io::Result<Status> {
        self.call(|state| state.fs.status(file.inode))
    }

    fn read_at(&self, file: &SimFile, offset: usize, buffer: &mut [u8]) -> io::Result<usize> {
        self.call(|state| {
            let Body::File(bytes) = &state.fs.node(file.inode)?.body else { return Err(Errno::ISDIR) };
            let rest = bytes.get(offset..).unwrap_or_default();
            let count = rest.len().min(buffer.len()).min(state.chunk);
            buffer[..count].copy_from_slice(&rest[..count]);
            Ok(count)
        })
    }

    fn stat(&self, path: &Path) -> io::Result<Status> {
        self.call(|state| state.fs.status(state.fs.resolve(path, Follow::Yes)?))
    }

    fn read_link_at(&self, path: &Path) -> io::Result<Option<OsString>> {
        self.call(|state| state.link_text(state.fs.resolve(path, Follow::No)?))
    }

    fn list_at(&self, path: &Path) -> io::Result<(Inode, Vec<OsString>)> {
        self.call(|state| {
            let inode = state.fs.resolve(path, Follow::Yes)?;
            let names = state.names(inode)?;
            Ok((state.fs.status(inode)?.identity.inode, names))
        })
    }

    fn sabotage(&self) -> Sabotage {
        self.sabotage
    }
}
