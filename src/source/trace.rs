//! What a resolution found, without any handle: comparable, and the base of the watch plan.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;

use super::disk::{Disk, FileKind, Identity, Inode, MAX_NAMES, Status, Timestamp};

/// Every name that was looked up on the way to every configured file, with the answer.
///
/// Two equal traces with aged identities are the same content; equal but young ones prove nothing, see
/// [`Trace::is_proof_at`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Trace {
    pub(super) hops: Vec<Hop>,
    pub(super) routes: Vec<Route>,
}

/// One name that was looked up in one directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hop {
    /// The directory as it was reached: absolute, without links.
    pub(crate) dir: PathBuf,
    pub(crate) dir_id: Inode,
    pub(crate) name: OsString,
    pub(crate) found: Found,
}

/// What a name was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Directory(Inode),
    Link(OsString),
    /// A regular file, or what stands in its place.
    File(Status),
    /// What is in the directory, in order: any visible name that comes, goes or is written matters.
    Names(Result<Vec<OsString>, Unlisted>),
    Missing,
    Refused(io::ErrorKind),
}

/// One configured path, or one file in a configured directory: its hops, as indices, in the order of the walk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Route {
    pub(super) path: PathBuf,
    pub(super) hops: Vec<usize>,
    /// A regular file was reached, or the file may be missing and is.
    pub(super) complete: bool,
    pub(super) goal: Goal,
}

/// What is at the end of a configured path, as far as the kernel would say so in one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Goal {
    File(Identity),
    /// A name is missing on the way, or a file stands where a directory is to be passed.
    Absent,
    NotAFile(FileKind),
    LinkLoop,
    Refused(io::ErrorKind),
    /// A directory with these names, in order, or the reason why they cannot be had.
    Names(Result<(Inode, Vec<OsString>), Unlisted>),
}

/// Why the names in a directory are not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unlisted {
    TooMany,
    Refused(io::ErrorKind, Option<i32>),
}

impl Trace {
    pub(crate) fn hops(&self) -> &[Hop] {
        &self.hops
    }

    /// Whether one link that leads to every configured file is all that differs from `earlier`.
    ///
    /// A link is re-pointed in one step, and to what is complete, so nothing more is to be waited for. A
    /// directory of another identity proves less: it may have been made just now and be filled still.
    pub(crate) fn moved_as_one_since(&self, earlier: &Self) -> bool {
        // Files that came or went in a directory are not carried by anything.
        if self.routes.len() != earlier.routes.len() {
            return false;
        }
        let mut carrier = None;
        for (now, before) in self.routes.iter().zip(&earlier.routes) {
            let hops = || self.hops_of(now).zip(earlier.hops_of(before));
            let Some((hop, was)) = hops().find(|(hop, was)| hop != was) else {
                if now.may_be_missing_and_is() || now.is_a_directory() {
                    continue;
                }
                return false;
            };
            let relinked = matches!((&hop.found, &was.found), (Found::Link(_), Found::Link(_)));
            let same_place = (&hop.dir_id, &hop.name) == (&was.dir_id, &was.name);
            let shared = carrier.is_none_or(|carrier: &Hop| carrier == hop);
            if !(relinked && same_place && shared && now.complete) {
                return false;
            }
            carrier = Some(hop);
        }
        carrier.is_some()
    }

    /// Whether the disk still looks like this: the links as they were, and at the end of each path the same
    /// file. Costs one system call a link and one a path.
    pub(crate) fn still_holds<D: Disk>(&self, disk: &D) -> bool {
        let links = self.hops.iter().all(|hop| match &hop.found {
            Found::Link(text) => {
                disk.read_link_at(&hop.dir.join(&hop.name)).ok().flatten().as_ref() == Some(text)
            }
            _ => true,
        });
        links && self.first_moved(disk).is_none()
    }

    /// Whether equal identities later prove equal content: each file was at least [`AGED_SECONDS`] old.
    ///
    /// Before Linux 6.13 time stamps tick every 4 to 10 ms, and two writes can share one. A time stamp of
    /// the future proves nothing either.
    pub(crate) fn is_proof_at(&self, now: Timestamp) -> bool {
        let aged = |stamp: Timestamp| stamp.seconds.saturating_add(AGED_SECONDS) < now.seconds;
        self.identities().all(|identity| aged(identity.modified) && aged(identity.changed))
    }

    /// Whether a file was written less than `quiet` before `now`, and the set does not move as one.
    pub(crate) fn is_in_motion_at(&self, now: Timestamp, quiet: Duration) -> bool {
        let age = |stamp: Timestamp| now.duration_since(stamp);
        let recent = |stamp| age(stamp).is_some_and(|age| age < quiet);
        !self.moves_as_one() && self.identities().any(|identity| recent(identity.changed))
    }

