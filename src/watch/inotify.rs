//! The kernel tells of changes in directories: `inotify(7)`.
//!
//! One descriptor for everything. Directories are watched, never files: a file that is renamed over takes
//! its watch with it. Only writing events are asked for, so reading never triggers reading. An event that
//! says that events or a watch were lost is passed on as [`Notice::Lost`] or [`Notice::Gone`].

use std::collections::{BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use inotify::{Event, EventMask, Inotify, WatchDescriptor, WatchMask, Watches};
use log::trace;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use crate::watch::{Depth, Notice, Reach, Touch, Watched};

/// Reads what the kernel tells; belongs to the watcher thread.
pub(crate) struct Reader {
    inotify: Inotify,
    buffer: Vec<u8>,
}

/// Arms and releases directories; any thread.
pub(crate) struct Armer {
    watches: Watches,
    by_token: HashMap<Token, (WatchDescriptor, BTreeSet<Watched>)>,
    by_dir: HashMap<Watched, Token>,
}

/// A directory tells of the files in it.
pub(crate) const REACH: Reach = Reach::Directories;

/// The kernel's number of a watch. It is never used twice within one descriptor.
pub(crate) type Token = i32;

/// Opens the one descriptor.
///
/// # Errors
///
/// `EMFILE` where `fs.inotify.max_user_instances` or the limit of open files is reached, `ENOSYS` or
/// `EPERM` where the kernel or a sandbox has none.
pub(crate) fn open() -> io::Result<(Reader, Armer)> {
    let inotify = Inotify::init()?;
    let armer = Armer { watches: inotify.watches(), by_token: HashMap::new(), by_dir: HashMap::new() };
    Ok((Reader { inotify, buffer: vec![0; LARGEST_EVENT] }, armer))
}

impl Reader {
    /// Reads about that many events at a time.
    pub(crate) fn with_room(mut self, events: usize) -> Self {
        self.buffer.resize(LARGEST_EVENT.max(events.saturating_mul(USUAL_EVENT)), 0);
        self
    }

    /// Waits until there is something to read, or `wake` is readable. Says which: true for `wake`.
    pub(crate) fn wait(&self, wake: &OwnedFd) -> io::Result<bool> {
        let mut fds = [
            PollFd::new(&self.inotify, PollFlags::IN),
            PollFd::from_borrowed_fd(wake.as_fd(), PollFlags::IN),
        ];
        loop {
            match rustix::event::poll(&mut fds, None) {
                Ok(_) => return Ok(fds.last().is_some_and(|wake| !wake.revents().is_empty())),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Reads what is there, up to one buffer.
    pub(crate) fn read(&mut self) -> io::Result<Vec<Notice>> {
        match self.inotify.read_events(&mut self.buffer) {
            Ok(events) => {
                let noted = events.inspect(log_raw);
                Ok(noted.map(|event| notice(event.wd, event.mask, event.name.map(Into::into))).collect())
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                Ok(Vec::new())
            }
            Err(error) => Err(error),
        }
    }
}

impl Armer {
    /// Watches `dir`, or watches it deeper than before.
    pub(crate) fn arm(&mut self, dir: &Watched, depth: Depth) -> io::Result<()> {
        let mask = match depth {
            Depth::Itself => ITSELF,
            Depth::Entries => ITSELF.union(ENTRIES),
            Depth::Contents => ITSELF.union(ENTRIES).union(CONTENTS),
        };
        // The same inode under two paths has one watch: its mask may only grow.
        let watch = self.watches.add(&dir.path, mask | WatchMask::ONLYDIR | WatchMask::MASK_ADD)?;
        let token = watch.get_watch_descriptor_id();
        if self.by_dir.get(dir).is_some_and(|&old| old != token) {
            self.release(dir);
        }
        self.by_dir.insert(dir.clone(), token);
        self.by_token.entry(token).or_insert_with(|| (watch, BTreeSet::new())).1.insert(dir.clone());
        Ok(())
    }

    /// Nobody needs `dir` any more.
    pub(crate) fn release(&mut self, dir: &Watched) {
        let Some(token) = self.by_dir.remove(dir) else {
            return;
        };
        let Some((_, dirs)) = self.by_token.get_mut(&token) else {
            return;
        };
        dirs.remove(dir);
        if dirs.is_empty()
            && let Some((watch, _)) = self.by_token.remove(&token)
        {
            // EINVAL: the directory is gone, and its watch with it.
            self.watches.remove(watch).ok();
        }
    }

    /// The directories behind a watch.
    pub(crate) fn watched(&self, token: Token) -> impl Iterator<Item = &Watched> {
        self.by_token.get(&token).into_iter().flat_map(|(_, dirs)| dirs)
    }

    /// The kernel has let the watch go: returns the directories that lost it.
    pub(crate) fn gone(&mut self, token: Token) -> BTreeSet<Watched> {
        let dirs = self.by_token.remove(&token).map(|(_, dirs)| dirs).unwrap_or_default();
        for dir in &dirs {
            self.by_dir.remove(dir);
        }
        dirs
    }
}

/// What the kernel says, before anything is made of it.
fn log_raw(event: &Event<&OsStr>) {
    let Event { wd, mask, cookie, name } = event;
    let watch = wd.get_watch_descriptor_id();
    trace!(target: "rustls_reload::watch", "watch={watch} {mask:?} cookie={cookie} name={name:?}");
}

/// The limit behind a refusal of [`open`].
pub(crate) fn limit_of_queues(errno: Errno) -> Option<&'static str> {
    (errno == Errno::MFILE).then_some("fs.inotify.max_user_instances, or of open files (`ulimit -n`),")
}

/// The limit behind a refusal of [`Armer::arm`], by the name that `sysctl(8)` knows.
pub(crate) fn limit_of_watches(errno: Errno) -> Option<&'static str> {
    (errno == Errno::NOSPC).then_some("fs.inotify.max_user_watches")
}

fn notice(watch: WatchDescriptor, mask: EventMask, name: Option<OsString>) -> Notice {
    let token = watch.get_watch_descriptor_id();
    if mask.contains(EventMask::Q_OVERFLOW) {
        return Notice::Lost;
    }
    // IN_UNMOUNT is followed by IN_IGNORED; after IN_MOVE_SELF the watch is on a directory of another name.
    if mask.intersects(EventMask::IGNORED | EventMask::UNMOUNT) {
        return Notice::Gone { token };
    }
    let contents = EventMask::MODIFY | EventMask::CLOSE_WRITE | EventMask::ATTRIB;
    let of_a_file = mask.intersects(contents) && name.is_some();
    let touch = if of_a_file { Touch::Contents } else { Touch::Entries };
    Notice::Changed { token, name, touch }
}

/// The directory itself: moved, removed, opened or closed to us.
const ITSELF: WatchMask = WatchMask::MOVE_SELF.union(WatchMask::DELETE_SELF).union(WatchMask::ATTRIB);

/// Names that come, go or are replaced.
const ENTRIES: WatchMask = WatchMask::CREATE
    .union(WatchMask::DELETE)
    .union(WatchMask::MOVED_FROM)
    .union(WatchMask::MOVED_TO)
    .union(WatchMask::EXCL_UNLINK);

/// Files that are written in place.
const CONTENTS: WatchMask = WatchMask::MODIFY.union(WatchMask::CLOSE_WRITE);

/// A header and the longest name, `inotify(7)`: with less room a read fails.
const LARGEST_EVENT: usize = 16 + 255 + 1;

/// A header and a name of usual length.
const USUAL_EVENT: usize = 64;
