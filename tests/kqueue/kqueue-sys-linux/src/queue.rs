//! One queue: an epoll, with an inotify and an eventfd in it from the first vnode on.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::{CString, c_int};
use std::mem;
use std::ptr;
use std::time::Instant;

use crate::constants::{EventFilter, EventFlag, FilterFlag};
use crate::kevent;

pub(crate) struct Queue {
    epoll: c_int,
    vnodes: Option<Vnodes>,
    reads: BTreeSet<c_int>,
}

struct Vnodes {
    inotify: c_int,
    /// Readable while an event waits to be taken: a queue that watches this one sees it.
    ready: c_int,
    notes: BTreeMap<c_int, Note>,
    /// The descriptors behind a watch: their own inode, or a directory that one of them lies in.
    watches: HashMap<c_int, BTreeSet<c_int>>,
}

/// A vnode that is watched by a descriptor.
struct Note {
    watch: c_int,
    /// Of a directory, that of the one above: inotify tells there alone that one which is held was removed.
    above: Option<c_int>,
    want: FilterFlag,
    clear: bool,
    waiting: FilterFlag,
    links: u64,
    size: i64,
}

/// Why a wait is over.
pub(crate) enum Woken {
    TimedOut,
    Vnode,
    Read(c_int),
}

impl Queue {
    pub(crate) fn new() -> Result<Self, c_int> {
        // SAFETY: no memory is handed over.
        let epoll = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        Ok(Self { epoll, vnodes: None, reads: BTreeSet::new() })
    }

    pub(crate) fn fd(&self) -> c_int {
        self.epoll
    }

    pub(crate) fn change(&mut self, change: &kevent) -> Result<(), c_int> {
        let fd = c_int::try_from(change.ident).map_err(|_| libc::EBADF)?;
        if !(EventFlag::EV_ADD | EventFlag::EV_DELETE | EventFlag::EV_CLEAR).contains(change.flags) {
            return Err(libc::EINVAL);
        }
        let delete = change.flags.contains(EventFlag::EV_DELETE);
        let clear = change.flags.contains(EventFlag::EV_CLEAR);
        match change.filter {
            EventFilter::EVFILT_READ if delete => self.remove_read(fd),
            EventFilter::EVFILT_READ => self.add_read(fd, clear),
            EventFilter::EVFILT_VNODE if delete => {
                self.vnodes.as_mut().is_some_and(|vnodes| vnodes.remove(fd)).then_some(()).ok_or(libc::ENOENT)
            }
            EventFilter::EVFILT_VNODE => {
                if self.vnodes.is_none() {
                    self.vnodes = Some(Vnodes::new(self.epoll)?);
                }
                self.vnodes.as_mut().map_or(Ok(()), |vnodes| vnodes.add(fd, change.fflags, clear))
            }
            _ => Err(libc::EINVAL),
        }
    }

    /// The next event; `None` where what woke us is no event to anybody.
    pub(crate) fn take(&mut self, woken: Woken) -> Option<kevent> {
        match woken {
            Woken::TimedOut => None,
            Woken::Read(fd) => {
                self.reads.contains(&fd).then_some(())?;
                let mut event = event(fd, EventFilter::EVFILT_READ, FilterFlag::empty());
                let mut count: c_int = 0;
                // SAFETY: writes one int. A queue has no count: it is readable, which is one at least.
                let counted = unsafe { libc::ioctl(fd, libc::FIONREAD, &raw mut count) } == 0;
                event.data = if counted { count.into() } else { 1 };
                Some(event)
            }
            Woken::Vnode => {
                let vnodes = self.vnodes.as_mut()?;
                vnodes.gather();
                vnodes.take()
            }
        }
    }

    /// The descriptor is about to be closed.
    pub(crate) fn forget(&mut self, fd: c_int) {
        if self.reads.contains(&fd) {
            self.remove_read(fd).ok();
        }
        if let Some(vnodes) = &mut self.vnodes {
            vnodes.remove(fd);
        }
    }

