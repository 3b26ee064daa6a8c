//! Which directories are watched for which names, on behalf of which slots.
//!
//! Pure bookkeeping: it neither watches nor reads. A slot hands in what its last resolution looked up; the
//! difference to before is what the backend has to arm and to let go. A directory is known by path *and*
//! inode, so one that was swapped for another is armed again.
//!
//! A directory on the way is watched for its own sake: that it is moved or removed. What else happens in the
//! directory above it (think of `/tmp`) wakes nobody.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use crate::source::{Found, Inode, Trace};

/// Names one reloader within a watcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SlotId(pub(crate) u64);

/// A directory to be watched.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct WatchedDir {
    pub(crate) path: PathBuf,
    pub(crate) inode: Inode,
}

/// What matters in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Depth {
    /// That it stays what it is: not moved, not removed, not closed to us.
    Itself,
    /// Names that come, go or are replaced: links on the way, and what is missing.
    Entries,
    /// The files behind the names as well.
    Contents,
}

/// What the backend has to do.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Difference {
    pub(crate) arm: Vec<(WatchedDir, Depth)>,
    pub(crate) release: Vec<WatchedDir>,
}

/// The directories of all slots.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    dirs: HashMap<WatchedDir, Interest>,
    slots: HashMap<SlotId, BTreeSet<(WatchedDir, OsString)>>,
}

#[derive(Debug)]
struct Interest {
    /// How deep it is armed; `None` where the kernel has let the watch go.
    armed: Option<Depth>,
    depth: Depth,
    names: HashMap<OsString, BTreeSet<SlotId>>,
}

impl Plan {
    /// Replaces what `slot` is interested in by what `trace` looked up.
    pub(crate) fn set(&mut self, slot: SlotId, trace: &Trace) -> Difference {
        let mut depths: BTreeMap<WatchedDir, Depth> = BTreeMap::new();
        let mut wanted = BTreeSet::new();
        for hop in trace.hops() {
            let parent = || (WatchedDir { path: hop.dir.clone(), inode: hop.dir_id }, hop.name.clone());
            let (depth, (dir, name)) = match hop.found {
                Found::Directory(inode) => {
                    let dir = WatchedDir { path: hop.dir.join(&hop.name), inode };
                    // No event bears an empty name.
                    (Depth::Itself, (dir, OsString::new()))
                }
                Found::Link(_) | Found::Missing => (Depth::Entries, parent()),
                Found::File(_) | Found::Refused(_) => (Depth::Contents, parent()),
            };
            let deepest = depths.entry(dir.clone()).or_insert(depth);
            *deepest = depth.max(*deepest);
            wanted.insert((dir, name));
        }
        let before = self.slots.insert(slot, wanted.clone()).unwrap_or_default();
        let mut difference = Difference::default();
        for (dir, name) in &wanted {
            let depth = depths.get(dir).copied().unwrap_or(Depth::Contents);
            if let Some(depth) = self.add(slot, dir, name, depth) {
                difference.arm.push((dir.clone(), depth));
            }
        }
        for (dir, name) in before.difference(&wanted) {
            self.drop_name(slot, dir, name, &mut difference.release);
        }
        difference
    }

    /// Forgets `slot`; returns the directories that nobody needs any more.
    pub(crate) fn remove(&mut self, slot: SlotId) -> Vec<WatchedDir> {
        let mut release = Vec::new();
        for (dir, name) in self.slots.remove(&slot).unwrap_or_default() {
            self.drop_name(slot, &dir, &name, &mut release);
        }
        release
    }

    /// The slots that care for `name` in `dir`; without a name, all that care for `dir`.
    pub(crate) fn concerned(&self, dir: &WatchedDir, name: Option<&OsStr>) -> BTreeSet<SlotId> {
        let Some(interest) = self.dirs.get(dir) else {
            return BTreeSet::new();
        };
        match name {
            Some(name) => interest.names.get(name).cloned().unwrap_or_default(),
            None => interest.names.values().flatten().copied().collect(),
        }
    }

    /// The kernel no longer watches `dir`, or never began to: whoever still needs it arms it again.
    pub(crate) fn lost(&mut self, dir: &WatchedDir) {
        if let Some(interest) = self.dirs.get_mut(dir) {
            interest.armed = None;
        }
    }

    /// How deep the directory has to be armed now, if it is not armed so already.
    fn add(&mut self, slot: SlotId, dir: &WatchedDir, name: &OsStr, depth: Depth) -> Option<Depth> {
        let interest = self.dirs.entry(dir.clone()).or_insert_with(|| Interest {
            armed: None,
            depth,
            names: HashMap::new(),
        });
        interest.names.entry(name.to_owned()).or_default().insert(slot);
        interest.depth = depth.max(interest.depth);
        let wanted = Some(interest.depth).filter(|&depth| interest.armed < Some(depth));
        interest.armed = Some(interest.depth);
        wanted
    }

    fn drop_name(&mut self, slot: SlotId, dir: &WatchedDir, name: &OsStr, release: &mut Vec<WatchedDir>) {
        let Some(interest) = self.dirs.get_mut(dir) else {
            return;
        };
        if let Some(slots) = interest.names.get_mut(name) {
            slots.remove(&slot);
            if slots.is_empty() {
                interest.names.remove(name);
            }
        }
        if interest.names.is_empty() {
            self.dirs.remove(dir);
            release.push(dir.clone());
        }
    }
}
