//! The kernel tells of changes to what is held open: `kqueue(2)`.
//!
//! What a descriptor tells (`EVFILT_VNODE`): of a directory, that an entry was made, removed or renamed, never
//! which one, and nothing of a file in it that is written in place; of a file, that it was written, removed
//! or renamed. So each directory of the plan *and* each final file is held open, one descriptor each, by its
//! inode: what takes the place of a file has another one, is found by the look that follows the directory's
//! event, and is opened in its turn. Not told at all: a write through a memory map, and on OpenBSD a file that
//! is only cut short.
//!
//! A [`Watcher`] of the crate `kqueue` changes through `&mut` and blocks through `&`, so no second thread can
//! add to one that a first waits on. There are two: `queue`, which has the vnodes, is behind a lock and only
//! ever asked for what is there; `gate`, which never changes, waits for `queue` to be readable (a kqueue is a
//! descriptor as any other) or for the pipe that ends the thread. `gate` is level-triggered: what is left in
//! `queue` wakes it again. A directory or file is therefore watched when [`Armer::arm`] returns, without a word
//! to the thread that waits.
//!
//! What is held open keeps its file system busy: unmounting it takes force, except on macOS (`O_EVTONLY`).

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use kqueue::{Event, EventData, EventFilter, FilterFlag, Ident, Vnode, Watcher};
use log::trace;
use parking_lot::Mutex;
use rustix::fs::{CWD, Mode};
use rustix::io::Errno;

use crate::source::{Disk as _, FileKind, OsDisk, Status};
use crate::sys;
use crate::watch::{Depth, Kind, Notice, Reach, Touch, Watched};

/// Reads what the kernel tells; belongs to the watcher thread.
pub(crate) struct Reader {
    gate: Watcher,
    queue: Arc<Mutex<Queue>>,
    /// The pipe is behind the gate as well.
    waits_for_wake: bool,
    /// Events in one read, for which the lock is held.
    room: usize,
    /// More may be there than was read: the gate does not know of events that the crate took apart.
    more: bool,
}

/// Arms and releases directories and files; any thread.
pub(crate) struct Armer {
    queue: Arc<Mutex<Queue>>,
    by_token: HashMap<Token, (OwnedFd, Watched)>,
    by_watched: HashMap<Watched, Token>,
}

/// The vnodes.
struct Queue {
    watcher: Watcher,
    /// Descriptors are used again, so an event of an old one is told by its number.
    tokens: HashMap<RawFd, (Token, Kind)>,
    next: Token,
}

/// A number of ours. It is never used twice.
pub(crate) type Token = u64;

/// A directory tells of its entries alone.
pub(crate) const REACH: Reach = Reach::FilesToo;

/// Opens the two queues.
///
/// # Errors
///
/// `EMFILE` or `ENFILE` where the limit of open files is reached, `ENOMEM`.
pub(crate) fn open() -> io::Result<(Reader, Armer)> {
    let watcher = Watcher::new()?;
    let mut gate = Watcher::new()?;
    gate.disable_clears();
    gate.add_fd(watcher.as_raw_fd(), EventFilter::EVFILT_READ, FilterFlag::empty())?;
    // An empty queue must be started as well, or it is never asked.
    let mut queue = Queue { watcher, tokens: HashMap::new(), next: 0 };
    queue.watcher.watch()?;
    let queue = Arc::new(Mutex::new(queue));
    let armer = Armer { queue: Arc::clone(&queue), by_token: HashMap::new(), by_watched: HashMap::new() };
    Ok((Reader { gate, queue, waits_for_wake: false, room: ROOM, more: false }, armer))
}

impl Reader {
    /// Reads that many events at a time.
    pub(crate) fn with_room(mut self, events: usize) -> Self {
        self.room = events.max(1);
        self
    }

    /// Waits until there is something to read, or `wake` is readable. Says which: true for `wake`.
    pub(crate) fn wait(&mut self, wake: &OwnedFd) -> io::Result<bool> {
        if !self.waits_for_wake {
            self.gate.add_fd(wake.as_raw_fd(), EventFilter::EVFILT_READ, FilterFlag::empty())?;
            self.gate.watch()?;
            self.waits_for_wake = true;
        }
        let patience = self.more.then_some(Duration::ZERO);
        loop {
            let Some(event) = self.gate.poll_forever(patience) else {
                return Ok(false);
            };
            match event {
                Event { ident: Ident::Fd(fd), data: EventData::ReadReady(_) } => {
                    return Ok(fd == wake.as_raw_fd());
                }
                // kevent(2): EINTR comes as an event.
                Event { data: EventData::Error(error), .. } if error.kind() != io::ErrorKind::Interrupted => {
                    return Err(error);
                }
                _ => {}
            }
        }
    }

    /// Reads what is there, up to the number that there is room for.
    pub(crate) fn read(&mut self) -> io::Result<Vec<Notice>> {
        let queue = self.queue.lock();
        let mut notices = Vec::new();
        for _ in 0..self.room {
            let Some(event) = queue.watcher.poll(None) else {
                self.more = false;
                return Ok(notices);
            };
            trace!(target: "rustls_reload::watch", "{event:?}");
            notices.extend(queue.notice(event)?);
        }
        self.more = true;
        Ok(notices)
    }
}

impl Armer {
    /// Watches a directory or a file, or watches it deeper than before.
    pub(crate) fn arm(&mut self, watched: &Watched, depth: Depth) -> io::Result<()> {
        let known = self.by_watched.get(watched).and_then(|token| self.by_token.get(token));
        if let Some((held, _)) = known {
            return self.queue.lock().watch(held, flags(watched.kind, depth));
        }
        let held = hold(watched)?;
        let token = self.queue.lock().add(&held, watched.kind, flags(watched.kind, depth))?;
        self.by_token.insert(token, (held, watched.clone()));
        self.by_watched.insert(watched.clone(), token);
        Ok(())
    }

