//! Which directories are watched for which names, on behalf of which slots.
//!
//! Pure bookkeeping: it neither watches nor reads. A slot hands in what its last resolution looked up; the
//! difference to before is what the backend has to arm and to let go. A directory is known by path *and*
//! inode, so one that was swapped for another is armed again. Where the kernel tells of a write to a file
//! only to those who watch that file ([`Reach::FilesToo`]), files are known and watched in the same way.
//!
//! A directory on the way is watched for its own sake: that it is moved or removed. What else happens in the
//! directory above it (think of `/tmp`) wakes nobody. In a directory of files, every name that may be one of them
//! matters.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use crate::source::{FileKind, Found, Inode, Trace, is_visible};

/// Names one reloader within a watcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SlotId(pub(crate) u64);

/// What is to be watched.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Watched {
    pub(crate) kind: Kind,
    pub(crate) path: PathBuf,
    pub(crate) inode: Inode,
}

/// What can be watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    Directory,
    /// A regular file, by itself: its name may lead to another one at any time.
    File,
}

/// How far one watch reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(dead_code, reason = "each backend names one of them")]
pub(crate) enum Reach {
    /// That of a directory tells of the files in it.
    Directories,
    /// That of a directory tells of its entries alone: files are watched as well.
    FilesToo,
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
    pub(crate) arm: Vec<(Watched, Depth)>,
    pub(crate) release: Vec<Watched>,
}

/// What is watched for all slots.
#[derive(Debug)]
pub(crate) struct Plan {
    reach: Reach,
    watched: HashMap<Watched, Interest>,
    slots: HashMap<SlotId, BTreeSet<(Watched, Name)>>,
}

/// What a slot cares for in what is watched.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Name {
    /// The directory itself, as a part of the way, or the file.
    Itself,
    /// Any name that does not start with a dot.
    Visible,
    This(OsString),
}

#[derive(Debug)]
struct Interest {
    /// How deep it is armed; `None` where the kernel has let the watch go.
    armed: Option<Depth>,
    depth: Depth,
    names: HashMap<Name, BTreeSet<SlotId>>,
}

impl Plan {
    pub(crate) fn new(reach: Reach) -> Self {
        Self { reach, watched: HashMap::new(), slots: HashMap::new() }
    }

    /// Replaces what `slot` is interested in by what `trace` looked up.
    pub(crate) fn set(&mut self, slot: SlotId, trace: &Trace) -> Difference {
        let mut depths: BTreeMap<Watched, Depth> = BTreeMap::new();
        let mut wanted = BTreeSet::new();
        for hop in trace.hops() {
            let dir = |path, inode| Watched { kind: Kind::Directory, path, inode };
            let parent = || dir(hop.dir.clone(), hop.dir_id);
            let this = || (parent(), Name::This(hop.name.clone()));
            let itself = |watched| (watched, Name::Itself);
            let (depth, (watched, name)) = match hop.found {
                Found::Directory(inode) => (Depth::Itself, itself(dir(hop.dir.join(&hop.name), inode))),
                Found::Link(_) | Found::Missing => (Depth::Entries, this()),
                Found::File(_) | Found::Refused(_) => (Depth::Contents, this()),
                Found::Names(_) => (Depth::Contents, (parent(), Name::Visible)),
            };
            let deepest = depths.entry(watched.clone()).or_insert(depth);
            *deepest = depth.max(*deepest);
            wanted.insert((watched, name));
            if let (Reach::FilesToo, Found::File(status)) = (self.reach, &hop.found)
                && status.kind == FileKind::File
            {
                let (path, inode) = (hop.dir.join(&hop.name), status.identity.inode);
                wanted.insert(itself(Watched { kind: Kind::File, path, inode }));
            }
        }
        let before = self.slots.insert(slot, wanted.clone()).unwrap_or_default();
        let mut difference = Difference::default();
        for (watched, name) in &wanted {
            let depth = depths.get(watched).copied().unwrap_or(Depth::Contents);
            if let Some(depth) = self.add(slot, watched, name, depth) {
                difference.arm.push((watched.clone(), depth));
            }
        }
        for (watched, name) in before.difference(&wanted) {
            self.drop_name(slot, watched, name, &mut difference.release);
        }
        difference
    }

