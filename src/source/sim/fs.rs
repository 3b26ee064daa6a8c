//! A file system in memory: inodes, names, links, permissions and time stamps, as `inode(7)` has them.
//!
//! It is the disk at one instant and knows nothing of readers, apart from what they hold open: an inode
//! number is given to a new file only when the old one has no name and no handle left.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Component, Path};
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;

use crate::source::FileKind;
use crate::source::disk::{Identity, Inode, Status, Timestamp};

/// The tree, with its clock.
#[derive(Clone, Debug)]
pub(crate) struct FileSystem {
    /// The first one is `/`.
    nodes: Vec<Node>,
    reuse: Reuse,
    /// Since 1970.
    pub(crate) now: Duration,
    /// Time stamps are whole multiples of it.
    pub(crate) tick: Duration,
}

/// What becomes of the number of a file that is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reuse {
    /// The next file gets it, as on ext4.
    AtOnce,
    /// No file ever gets it.
    Never,
}

#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) body: Body,
    pub(super) mode: u32,
    links: u32,
    modified: Duration,
    changed: Duration,
    pin: Pin,
}

#[derive(Clone, Debug)]
pub(super) enum Body {
    File(Vec<u8>),
    Directory { entries: BTreeMap<OsString, u64>, parent: u64 },
    Link(OsString),
    Special(FileKind),
}

/// Held by open handles. A copy of the disk starts without any.
#[derive(Debug, Default)]
struct Pin(Arc<()>);

impl Clone for Pin {
    fn clone(&self) -> Self {
        Self::default()
    }
}

/// The result of a simulated system call.
pub(crate) type Call<T> = Result<T, Errno>;

impl FileSystem {
    /// An empty disk in the year 2001.
    pub(crate) fn new(reuse: Reuse) -> Self {
        let now = Duration::from_secs(1_000_000_000);
        let body = Body::Directory { entries: BTreeMap::new(), parent: ROOT };
        let root = Node { body, mode: 0o755, links: 1, modified: now, changed: now, pin: Pin::default() };
        Self { nodes: vec![root], reuse, now, tick: Duration::from_nanos(1) }
    }

    pub(super) fn node(&self, inode: u64) -> Call<&Node> {
        self.nodes.get(index(inode)).ok_or(Errno::STALE)
    }

    fn node_mut(&mut self, inode: u64) -> Call<&mut Node> {
        self.nodes.get_mut(index(inode)).ok_or(Errno::STALE)
    }

    /// Keeps the inode alive, whatever happens to its names.
    pub(super) fn hold(&self, inode: u64) -> Call<Arc<()>> {
        Ok(Arc::clone(&self.node(inode)?.pin.0))
    }

    pub(super) fn status(&self, inode: u64) -> Call<Status> {
        let node = self.node(inode)?;
        let (kind, size) = match &node.body {
            Body::File(bytes) => (FileKind::File, bytes.len()),
            Body::Directory { entries, .. } => (FileKind::Directory, entries.len()),
            Body::Link(text) => (FileKind::Link, text.len()),
            Body::Special(kind) => (*kind, 0),
        };
        let identity = Identity {
            inode: Inode { device: 1, number: inode },
            size: u64::try_from(size).unwrap(),
            modified: timestamp(node.modified),
            changed: timestamp(node.changed),
        };
        Ok(Status { kind, mode: node.mode, identity })
    }

    /// One name in one directory, no link followed.
    pub(super) fn look_up(&self, dir: u64, name: &OsStr) -> Call<u64> {
        let node = self.node(dir)?;
        let Body::Directory { entries, parent } = &node.body else { return Err(Errno::NOTDIR) };
        if node.mode & SEARCH == 0 {
            return Err(Errno::ACCESS);
        }
        if name == ".." {
            return Ok(*parent);
        }
        entries.get(name).copied().ok_or(Errno::NOENT)
    }

    /// What `path` leads to; the link at its end is followed only on demand.
    pub(super) fn resolve(&self, path: &Path, last: Follow) -> Call<u64> {
        let mut links = 0;
        self.resolve_from(ROOT, path, last, &mut links)
    }