    fn add_read(&mut self, fd: c_int, clear: bool) -> Result<(), c_int> {
        let mode = if clear { libc::EPOLLIN | libc::EPOLLET } else { libc::EPOLLIN };
        // Added again: what has been told is not told again.
        if self.reads.contains(&fd) {
            return Ok(());
        }
        control(self.epoll, libc::EPOLL_CTL_ADD, fd, mode, READ | u64::from(fd.cast_unsigned()))?;
        self.reads.insert(fd);
        Ok(())
    }

    fn remove_read(&mut self, fd: c_int) -> Result<(), c_int> {
        self.reads.remove(&fd).then_some(()).ok_or(libc::ENOENT)?;
        control(self.epoll, libc::EPOLL_CTL_DEL, fd, 0, 0)
    }
}

impl Vnodes {
    fn new(epoll: c_int) -> Result<Self, c_int> {
        // SAFETY: no memory is handed over.
        let inotify = check(unsafe { libc::inotify_init1(libc::IN_CLOEXEC | libc::IN_NONBLOCK) })?;
        // SAFETY: as above.
        let ready = check(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) });
        let ready = match ready {
            Ok(ready) => ready,
            Err(errno) => {
                close(inotify);
                return Err(errno);
            }
        };
        let vnodes = Self { inotify, ready, notes: BTreeMap::new(), watches: HashMap::new() };
        control(epoll, libc::EPOLL_CTL_ADD, inotify, libc::EPOLLIN, VNODE)?;
        control(epoll, libc::EPOLL_CTL_ADD, ready, libc::EPOLLIN, VNODE)?;
        Ok(vnodes)
    }

    fn add(&mut self, fd: c_int, want: FilterFlag, clear: bool) -> Result<(), c_int> {
        if let Some(note) = self.notes.get_mut(&fd) {
            (note.want, note.clear) = (want, clear);
            return Ok(());
        }
        let (kind, links, size) = stat(fd)?;
        if kind == libc::S_IFIFO || kind == libc::S_IFSOCK {
            return Err(libc::EINVAL);
        }
        let is_dir = kind == libc::S_IFDIR;
        // Leads to the very inode, also where its name is gone.
        let itself = format!("/proc/self/fd/{fd}");
        let mask = if is_dir { DIRECTORY } else { FILE };
        let watch = self.watch(&itself, mask, fd)?;
        let above = if is_dir { self.watch(&format!("{itself}/.."), ABOVE, fd).ok() } else { None };
        self.notes.insert(fd, Note { watch, above, want, clear, waiting: FilterFlag::empty(), links, size });
        Ok(())
    }

    fn watch(&mut self, path: &str, mask: u32, fd: c_int) -> Result<c_int, c_int> {
        let path = CString::new(path).map_err(|_| libc::EINVAL)?;
        // SAFETY: a string with its end. One inode has one watch, whose mask only grows.
        let watch =
            check(unsafe { libc::inotify_add_watch(self.inotify, path.as_ptr(), mask | libc::IN_MASK_ADD) })?;
        self.watches.entry(watch).or_default().insert(fd);
        Ok(watch)
    }

    fn remove(&mut self, fd: c_int) -> bool {
        let Some(note) = self.notes.remove(&fd) else { return false };
        for watch in [Some(note.watch), note.above].into_iter().flatten() {
            self.unwatch(watch, fd);
        }
        self.announce();
        true
    }

    fn unwatch(&mut self, watch: c_int, fd: c_int) {
        if let Some(fds) = self.watches.get_mut(&watch) {
            fds.remove(&fd);
            if fds.is_empty() {
                self.watches.remove(&watch);
                // SAFETY: no memory is handed over. EINVAL: gone with its inode.
                unsafe { libc::inotify_rm_watch(self.inotify, watch) };
            }
        }
    }

    /// Takes all that inotify has, and adds it to what waits at each vnode.
    fn gather(&mut self) {
        let mut buffer = [0u8; 16 * 1024];
        loop {
            // SAFETY: the buffer and its size.
            let read = unsafe { libc::read(self.inotify, buffer.as_mut_ptr().cast(), buffer.len()) };
            let Ok(read @ 1..) = usize::try_from(read) else { break };
            let mut rest = &buffer[..read];
            while let Some((head, tail)) = rest.split_at_checked(16) {
                let word =
                    |at: usize| u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
                let (watch, mask, name) = (word(0).cast_signed(), word(4), word(12));
                self.happened(watch, mask, name > 0);
                rest = tail.get(usize::try_from(name).unwrap_or(usize::MAX)..).unwrap_or_default();
            }
        }
        self.announce();
    }

    fn happened(&mut self, watch: c_int, mask: u32, named: bool) {
        if mask & libc::IN_Q_OVERFLOW != 0 {
            for note in self.notes.values_mut() {
                note.waiting |= FilterFlag::NOTE_WRITE & note.want;
            }
            return;
        }
        if mask & libc::IN_IGNORED != 0 {
            self.watches.remove(&watch);
            return;
        }
        let mut moved = Vec::new();
        for fd in self.watches.get(&watch).into_iter().flatten() {
            let Some(note) = self.notes.get_mut(fd) else { continue };
            if note.watch == watch {
                note.happened(*fd, mask, named);
                if mask & libc::IN_MOVE_SELF != 0 {
                    moved.push(*fd);
                }
            }
            if note.above == Some(watch) && mask & ABOVE != 0 && note.links > 0 {
                note.look_at_links(*fd);
            }
        }
        for fd in moved {
            self.moved(fd);
        }
    }

    /// A directory lies in another one now.
    fn moved(&mut self, fd: c_int) {
        let Some(old) = self.notes.get(&fd).and_then(|note| note.above) else { return };
        let new = self.watch(&format!("/proc/self/fd/{fd}/.."), ABOVE, fd).ok();
        if new != Some(old) && self.notes.get(&fd).is_some_and(|note| note.watch != old) {
            self.unwatch(old, fd);
        }
        if let Some(note) = self.notes.get_mut(&fd) {
            note.above = new;
        }
    }

    fn take(&mut self) -> Option<kevent> {
        let (&fd, note) = self.notes.iter_mut().find(|(_, note)| !note.waiting.is_empty())?;
        let mut event = event(fd, EventFilter::EVFILT_VNODE, note.waiting);
        if note.clear {
            event.flags = EventFlag::EV_CLEAR;
            note.waiting = FilterFlag::empty();
        }
        self.announce();
        Some(event)
    }

    fn announce(&self) {
        let waits = self.notes.values().any(|note| !note.waiting.is_empty());
        let mut count = 1u64;
        // SAFETY: eight bytes each. EAGAIN: it is as it shall be already.
        unsafe {
            if waits {
                libc::write(self.ready, (&raw const count).cast(), 8);
            } else {
                libc::read(self.ready, (&raw mut count).cast(), 8);
            }
        }
    }
}