    /// Forgets `slot`; returns what nobody needs watched any more.
    pub(crate) fn remove(&mut self, slot: SlotId) -> Vec<Watched> {
        let mut release = Vec::new();
        for (watched, name) in self.slots.remove(&slot).unwrap_or_default() {
            self.drop_name(slot, &watched, &name, &mut release);
        }
        release
    }

    /// The slots that care for `name` in what is watched; without a name, all that care for anything there.
    pub(crate) fn concerned(&self, watched: &Watched, name: Option<&OsStr>) -> BTreeSet<SlotId> {
        let Some(interest) = self.watched.get(watched) else {
            return BTreeSet::new();
        };
        let Some(name) = name else {
            return interest.names.values().flatten().copied().collect();
        };
        let this = interest.names.get(&Name::This(name.to_owned()));
        let any = interest.names.get(&Name::Visible).filter(|_| is_visible(name));
        this.into_iter().chain(any).flatten().copied().collect()
    }

    /// The kernel no longer watches it, or never began to: whoever still needs it arms it again.
    pub(crate) fn lost(&mut self, watched: &Watched) {
        if let Some(interest) = self.watched.get_mut(watched) {
            interest.armed = None;
        }
    }

    #[cfg(fuzzing)]
    pub(crate) fn is_empty(&self) -> bool {
        self.watched.is_empty() && self.slots.is_empty()
    }

    /// How deep it has to be armed now, if it is not armed so already.
    fn add(&mut self, slot: SlotId, watched: &Watched, name: &Name, depth: Depth) -> Option<Depth> {
        let interest = self.watched.entry(watched.clone()).or_insert_with(|| Interest {
            armed: None,
            depth,
            names: HashMap::new(),
        });
        interest.names.entry(name.clone()).or_default().insert(slot);
        interest.depth = depth.max(interest.depth);
        let wanted = Some(interest.depth).filter(|&depth| interest.armed < Some(depth));
        interest.armed = Some(interest.depth);
        wanted
    }

