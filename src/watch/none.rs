//! No events at all: every call of [`open`] is refused, and polling takes over.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;

use crate::watch::{Depth, Notice, Reach, Watched};

/// There is none.
pub(crate) enum Reader {}

/// There is none.
pub(crate) enum Armer {}

/// Nothing is watched, so nothing has a number.
pub(crate) type Token = u64;

/// Of no matter.
pub(crate) const REACH: Reach = Reach::Directories;

/// Refuses.
///
/// # Errors
///
/// Always `ENOSYS`.
pub(crate) fn open() -> io::Result<(Reader, Armer)> {
    Err(Errno::NOSYS.into())
}

impl Reader {
    pub(crate) fn with_room(self, _: usize) -> Self {
        self
    }

    pub(crate) fn wait(&self, _: &OwnedFd) -> io::Result<bool> {
        match *self {}
    }

    pub(crate) fn read(&mut self) -> io::Result<Vec<Notice>> {
        match *self {}
    }
}

impl Armer {
    pub(crate) fn arm(&mut self, _: &Watched, _: Depth) -> io::Result<()> {
        match *self {}
    }

    pub(crate) fn release(&mut self, _: &Watched) {
        match *self {}
    }

    pub(crate) fn watched(&self, _: Token) -> impl Iterator<Item = &Watched> {
        [].into_iter()
    }

    pub(crate) fn gone(&mut self, _: Token) -> BTreeSet<Watched> {
        match *self {}
    }
}

pub(crate) fn limit_of_queues(_: Errno) -> Option<&'static str> {
    None
}

pub(crate) fn limit_of_watches(_: Errno) -> Option<&'static str> {
    None
}
