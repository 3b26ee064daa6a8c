//! What the watch plan has to be, as a plain list of what each slot looked up last.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};

use arbitrary::Arbitrary;
use rustls_reload::fuzzing::{Look, Lookup, Plan, Watched};

/// What happens to the plan.
#[derive(Arbitrary, Debug)]
pub enum Action {
    Set {
        slot: u8,
        lookups: Vec<Name>,
    },
    Remove {
        slot: u8,
    },
    /// The kernel has let one of the armed things go.
    Lost {
        which: u8,
    },
}

/// A name in one of a few directories; each path has been two inodes.
#[derive(Arbitrary, Debug)]
pub struct Name {
    dir: u8,
    name: u8,
    look: u8,
}

/// See [`Plan::new`].
pub struct Model {
    files_too: bool,
    slots: BTreeMap<u64, BTreeSet<Want>>,
    /// What the kernel watches, and how deep.
    armed: BTreeMap<Watched, u8>,
    /// Let go by the kernel, and nobody who needs it came by since.
    lost: BTreeSet<Watched>,
}

/// What is watched, which events of it matter, and how deep it has to be armed for that.
type Want = (Watched, Matters, u8);

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Matters {
    Itself,
    AnyVisibleName,
    Name(OsString),
}

impl Model {
    pub fn new(files_too: bool) -> Self {
        Self { files_too, slots: BTreeMap::new(), armed: BTreeMap::new(), lost: BTreeSet::new() }
    }

    pub fn act(&mut self, plan: &mut Plan, action: &Action) {
        match action {
            Action::Set { slot, lookups } => self.set(plan, slot_id(*slot), lookups),
            Action::Remove { slot } => self.remove(plan, slot_id(*slot)),
            Action::Lost { which } => self.lose(plan, *which),
        }
    }

    fn set(&mut self, plan: &mut Plan, slot: u64, names: &[Name]) {
        let lookups: Vec<Lookup> = names.iter().map(lookup).collect();
        let (arm, release) = plan.set(slot, &lookups);
        self.slots.insert(slot, lookups.iter().flat_map(|lookup| wants(lookup, self.files_too)).collect());
        for (watched, depth) in arm {
            let before = self.armed.insert(watched.clone(), depth);
            assert!(before < Some(depth), "{watched:?} is armed already");
            self.lost.remove(&watched);
        }
        self.release(release);
        for (watched, _, depth) in &self.slots[&slot] {
            assert!(self.armed.get(watched).is_some_and(|armed| armed >= depth), "{watched:?} is not armed");
        }
    }

    fn remove(&mut self, plan: &mut Plan, slot: u64) {
        let release = plan.remove(slot);
        self.slots.remove(&slot);
        self.release(release);
    }

    fn lose(&mut self, plan: &mut Plan, which: u8) {
        let watched = self.armed.keys().nth(usize::from(which) % self.armed.len().max(1)).cloned();
        if let Some(watched) = watched {
            plan.lost(&watched);
            self.armed.remove(&watched);
            self.lost.insert(watched);
        }
    }

    fn release(&mut self, all: Vec<Watched>) {
        for watched in all {
            let was_lost = self.lost.remove(&watched);
            assert!(self.armed.remove(&watched).is_some() || was_lost, "{watched:?} is let go twice");
        }
    }

    /// What is armed, and who is told of what, is what the slots want.
    pub fn check(&self, plan: &Plan) {
        let wants: Vec<(u64, &Want)> =
            self.slots.iter().flat_map(|(slot, wants)| wants.iter().map(|want| (*slot, want))).collect();
        let wanted: BTreeSet<&Watched> = wants.iter().map(|(_, (watched, ..))| watched).collect();
        let known: BTreeSet<&Watched> = self.armed.keys().chain(&self.lost).collect();
        assert_eq!(known, wanted);
        for (_, (watched, _, depth)) in &wants {
            let is_armed = self.lost.contains(watched) || self.armed[watched] >= *depth;
            assert!(is_armed, "{watched:?} is not deep enough");
        }
        for watched in (0..DIRS).map(dir).chain(wanted.into_iter().cloned()) {
            let slots = |matters: &dyn Fn(&Matters) -> bool| -> Vec<u64> {
                let of_it = wants.iter().filter(|(_, want)| want.0 == watched && matters(&want.1));
                of_it.map(|(slot, _)| *slot).collect::<BTreeSet<u64>>().into_iter().collect()
            };
            assert_eq!(plan.concerned(&watched, None), slots(&|_| true), "{watched:?}");
            for name in (0..NAMES).map(name) {
                let is_visible = !name.to_string_lossy().starts_with('.');
                let slots = slots(&|matters| match matters {
                    Matters::Itself => false,
                    Matters::AnyVisibleName => is_visible,
                    Matters::Name(wanted) => *wanted == name,
                });
                assert_eq!(plan.concerned(&watched, Some(&name)), slots, "{name:?} in {watched:?}");
            }
        }
        assert_eq!(plan.is_empty(), self.slots.is_empty());
    }

    /// Nothing stays behind.
    pub fn remove_all(mut self, plan: &mut Plan) {
        for slot in self.slots.keys().copied().collect::<Vec<_>>() {
            self.remove(plan, slot);
        }
        self.check(plan);
        assert!(self.armed.is_empty() && self.lost.is_empty() && plan.is_empty());
    }
}

/// A directory on the way is wanted for its own sake; of everything else the directory above is wanted, by the
/// name that was looked up; of a directory of files, every name that can be seen. A file is wanted by itself
/// where its directory does not tell of it.
fn wants(lookup: &Lookup, files_too: bool) -> Vec<Want> {
    let path = || lookup.dir.join(&lookup.name);
    let above = || Watched { is_file: false, path: lookup.dir.clone(), inode: lookup.dir_inode };
    let name = || Matters::Name(lookup.name.clone());
    match lookup.look {
        Look::Directory(inode) => vec![(Watched { is_file: false, path: path(), inode }, Matters::Itself, 0)],
        Look::Link | Look::Missing => vec![(above(), name(), 1)],
        Look::Names => vec![(above(), Matters::AnyVisibleName, 2)],
        Look::File(inode) if files_too => {
            vec![(above(), name(), 2), (Watched { is_file: true, path: path(), inode }, Matters::Itself, 2)]
        }
        Look::File(_) | Look::Fifo | Look::Refused => vec![(above(), name(), 2)],
    }
}

fn lookup(from: &Name) -> Lookup {
    let look = match from.look % 9 {
        0 => Look::Directory(1),
        1 => Look::Directory(2),
        2 => Look::Link,
        3 => Look::File(1),
        4 => Look::File(2),
        5 => Look::Fifo,
        6 => Look::Names,
        7 => Look::Missing,
        _ => Look::Refused,
    };
    let Watched { path, inode, .. } = dir(from.dir % DIRS);
    Lookup { dir: path, dir_inode: inode, name: name(from.name % NAMES), look }
}

/// `/`, `/a`, `/b` and `/a/a`, as one inode or another.
fn dir(number: u8) -> Watched {
    let path = ["/", "/a", "/b", "/a/a"][usize::from(number / 2 % 4)];
    Watched { is_file: false, path: path.into(), inode: u64::from(number % 2) + 1 }
}

fn name(number: u8) -> OsString {
    OsStr::new(["a", "b", ".c"][usize::from(number % NAMES)]).to_owned()
}

fn slot_id(slot: u8) -> u64 {
    u64::from(slot % 4)
}

const DIRS: u8 = 8;
const NAMES: u8 = 3;
