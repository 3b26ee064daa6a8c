//! One flag that ends every thread, and wakes those that wait in the kernel.

use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Set once. A pipe whose writing end is closed then, so that `poll(2)` returns in every thread at once.
pub(crate) struct Stop {
    set: AtomicBool,
    read: PipeReader,
    write: Mutex<Option<PipeWriter>>,
}

/// Why [`Stop::wait`] returned.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Woken {
    /// The descriptor has something, be it an error or its end.
    Ready,
    /// Everything ends.
    Stopped,
    /// The time is over.
    TimedOut,
}

impl Stop {
    pub(crate) fn new() -> io::Result<Self> {
        let (read, write) = io::pipe()?;
        Ok(Self { set: AtomicBool::new(false), read, write: Mutex::new(Some(write)) })
    }

    pub(crate) fn set(&self) {
        self.set.store(true, Ordering::Release);
        drop(self.write.lock().take());
    }

    pub(crate) fn is_set(&self) -> bool {
        self.set.load(Ordering::Acquire)
    }

    /// Waits for `fd` to be readable, for at most `limit`, or for the end. A signal may cut it short.
    pub(crate) fn wait(&self, fd: Option<BorrowedFd<'_>>, limit: Option<Duration>) -> io::Result<Woken> {
        let limit =
            limit.map(|limit| Timespec::try_from(limit).unwrap_or(Timespec { tv_sec: 3_600, tv_nsec: 0 }));
        let end = PollFd::new(&self.read, PollFlags::IN);
        let mut fds = vec![end];
        fds.extend(fd.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        match poll(&mut fds, limit.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let ready = |fd: Option<&PollFd<'_>>| fd.is_some_and(|fd| !fd.revents().is_empty());
        Ok(if self.is_set() {
            Woken::Stopped
        } else if ready(fds.get(1)) {
            Woken::Ready
        } else {
            Woken::TimedOut
        })
    }
}