    fn drop_name(&mut self, slot: SlotId, watched: &Watched, name: &Name, release: &mut Vec<Watched>) {
        let Some(interest) = self.watched.get_mut(watched) else {
            return;
        };
        if let Some(slots) = interest.names.get_mut(name) {
            slots.remove(&slot);
            if slots.is_empty() {
                interest.names.remove(name);
            }
        }
        if interest.names.is_empty() {
            self.watched.remove(watched);
            release.push(watched.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paths::Paths;
    use crate::source::{Hop, Identity, OsDisk, Status, Timestamp, Walk};

    /// `/tls` with the inode 2, which lies in `/`, the inode 1.
    const TLS: (&str, u64) = ("/tls", 2);

    const ONE: SlotId = SlotId(1);
    const TWO: SlotId = SlotId(2);

    #[test]
    fn directories_on_the_way_are_watched_for_their_own_sake() {
        let mut plan = Plan::new(Reach::Directories);
        let difference = plan.set(ONE, &pair(TLS, 10, 11));
        assert_eq!(difference.arm, [(dir(TLS), Depth::Contents)]);
        let relinked = trace([
            hop(("/", 1), "tls", Found::Directory(inode(2))),
            hop(TLS, "..data", Found::Link("..1".into())),
            hop(TLS, "..1", Found::Directory(inode(3))),
            hop(("/tls/..1", 3), "c.crt", file(10)),
        ]);
        let difference = Plan::new(Reach::Directories).set(ONE, &relinked);
        assert_eq!(difference.arm, [(dir(TLS), Depth::Entries), (dir(("/tls/..1", 3)), Depth::Contents)]);
    }

    #[test]
    fn missing_directory_is_watched_for_where_it_would_be() {
        let mut plan = Plan::new(Reach::FilesToo);
        let difference = plan.set(ONE, &trace([hop(("/", 1), "tls", Found::Missing)]));
        assert_eq!(difference.arm, [(dir(("/", 1)), Depth::Entries)]);
        let difference = plan.set(ONE, &pair(TLS, 10, 11));
        assert_eq!(difference.release, [dir(("/", 1))]);
    }

    #[test]
    fn same_trace_again_changes_nothing() {
        for reach in [Reach::Directories, Reach::FilesToo] {
            let mut plan = Plan::new(reach);
            plan.set(ONE, &pair(TLS, 10, 11));
            assert_eq!(plan.set(ONE, &pair(TLS, 10, 11)), Difference::default(), "{reach:?}");
        }
    }

    #[test]
    fn deeper_is_armed_again_and_shallower_is_not() {
        let mut plan = Plan::new(Reach::Directories);
        plan.set(ONE, &trace([hop(TLS, "c.crt", Found::Missing)]));
        let difference = plan.set(ONE, &pair(TLS, 10, 11));
        assert_eq!(difference.arm, [(dir(TLS), Depth::Contents)]);
        let difference = plan.set(TWO, &trace([hop(TLS, "d.crt", Found::Missing)]));
        assert_eq!(difference, Difference::default());
    }

    #[test]
    fn directory_in_place_of_another_is_armed_and_the_old_one_let_go() {
        let mut plan = Plan::new(Reach::Directories);
        plan.set(ONE, &pair(TLS, 10, 11));
        let difference = plan.set(ONE, &pair(("/tls", 9), 10, 11));
        assert_eq!(difference.arm, [(dir(("/tls", 9)), Depth::Contents)]);
        assert_eq!(difference.release, [dir(TLS)]);
    }

    #[test]
    fn files_are_watched_where_their_directory_does_not_tell_of_them() {
        let mut plan = Plan::new(Reach::FilesToo);
        let difference = plan.set(ONE, &pair(TLS, 10, 11));
        let (crt, key) = (watched_file("/tls/c.crt", 10), watched_file("/tls/c.key", 11));
        let armed: Vec<_> = difference.arm.into_iter().map(|(watched, _)| watched).collect();
        assert_eq!(armed, [dir(TLS), crt.clone(), key.clone()]);
        assert_eq!(plan.concerned(&key, None), BTreeSet::from([ONE]));
        // Renamed over: the name leads to another file.
        let difference = plan.set(ONE, &pair(TLS, 12, 11));
        assert_eq!(difference.arm, [(watched_file("/tls/c.crt", 12), Depth::Contents)]);
        assert_eq!(difference.release, std::slice::from_ref(&crt));
        assert_eq!(plan.concerned(&crt, None), BTreeSet::new());
        assert_eq!(plan.remove(ONE), [dir(TLS), watched_file("/tls/c.crt", 12), key]);
    }

    #[test]
    fn only_regular_files_are_watched() {
        let mut plan = Plan::new(Reach::FilesToo);
        let Found::File(status) = file(10) else { unreachable!() };
        let fifo = Found::File(Status { kind: FileKind::Fifo, ..status });
        let difference = plan.set(ONE, &trace([hop(TLS, "c.crt", fifo)]));
        assert_eq!(difference.arm, [(dir(TLS), Depth::Contents)]);
    }

    #[test]
    fn what_two_slots_share_is_armed_once_and_stays_until_the_last_one_goes() {
        let mut plan = Plan::new(Reach::FilesToo);
        plan.set(ONE, &pair(TLS, 10, 11));
        assert_eq!(plan.set(TWO, &pair(TLS, 10, 11)), Difference::default());
        let both = BTreeSet::from([ONE, TWO]);
        assert_eq!(plan.concerned(&dir(TLS), Some(OsStr::new("c.crt"))), both);
        assert_eq!(plan.concerned(&watched_file("/tls/c.crt", 10), None), both);
        assert_eq!(plan.remove(ONE), []);
        assert_eq!(plan.concerned(&dir(TLS), Some(OsStr::new("c.crt"))), BTreeSet::from([TWO]));
        assert_eq!(plan.remove(TWO).len(), 3);
        assert_eq!(plan.remove(TWO), []);
    }

    #[test]
    fn a_name_concerns_those_alone_who_looked_it_up() {
        let mut plan = Plan::new(Reach::Directories);
        plan.set(ONE, &trace([hop(TLS, "c.crt", file(10))]));
        plan.set(TWO, &trace([hop(TLS, "d.crt", file(11))]));
        assert_eq!(plan.concerned(&dir(TLS), Some(OsStr::new("d.crt"))), BTreeSet::from([TWO]));
        assert_eq!(plan.concerned(&dir(TLS), Some(OsStr::new("e.crt"))), BTreeSet::new());
        assert_eq!(plan.concerned(&dir(TLS), None), BTreeSet::from([ONE, TWO]));
    }

    #[test]
    fn what_the_kernel_let_go_is_armed_again() {
        let mut plan = Plan::new(Reach::Directories);
        plan.set(ONE, &pair(TLS, 10, 11));
        plan.lost(&dir(TLS));
        let difference = plan.set(ONE, &pair(TLS, 10, 11));
        assert_eq!(difference.arm, [(dir(TLS), Depth::Contents)]);
        // And by whoever comes next, as deep as all need it.
        plan.lost(&dir(TLS));
        let difference = plan.set(TWO, &trace([hop(TLS, "d.crt", Found::Missing)]));
        assert_eq!(difference.arm, [(dir(TLS), Depth::Contents)]);
    }

    #[test]
    fn any_visible_name_in_a_directory_of_files_concerns_its_slot() {
        let tmp = tempfile::tempdir().unwrap();
        let at = |name: &str| tmp.path().join(name);
        std::fs::create_dir(at("crls")).unwrap();
        std::fs::create_dir(at("..g1")).unwrap();
        for name in ["..g1/b", "crls/a", "c", "k"] {
            std::fs::write(at(name), name).unwrap();
        }
        std::os::unix::fs::symlink("../..g1/b", at("crls/b")).unwrap();
        let paths = Paths::new(at("c"), at("k")).with_crl(at("crls"));
        let trace = Walk::new(&OsDisk, &paths).unwrap().trace();
        let mut plan = Plan::new(Reach::Directories);
        let armed = plan.set(ONE, &trace).arm;
        let dir_named = |name| armed.iter().find(|(armed, _)| armed.path.ends_with(name)).unwrap();
        let (crls, depth) = dir_named("crls");
        assert_eq!(*depth, Depth::Contents);
        let concerned = |dir, name: &str| !plan.concerned(dir, Some(OsStr::new(name))).is_empty();
        for (name, expected) in [("a", true), ("b", true), ("new", true), (".new", false), ("..data", false)]
        {
            assert_eq!(concerned(crls, name), expected, "{name}");
        }
        let (dated, _) = dir_named("..g1");
        assert!(concerned(dated, "b") && !concerned(dated, "new"));
        let released = plan.remove(ONE);
        assert!(released.contains(crls), "{released:?}");
        assert!(plan.concerned(crls, Some(OsStr::new("a"))).is_empty());
    }

    /// A certificate and a key in a directory below `/`.
    fn pair(tls: (&str, u64), crt: u64, key: u64) -> Trace {
        trace([
            hop(("/", 1), "tls", Found::Directory(inode(tls.1))),
            hop(tls, "c.crt", file(crt)),
            hop(tls, "c.key", file(key)),
        ])
    }

    fn trace<const N: usize>(hops: [Hop; N]) -> Trace {
        Trace::of_hops(hops.into())
    }

    fn hop((path, number): (&str, u64), name: &str, found: Found) -> Hop {
        Hop { dir: path.into(), dir_id: inode(number), name: name.into(), found }
    }

    fn file(number: u64) -> Found {
        let stamp = Timestamp { seconds: 0, nanos: 0 };
        let identity = Identity { inode: inode(number), size: 1, modified: stamp, changed: stamp };
        Found::File(Status { kind: FileKind::File, mode: 0o600, identity })
    }

    fn dir((path, number): (&str, u64)) -> Watched {
        Watched { kind: Kind::Directory, path: path.into(), inode: inode(number) }
    }

    fn watched_file(path: &str, number: u64) -> Watched {
        Watched { kind: Kind::File, path: path.into(), inode: inode(number) }
    }

    fn inode(number: u64) -> Inode {
        Inode { device: 1, number }
    }
}