impl Note {
    fn happened(&mut self, fd: c_int, mask: u32, named: bool) {
        let mut notes = FilterFlag::empty();
        if named {
            // A child's attributes are no event of a directory.
            if mask & (libc::IN_CREATE | libc::IN_DELETE | libc::IN_MOVED_FROM | libc::IN_MOVED_TO) != 0 {
                notes |= FilterFlag::NOTE_WRITE;
                if mask & libc::IN_ISDIR != 0 {
                    notes |= FilterFlag::NOTE_LINK;
                }
            }
        } else {
            if mask & libc::IN_MODIFY != 0 {
                notes |= FilterFlag::NOTE_WRITE;
                let size = stat(fd).map_or(self.size, |(_, _, size)| size);
                if size > self.size {
                    notes |= FilterFlag::NOTE_EXTEND;
                }
                self.size = size;
            }
            if mask & libc::IN_ATTRIB != 0 && !self.look_at_links(fd) {
                notes |= FilterFlag::NOTE_ATTRIB;
            }
            if mask & libc::IN_MOVE_SELF != 0 {
                notes |= FilterFlag::NOTE_RENAME;
            }
        }
        self.waiting |= notes & self.want;
    }

    /// The last link of a file gone is its removal; another one gone is told as such.
    fn look_at_links(&mut self, fd: c_int) -> bool {
        let links = stat(fd).map_or(0, |(_, links, _)| links);
        if links == self.links {
            return false;
        }
        self.links = links;
        let note = if links == 0 { FilterFlag::NOTE_DELETE } else { FilterFlag::NOTE_LINK };
        self.waiting |= note & self.want;
        true
    }
}