    /// Whether one link leads to the directory of every configured file that is there.
    fn moves_as_one(&self) -> bool {
        let mut carriers = self
            .routes
            .iter()
            .filter(|route| !(route.may_be_missing_and_is() || route.is_a_directory()))
            .map(|route| self.carrier(route));
        let first = carriers.next().flatten();
        first.is_some() && carriers.all(|carrier| carrier == first)
    }

    /// The link whose text ends in the directory of the file, if the last link on the way is such a one.
    fn carrier<'a>(&'a self, route: &'a Route) -> Option<&'a Hop> {
        let hops: Vec<&Hop> = self.hops_of(route).collect();
        let at = hops.iter().rposition(|hop| matches!(hop.found, Found::Link(_)))?;
        let (link, rest) = hops.get(at..)?.split_first()?;
        let Found::Link(text) = &link.found else { return None };
        let names = Path::new(text).components().filter(|name| matches!(name, Component::Normal(_))).count();
        let passed = rest.iter().filter(|hop| matches!(hop.found, Found::Directory(_))).count();
        (names == passed).then_some(link)
    }

    /// The first path that does not lead to what was found.
    pub(super) fn first_moved<D: Disk>(&self, disk: &D) -> Option<&Path> {
        self.routes.iter().find(|route| !route.ends_as_found(disk)).map(|route| route.path.as_path())
    }

    fn hops_of<'a>(&'a self, route: &'a Route) -> impl Iterator<Item = &'a Hop> {
        route.hops.iter().filter_map(|&index| self.hops.get(index))
    }

    fn identities(&self) -> impl Iterator<Item = Identity> {
        self.hops.iter().filter_map(|hop| match &hop.found {
            Found::File(status) => Some(status.identity),
            _ => None,
        })
    }
}

#[cfg(any(test, fuzzing))]
impl Trace {
    /// Of hops alone: what a watch plan is made of.
    pub(crate) fn of_hops(hops: Vec<Hop>) -> Self {
        Self { hops, routes: Vec::new() }
    }
}

impl Route {
    fn ends_as_found<D: Disk>(&self, disk: &D) -> bool {
        if let Goal::Names(then) = &self.goal {
            return !relists(disk) || list_at(disk, &self.path) == *then;
        }
        match (disk.stat(&self.path), &self.goal) {
            (Ok(now), Goal::File(then)) => now.identity == *then,
            (Ok(now), Goal::NotAFile(kind)) => now.kind == *kind,
            (Err(error), Goal::Absent) => is_missing(&error),
            (Err(error), Goal::LinkLoop) => Errno::from_io_error(&error) == Some(Errno::LOOP),
            (Err(error), Goal::Refused(kind)) => error.kind() == *kind,
            _ => false,
        }
    }

    fn may_be_missing_and_is(&self) -> bool {
        self.complete && self.goal == Goal::Absent
    }

    /// Of which the files, with routes of their own, are what counts.
    fn is_a_directory(&self) -> bool {
        self.complete && matches!(self.goal, Goal::Names(_) | Goal::NotAFile(FileKind::Directory))
    }
}

fn list_at<D: Disk>(disk: &D, path: &Path) -> Result<(Inode, Vec<OsString>), Unlisted> {
    match disk.list_at(path) {
        Ok((inode, names)) => Ok((inode, visible(names)?)),
        Err(error) => Err(Unlisted::Refused(error.kind(), error.raw_os_error())),
    }
}

/// The names that count, in order.
pub(super) fn visible(mut names: Vec<OsString>) -> Result<Vec<OsString>, Unlisted> {
    if names.len() > MAX_NAMES {
        return Err(Unlisted::TooMany);
    }
    names.retain(|name| is_visible(name));
    names.sort_unstable();
    Ok(names)
}

/// Whether a name in a directory of files is one of them: `..data` and what is still being written are not.
pub(crate) fn is_visible(name: &OsStr) -> bool {
    !name.as_encoded_bytes().starts_with(b".")
}

#[cfg(not(test))]
fn relists<D: Disk>(_: &D) -> bool {
    true
}

#[cfg(test)]
fn relists<D: Disk>(disk: &D) -> bool {
    !disk.sabotage().trusts_listing
}

/// Whether an error says "there is no such file": `ENOTDIR` is what a path through a file gets.
pub(super) fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// From this age on an equal identity is proof of equal content.
const AGED_SECONDS: i64 = 2;