    /// Nobody needs it any more.
    pub(crate) fn release(&mut self, watched: &Watched) {
        if let Some(&token) = self.by_watched.get(watched) {
            self.gone(token);
        }
    }

    /// What is behind a watch.
    pub(crate) fn watched(&self, token: Token) -> impl Iterator<Item = &Watched> {
        self.by_token.get(&token).into_iter().map(|(_, watched)| watched)
    }

    /// It was removed, or its file system is gone: returns what lost its watch.
    pub(crate) fn gone(&mut self, token: Token) -> BTreeSet<Watched> {
        let Some((held, watched)) = self.by_token.remove(&token) else {
            return BTreeSet::new();
        };
        self.by_watched.remove(&watched);
        self.queue.lock().remove(&held);
        BTreeSet::from([watched])
    }
}

impl Queue {
    fn add(&mut self, held: &OwnedFd, kind: Kind, flags: FilterFlag) -> io::Result<Token> {
        let added = self.watch(held, flags);
        if added.is_err() {
            // What the kernel refused would be handed to it again with everything that is added later.
            self.remove(held);
        }
        added?;
        let token = self.next;
        self.next += 1;
        self.tokens.insert(held.as_raw_fd(), (token, kind));
        Ok(token)
    }

    fn watch(&mut self, held: &OwnedFd, flags: FilterFlag) -> io::Result<()> {
        self.watcher.add_fd(held.as_raw_fd(), EventFilter::EVFILT_VNODE, flags)?;
        self.watcher.watch()
    }

    fn remove(&mut self, held: &OwnedFd) {
        self.tokens.remove(&held.as_raw_fd());
        // ENOENT: the kernel has let it go already.
        self.watcher.remove_fd(held.as_raw_fd(), EventFilter::EVFILT_VNODE).ok();
    }

    /// `None` for what was let go meanwhile.
    fn notice(&self, event: Event) -> io::Result<Option<Notice>> {
        let Ident::Fd(fd) = event.ident else {
            return Ok(None);
        };
        let Some(&(token, kind)) = self.tokens.get(&fd) else {
            return match event.data {
                EventData::Error(error) if !is_harmless(&error) => Err(error),
                _ => Ok(None),
            };
        };
        let touch = match (event.data, kind) {
            (EventData::Vnode(Vnode::Delete | Vnode::Revoke), _) => return Ok(Some(Notice::Gone { token })),
            (
                EventData::Vnode(Vnode::Write | Vnode::Extend | Vnode::Truncate | Vnode::Attrib),
                Kind::File,
            ) => Touch::Contents,
            _ => Touch::Entries,
        };
        Ok(Some(Notice::Changed { token, name: None, touch }))
    }
}

/// The limit behind a refusal of [`open`].
pub(crate) fn limit_of_queues(errno: Errno) -> Option<&'static str> {
    limit_of_watches(errno)
}

/// The limit behind a refusal of [`Armer::arm`].
pub(crate) fn limit_of_watches(errno: Errno) -> Option<&'static str> {
    match errno {
        Errno::MFILE => Some("of open files (`ulimit -n`)"),
        Errno::NFILE => Some("kern.maxfiles"),
        _ => None,
    }
}

/// Opens exactly the inode that was found; anything else in its place is "not found".
fn hold(watched: &Watched) -> io::Result<OwnedFd> {
    // Looked at before it is opened: even an open that does not wait wakes the writer of a FIFO.
    if !is_it(watched, &OsDisk.stat(&watched.path)?) {
        return Err(io::ErrorKind::NotFound.into());
    }
    let held = loop {
        match rustix::fs::openat(CWD, &watched.path, sys::WATCH, Mode::empty()) {
            Err(Errno::INTR) => {}
            Err(errno) if sys::is_not_a_directory(errno) => return Err(io::ErrorKind::NotFound.into()),
            opened => break opened?,
        }
    };
    if is_it(watched, &OsDisk.fstat(&held)?) { Ok(held) } else { Err(io::ErrorKind::NotFound.into()) }
}

fn is_it(watched: &Watched, status: &Status) -> bool {
    let kind = match watched.kind {
        Kind::Directory => FileKind::Directory,
        Kind::File => FileKind::File,
    };
    status.kind == kind && status.identity.inode == watched.inode
}

fn flags(kind: Kind, depth: Depth) -> FilterFlag {
    match (kind, depth) {
        (Kind::File, _) => ITSELF.union(WRITES),
        (Kind::Directory, Depth::Itself) => ITSELF,
        (Kind::Directory, Depth::Entries | Depth::Contents) => ITSELF.union(WRITES),
    }
}

/// An interrupted call, or an event that waited in the crate while its descriptor was let go.
fn is_harmless(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::NotFound | io::ErrorKind::InvalidData)
}

/// Removed, moved, opened or closed to us, unmounted.
const ITSELF: FilterFlag = FilterFlag::NOTE_DELETE
    .union(FilterFlag::NOTE_RENAME)
    .union(FilterFlag::NOTE_ATTRIB)
    .union(FilterFlag::NOTE_REVOKE);

/// Bytes of a file, entries of a directory.
const WRITES: FilterFlag = FilterFlag::NOTE_WRITE.union(FilterFlag::NOTE_EXTEND);

/// Events in one read.
const ROOM: usize = 256;

#[cfg(test)]
#[path = "kqueue_tests.rs"]
mod tests;