impl Drop for Vnodes {
    fn drop(&mut self) {
        close(self.inotify);
        close(self.ready);
    }
}

/// Waits for something in the epoll, without any lock.
pub(crate) fn wait(epoll: c_int, deadline: Option<Instant>) -> Result<Woken, c_int> {
    let millis = deadline.map_or(-1, |deadline| {
        let left = deadline.saturating_duration_since(Instant::now());
        c_int::try_from(left.as_micros().div_ceil(1000)).unwrap_or(c_int::MAX)
    });
    let mut event = libc::epoll_event { events: 0, u64: 0 };
    // SAFETY: room for one event.
    let count = check(unsafe { libc::epoll_wait(epoll, &raw mut event, 1, millis) })?;
    let tag = event.u64;
    Ok(match tag & !u64::from(u32::MAX) {
        _ if count == 0 => Woken::TimedOut,
        READ => Woken::Read(u32::try_from(tag & u64::from(u32::MAX)).unwrap_or(0).cast_signed()),
        _ => Woken::Vnode,
    })
}

/// That of the kernel, past the one that is defined in this crate.
pub(crate) fn close(fd: c_int) -> c_int {
    // SAFETY: whoever closes it vouches for it.
    let result = unsafe { libc::syscall(libc::SYS_close, fd) };
    c_int::try_from(result).unwrap_or(-1)
}

fn event(fd: c_int, filter: EventFilter, notes: FilterFlag) -> kevent {
    kevent::new(usize::try_from(fd).unwrap_or(usize::MAX), filter, EventFlag::empty(), notes)
}

fn control(epoll: c_int, operation: c_int, fd: c_int, mode: c_int, tag: u64) -> Result<(), c_int> {
    let mut event = libc::epoll_event { events: mode.cast_unsigned(), u64: tag };
    // SAFETY: one event.
    check(unsafe { libc::epoll_ctl(epoll, operation, fd, &raw mut event) }).map(drop)
}

/// Its kind, its links and its size.
fn stat(fd: c_int) -> Result<(libc::mode_t, u64, i64), c_int> {
    // SAFETY: all zeros are a stat, which is then filled.
    let mut stat: libc::stat = unsafe { mem::zeroed() };
    // SAFETY: room for one.
    check(unsafe { libc::fstat(fd, ptr::from_mut(&mut stat)) })?;
    Ok((stat.st_mode & libc::S_IFMT, stat.st_nlink.into(), stat.st_size))
}

fn check(result: c_int) -> Result<c_int, c_int> {
    // SAFETY: the errno of this thread.
    if result < 0 { Err(unsafe { *libc::__errno_location() }) } else { Ok(result) }
}

const READ: u64 = 1 << 32;
const VNODE: u64 = 2 << 32;

const SELF: u32 = libc::IN_ATTRIB | libc::IN_MOVE_SELF;
const FILE: u32 = SELF | libc::IN_MODIFY;
const ABOVE: u32 = libc::IN_DELETE | libc::IN_MOVED_TO;
const DIRECTORY: u32 = SELF | libc::IN_CREATE | libc::IN_DELETE | libc::IN_MOVED_FROM | libc::IN_MOVED_TO;
