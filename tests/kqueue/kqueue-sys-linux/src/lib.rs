//! A stand-in for the crate `kqueue-sys` 1.1.2: `kqueue()` and `kevent()` on Linux, made of inotify and epoll,
//! so that the crate `kqueue`, and our backend on top of it, run where there is no BSD. For tests only.
//!
//! As on BSD: a vnode is watched, not a name; what happens to a vnode between two calls is one event
//! (`EV_CLEAR`); a directory tells that its entries changed, not which, and nothing of the files in it; a
//! descriptor that is closed takes its watches with it, and a queue that is closed frees everything (for this
//! the symbol `close` is defined here); a queue can be watched by another; `EVFILT_READ` is level-triggered
//! without `EV_CLEAR` and edge-triggered with it.
//!
//! Not as on BSD: only `EVFILT_READ` and `EVFILT_VNODE` are there, and of the flags `EV_ADD`, `EV_DELETE` and
//! `EV_CLEAR`; `NOTE_REVOKE` never comes; a queue costs up to two descriptors more, an inotify and an eventfd.
//!
//! The only unsafe code of the project: calls of libc, each with memory of ours and descriptors that the
//! caller vouches for.
#![allow(non_camel_case_types, missing_docs, reason = "the names of another crate")]

mod queue;

use std::collections::HashMap;
use std::ffi::c_int;
use std::ptr;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use libc::{c_uint, c_ushort, c_void, timespec, uintptr_t};

pub use constants::*;
use queue::{Queue, Woken};

pub mod constants {
    use super::{c_uint, c_ushort};

    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Ord, PartialOrd)]
    #[repr(i16)]
    pub enum EventFilter {
        EVFILT_READ = -1,
        EVFILT_WRITE = -2,
        EVFILT_AIO = -3,
        EVFILT_VNODE = -4,
        EVFILT_PROC = -5,
        EVFILT_SIGNAL = -6,
        EVFILT_TIMER = -7,
        EVFILT_SYSCOUNT = 7,
    }

    bitflags::bitflags! {
        #[repr(transparent)]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Ord, PartialOrd)]
        pub struct EventFlag: c_ushort {
            const EV_ADD = 0x1;
            const EV_DELETE = 0x2;
            const EV_ENABLE = 0x4;
            const EV_DISABLE = 0x8;
            const EV_ONESHOT = 0x10;
            const EV_CLEAR = 0x20;
            const EV_ERROR = 0x4000;
            const EV_EOF = 0x8000;
        }

        #[repr(transparent)]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Ord, PartialOrd)]
        pub struct FilterFlag: c_uint {
            const NOTE_DELETE = 0x1;
            const NOTE_WRITE = 0x2;
            const NOTE_EXTEND = 0x4;
            const NOTE_ATTRIB = 0x8;
            const NOTE_LINK = 0x10;
            const NOTE_RENAME = 0x20;
            const NOTE_REVOKE = 0x40;
            const NOTE_EXIT = 0x8000_0000;
            const NOTE_FORK = 0x4000_0000;
            const NOTE_EXEC = 0x2000_0000;
            const NOTE_TRACK = 0x1;
            const NOTE_TRACKERR = 0x2;
            const NOTE_CHILD = 0x4;
        }
    }
}

pub type EventListSize = c_int;

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct kevent {
    pub ident: uintptr_t,
    pub filter: EventFilter,
    pub flags: EventFlag,
    pub fflags: FilterFlag,
    pub data: i64,
    pub udata: *mut c_void,
}

impl kevent {
    pub fn new(ident: uintptr_t, filter: EventFilter, flags: EventFlag, fflags: FilterFlag) -> Self {
        Self { ident, filter, flags, fflags, data: 0, udata: ptr::null_mut() }
    }
}

/// # Safety
///
/// As `kqueue(2)`.
pub unsafe fn kqueue() -> c_int {
    match Queue::new() {
        Ok(queue) => {
            let fd = queue.fd();
            lock(&QUEUES).insert(fd, Arc::new(Mutex::new(queue)));
            fd
        }
        Err(errno) => fail(errno),
    }
}

/// # Safety
///
/// As `kevent(2)`.
pub unsafe fn kevent(
    kq: c_int,
    changes: *const kevent,
    change_count: EventListSize,
    events: *mut kevent,
    event_count: EventListSize,
    timeout: *const timespec,
) -> c_int {
    let Some(queue) = lock(&QUEUES).get(&kq).cloned() else { return fail(libc::EBADF) };
    for index in 0..usize::try_from(change_count).unwrap_or(0) {
        // SAFETY: the caller vouches for `change_count` of them.
        let change = unsafe { *changes.add(index) };
        if let Err(errno) = lock(&queue).change(&change) {
            return fail(errno);
        }
    }
    if event_count == 0 {
        return 0;
    }
    // SAFETY: null, or a timespec of the caller.
    let deadline = unsafe { timeout.as_ref() }.map(|wait| {
        let nanos = u32::try_from(wait.tv_nsec).unwrap_or(0);
        Instant::now() + Duration::new(u64::try_from(wait.tv_sec).unwrap_or(0), nanos)
    });
    loop {
        let found = match queue::wait(kq, deadline) {
            Err(errno) => return fail(errno),
            Ok(Woken::TimedOut) => return 0,
            Ok(woken) => lock(&queue).take(woken),
        };
        if let Some(event) = found {
            // SAFETY: the caller vouches for room for one at least.
            unsafe { *events = event };
            return 1;
        }
    }
}

/// Closing a descriptor ends its watches; closing a queue frees what it is made of. Replaces that of libc.
///
/// # Safety
///
/// As `close(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close(fd: c_int) -> c_int {
    let (closed, others) = {
        let mut queues = lock(&QUEUES);
        (queues.remove(&fd), queues.values().cloned().collect::<Vec<_>>())
    };
    // Freeing an inotify takes the kernel a while: nobody else waits for it.
    drop(closed);
    for queue in others {
        lock(&queue).forget(fd);
    }
    queue::close(fd)
}

static QUEUES: LazyLock<Mutex<HashMap<c_int, Arc<Mutex<Queue>>>>> = LazyLock::new(Mutex::default);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn fail(errno: c_int) -> c_int {
    // SAFETY: the errno of this thread.
    unsafe { *libc::__errno_location() = errno };
    -1
}