    fn resolve_from(&self, from: u64, path: &Path, last: Follow, links: &mut u32) -> Call<u64> {
        let mut at = from;
        let mut names = path.components().peekable();
        while let Some(component) = names.next() {
            let name = match component {
                Component::RootDir => {
                    at = ROOT;
                    continue;
                }
                Component::CurDir | Component::Prefix(_) => continue,
                Component::ParentDir => OsStr::new(".."),
                Component::Normal(name) => name,
            };
            let dir = at;
            at = self.look_up(dir, name)?;
            let follows = last == Follow::Yes || names.peek().is_some();
            if let (Body::Link(text), true) = (&self.node(at)?.body, follows) {
                *links += 1;
                if *links > 40 {
                    return Err(Errno::LOOP);
                }
                at = self.resolve_from(dir, Path::new(text), Follow::Yes, links)?;
            }
        }
        Ok(at)
    }

    /// The directory in which the last name of `path` is, and that name.
    fn place<'p>(&self, path: &'p Path) -> Call<(u64, &'p OsStr)> {
        let dir = self.resolve(path.parent().ok_or(Errno::BUSY)?, Follow::Yes)?;
        Ok((dir, path.file_name().ok_or(Errno::INVAL)?))
    }

    /// Makes a node; the name must be free.
    pub(super) fn make(&mut self, path: &Path, mut body: Body, mode: u32) -> Call<u64> {
        let (dir, name) = self.place(path)?;
        if self.look_up(dir, name).is_ok() {
            return Err(Errno::EXIST);
        }
        if let Body::Directory { parent, .. } = &mut body {
            *parent = dir;
        }
        let stamp = self.stamp();
        let node = Node { body, mode, links: 1, modified: stamp, changed: stamp, pin: Pin::default() };
        let inode = self.store(node);
        self.enter(dir, name, inode)?;
        Ok(inode)
    }

    /// Gives an inode one more name.
    pub(super) fn link(&mut self, from: &Path, to: &Path) -> Call<()> {
        let inode = self.resolve(from, Follow::No)?;
        let (dir, name) = self.place(to)?;
        if self.look_up(dir, name).is_ok() {
            return Err(Errno::EXIST);
        }
        self.enter(dir, name, inode)?;
        self.change(inode, |node| node.links += 1)
    }

    /// Takes a name away: of an empty directory, or of anything else.
    pub(super) fn remove(&mut self, path: &Path, directory: bool) -> Call<()> {
        let (dir, name) = self.place(path)?;
        let inode = self.look_up(dir, name)?;
        match &self.node(inode)?.body {
            Body::Directory { .. } if !directory => return Err(Errno::ISDIR),
            Body::Directory { entries, .. } if !entries.is_empty() => return Err(Errno::NOTEMPTY),
            Body::Directory { .. } => {}
            _ if directory => return Err(Errno::NOTDIR),
            _ => {}
        }
        self.leave(dir, name)?;
        self.change(inode, |node| node.links -= 1)
    }

    /// `rename(2)`: in one step, also over what is there.
    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> Call<()> {
        let (from_dir, from_name) = self.place(from)?;
        let (to_dir, to_name) = self.place(to)?;
        let moved = self.look_up(from_dir, from_name)?;
        match self.look_up(to_dir, to_name) {
            Ok(there) if there == moved => return Ok(()),
            Ok(there) => self.remove(to, matches!(self.node(there)?.body, Body::Directory { .. }))?,
            Err(_) => {}
        }
        self.leave(from_dir, from_name)?;
        self.enter(to_dir, to_name, moved)?;
        self.settle_in(moved, to_dir)
    }

    /// `renameat2(2)` with `RENAME_EXCHANGE`.
    pub(super) fn exchange(&mut self, one: &Path, other: &Path) -> Call<()> {
        let (one_dir, one_name) = self.place(one)?;
        let (other_dir, other_name) = self.place(other)?;
        let (first, second) = (self.look_up(one_dir, one_name)?, self.look_up(other_dir, other_name)?);
        self.enter(one_dir, one_name, second)?;
        self.enter(other_dir, other_name, first)?;
        self.settle_in(first, other_dir)?;
        self.settle_in(second, one_dir)
    }

    /// Changes the bytes of the file at `path`.
    pub(super) fn write(&mut self, path: &Path, change: impl FnOnce(&mut Vec<u8>)) -> Call<()> {
        let inode = self.resolve(path, Follow::Yes)?;
        let stamp = self.stamp();
        let node = self.node_mut(inode)?;
        let Body::File(bytes) = &mut node.body else { return Err(Errno::ISDIR) };
        change(bytes);
        (node.modified, node.changed) = (stamp, stamp);
        Ok(())
    }

    pub(super) fn set_mode(&mut self, path: &Path, mode: u32) -> Call<()> {
        let inode = self.resolve(path, Follow::Yes)?;
        self.change(inode, |node| node.mode = mode)
    }

    /// `utimensat(2)`: sets the time of modification. The time of change cannot be set.
    pub(super) fn set_modified(&mut self, path: &Path, time: Duration) -> Call<()> {
        let inode = self.resolve(path, Follow::Yes)?;
        self.change(inode, |node| node.modified = time)
    }

    fn settle_in(&mut self, inode: u64, dir: u64) -> Call<()> {
        self.change(inode, |node| {
            if let Body::Directory { parent, .. } = &mut node.body {
                *parent = dir;
            }
        })
    }

    fn enter(&mut self, dir: u64, name: &OsStr, inode: u64) -> Call<()> {
        self.entries(dir)?.insert(name.to_owned(), inode);
        Ok(())
    }

    fn leave(&mut self, dir: u64, name: &OsStr) -> Call<()> {
        self.entries(dir)?.remove(name).map(drop).ok_or(Errno::NOENT)
    }

    fn entries(&mut self, dir: u64) -> Call<&mut BTreeMap<OsString, u64>> {
        let stamp = self.stamp();
        let node = self.node_mut(dir)?;
        if node.links == 0 {
            return Err(Errno::NOENT);
        }
        (node.modified, node.changed) = (stamp, stamp);
        match &mut node.body {
            Body::Directory { entries, .. } => Ok(entries),
            _ => Err(Errno::NOTDIR),
        }
    }

    fn change(&mut self, inode: u64, change: impl FnOnce(&mut Node)) -> Call<()> {
        let stamp = self.stamp();
        let node = self.node_mut(inode)?;
        change(node);
        node.changed = stamp;
        Ok(())
    }

    fn stamp(&self) -> Duration {
        let rest = self.now.as_nanos() % self.tick.as_nanos();
        self.now - Duration::from_nanos(u64::try_from(rest).unwrap())
    }

    fn store(&mut self, node: Node) -> u64 {
        let is_gone = |node: &Node| node.links == 0 && Arc::strong_count(&node.pin.0) == 1;
        let index = match self.nodes.iter().position(is_gone) {
            Some(index) if self.reuse == Reuse::AtOnce => {
                self.nodes[index] = node;
                index
            }
            _ => {
                self.nodes.push(node);
                self.nodes.len() - 1
            }
        };
        ROOT + u64::try_from(index).unwrap()
    }
}

fn index(inode: u64) -> usize {
    usize::try_from(inode - ROOT).unwrap()
}

/// Whether the link at the end of a path is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Follow {
    Yes,
    No,
}

pub(super) fn timestamp(since_1970: Duration) -> Timestamp {
    Timestamp { seconds: i64::try_from(since_1970.as_secs()).unwrap(), nanos: since_1970.subsec_nanos() }
}

pub(super) const ROOT: u64 = 2;

/// Any of the three search bits: there is only one user here, and it is not root.
pub(super) const SEARCH: u32 = 0o111;

/// Any of the three read bits.
pub(super) const READ: u32 = 0o444;
