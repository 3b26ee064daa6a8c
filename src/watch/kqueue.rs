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
mod tests {
    use std::fs::{self, File};
    use std::io::Write as _;
    use std::path::Path;

    use tempfile::TempDir;

    use super::*;

    /// A directory with a file `c.crt` in it, and the queues.
    struct Fixture {
        dir: TempDir,
        reader: Reader,
        armer: Armer,
    }

    #[test]
    fn directory_tells_of_its_entries_and_not_of_their_bytes() {
        let mut fixture = Fixture::new();
        let dir = fixture.dir();
        fixture.armer.arm(&dir, Depth::Contents).unwrap();
        fs::write(fixture.cert(), "in place").unwrap();
        assert_eq!(fixture.told(), []);
        for _ in 0..3 {
            fixture.rename_over();
            assert_eq!(fixture.told(), [(dir.clone(), Touch::Entries)]);
        }
    }

    #[test]
    fn directory_on_the_way_tells_only_of_itself() {
        let mut fixture = Fixture::new();
        let dir = fixture.dir();
        fixture.armer.arm(&dir, Depth::Itself).unwrap();
        fixture.rename_over();
        assert_eq!(fixture.told(), []);
        // The same descriptor, from now on deeper.
        fixture.armer.arm(&dir, Depth::Entries).unwrap();
        fixture.rename_over();
        assert_eq!(fixture.told(), [(dir.clone(), Touch::Entries)]);
        let away = fixture.dir.path().with_extension("away");
        fs::rename(fixture.dir.path(), &away).unwrap();
        assert_eq!(fixture.told(), [(dir.clone(), Touch::Entries)]);
        fs::remove_dir_all(away).unwrap();
        assert_eq!(fixture.told().last(), Some(&(dir, Touch::Entries)), "gone");
    }

    #[test]
    fn file_tells_of_each_write_in_place() {
        let mut fixture = Fixture::new();
        let cert = fixture.file();
        fixture.armer.arm(&cert, Depth::Contents).unwrap();
        for text in ["longer than before", "short", "short"] {
            fs::write(fixture.cert(), text).unwrap();
            let told = fixture.told();
            assert!(
                !told.is_empty() && told.iter().all(|told| *told == (cert.clone(), Touch::Contents)),
                "{told:?}"
            );
        }
    }

    #[test]
    fn file_that_is_renamed_over_is_let_go_and_its_successor_is_watched_in_its_turn() {
        let mut fixture = Fixture::new();
        for round in 0..3 {
            let cert = fixture.file();
            fixture.armer.arm(&cert, Depth::Contents).unwrap();
            fixture.rename_over();
            assert_eq!(fixture.told(), [(cert, Touch::Entries)], "round {round}");
            assert!(fixture.armer.by_token.is_empty(), "round {round}: nothing stays open");
        }
    }

