//! What a resolution found, without any handle: comparable, and the base of the watch plan.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use super::disk::{Disk, Identity, Inode, Status, Timestamp};

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
    Missing,
    Refused(io::ErrorKind),
}

/// One configured path: its hops, as indices, in the order of the walk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Route {
    pub(super) path: PathBuf,
    pub(super) hops: Vec<usize>,
    /// A regular file was reached, or the file may be missing and is.
    pub(super) complete: bool,
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
        let mut carrier = None;
        for (now, before) in self.routes.iter().zip(&earlier.routes) {
            let hops = || self.hops_of(now).zip(earlier.hops_of(before));
            let Some((hop, was)) = hops().find(|(hop, was)| hop != was) else {
                if now.is_missing_in(self) {
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

    /// The first path that does not lead to what was found.
    pub(super) fn first_moved<D: Disk>(&self, disk: &D) -> Option<&Path> {
        self.routes.iter().find(|route| !self.ends_as_found(disk, route)).map(|route| route.path.as_path())
    }

    fn ends_as_found<D: Disk>(&self, disk: &D, route: &Route) -> bool {
        let end = self.hops_of(route).last().map(|hop| &hop.found);
        match (disk.stat(&route.path), end) {
            (Ok(now), Some(Found::File(then))) => now.identity == then.identity,
            (Ok(now), Some(Found::Directory(then))) => now.identity.inode == *then,
            (Ok(_), _) => false,
            (Err(error), Some(Found::Missing)) => is_missing(&error),
            // The walk gave up in a circle of links, and so does the kernel.
            (Err(_), Some(Found::Link(_))) => true,
            (Err(error), Some(Found::Refused(kind))) => error.kind() == *kind,
            (Err(_), _) => false,
        }
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

impl Route {
    fn is_missing_in(&self, trace: &Trace) -> bool {
        let end = self.hops.last().and_then(|&last| trace.hops.get(last));
        self.complete && end.is_some_and(|hop| hop.found == Found::Missing)
    }
}

/// Whether an error says "there is no such file": `ENOTDIR` is what a path through a file gets.
pub(super) fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// From this age on an equal identity is proof of equal content.
const AGED_SECONDS: i64 = 2;