    #[test]
    fn what_took_the_place_of_what_was_found_is_not_watched() {
        let mut fixture = Fixture::new();
        let cert = fixture.file();
        let refused = |fixture: &mut Fixture| {
            let error = fixture.armer.arm(&cert, Depth::Contents).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::NotFound);
            assert!(fixture.armer.by_watched.is_empty());
        };
        let path = fixture.cert();
        // Held, so that no other file gets its inode.
        let _old = File::open(&path).unwrap();
        fixture.rename_over();
        refused(&mut fixture);
        fs::remove_file(&path).unwrap();
        refused(&mut fixture);
        fs::create_dir(&path).unwrap();
        refused(&mut fixture);
        fs::remove_dir(&path).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", &path).unwrap();
        refused(&mut fixture);
    }

    #[test]
    fn what_is_released_is_silent_and_its_number_is_not_used_again() {
        let mut fixture = Fixture::new();
        let cert = fixture.file();
        fixture.armer.arm(&cert, Depth::Contents).unwrap();
        let token = fixture.armer.by_watched.get(&cert).copied().unwrap();
        fs::write(fixture.cert(), "unread").unwrap();
        fixture.armer.release(&cert);
        fixture.armer.arm(&cert, Depth::Contents).unwrap();
        assert_eq!(fixture.told(), []);
        assert_ne!(fixture.armer.by_watched.get(&cert), Some(&token));
    }

    #[test]
    fn what_cannot_be_watched_spoils_nothing_that_comes_later() {
        let mut fixture = Fixture::new();
        let cert = fixture.file();
        let (pipe, _other_end) = rustix::pipe::pipe().unwrap();
        assert!(fixture.armer.queue.lock().add(&pipe, Kind::File, WRITES).is_err());
        fixture.armer.arm(&cert, Depth::Contents).unwrap();
    }

    #[test]
    fn waiting_ends_by_an_event_as_well_as_by_the_pipe() {
        let mut fixture = Fixture::new();
        let (wake, mut end) = sys::wake_pipe().unwrap();
        let (cert, path) = (fixture.file(), fixture.cert());
        let (tell, told) = crossbeam_channel::unbounded();
        let mut reader = fixture.reader;
        let waiting = std::thread::Builder::new().spawn(move || {
            while !reader.wait(&wake).unwrap() {
                reader.read().unwrap().into_iter().for_each(|notice| tell.send(notice).unwrap());
            }
        });
        for text in ["armed while the other thread waits", "and again", "and again"] {
            fixture.armer.arm(&cert, Depth::Contents).unwrap();
            fs::write(&path, text).unwrap();
            let notice = told.recv_timeout(Duration::from_secs(5)).unwrap();
            assert!(matches!(notice, Notice::Changed { touch: Touch::Contents, .. }), "{notice:?}");
        }
        end.write_all(b"!").unwrap();
        waiting.unwrap().join().unwrap();
    }

    #[test]
    fn more_events_than_one_read_takes_are_all_told() {
        let mut fixture = Fixture::new();
        let files: Vec<_> = (0..300).map(|number| fixture.dir.path().join(format!("{number}"))).collect();
        for path in &files {
            fs::write(path, "").unwrap();
            fixture.armer.arm(&watched(path, Kind::File), Depth::Contents).unwrap();
        }
        for path in &files {
            fs::write(path, "in place").unwrap();
        }
        let mut told: Vec<_> = fixture.told().into_iter().map(|(watched, _)| watched.path).collect();
        told.sort();
        told.dedup();
        assert_eq!(told.len(), files.len());
    }

    impl Fixture {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            fs::write(dir.path().join("c.crt"), "first").unwrap();
            let (reader, armer) = open().unwrap();
            Self { dir, reader, armer }
        }

        fn cert(&self) -> std::path::PathBuf {
            self.dir.path().join("c.crt")
        }

        fn dir(&self) -> Watched {
            watched(self.dir.path(), Kind::Directory)
        }

        fn file(&self) -> Watched {
            watched(&self.cert(), Kind::File)
        }

        fn rename_over(&self) {
            let new = self.dir.path().join("new");
            fs::write(&new, "new").unwrap();
            fs::rename(new, self.cert()).unwrap();
        }

        /// What was told since the last time, as the watcher thread takes it; the same thing once in a row.
        fn told(&mut self) -> Vec<(Watched, Touch)> {
            let mut told = Vec::new();
            loop {
                for notice in self.reader.read().unwrap() {
                    match notice {
                        Notice::Changed { token, touch, .. } => {
                            told.extend(self.armer.watched(token).map(|watched| (watched.clone(), touch)));
                        }
                        Notice::Gone { token } => {
                            told.extend(
                                self.armer.gone(token).into_iter().map(|watched| (watched, Touch::Entries)),
                            );
                        }
                        Notice::Lost => unreachable!("a kqueue loses nothing"),
                    }
                }
                if !self.reader.more {
                    told.dedup();
                    return told;
                }
            }
        }
    }

    fn watched(path: &Path, kind: Kind) -> Watched {
        let inode = OsDisk.stat(path).unwrap().identity.inode;
        Watched { kind, path: path.into(), inode }
    }
}
