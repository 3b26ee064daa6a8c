//! What differs by platform: the only file with `cfg(target_os)`.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::OFlags;
use rustix::io::Errno;

/// Where the kernel tells of changes in directories.
#[cfg(any(target_os = "linux", target_os = "android"))]
#[path = "watch/inotify.rs"]
pub(crate) mod kernel;

/// A directory opened for looking up names only. Needs search permission on it, not read permission.
#[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
pub(crate) const SEARCH_DIR: OFlags =
    OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A directory opened for looking up names. Without `O_PATH` this needs read permission on it.
#[cfg(not(any(target_os = "linux", target_os = "android", target_os = "freebsd")))]
pub(crate) const SEARCH_DIR: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A file opened for reading: never follows a link, never waits for the writer of a FIFO, never takes a
/// terminal.
pub(crate) const READ_FILE: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

/// Whether `O_NOFOLLOW | O_DIRECTORY` was refused because the name is a link, or at least not a directory.
///
/// Linux says `ENOTDIR`, POSIX `ELOOP`, FreeBSD `EMLINK`, NetBSD `EFTYPE`: `open(2)` of each.
pub(crate) fn is_not_a_directory(errno: Errno) -> bool {
    #[cfg(target_os = "netbsd")]
    if errno == Errno::FTYPE {
        return true;
    }
    errno == Errno::NOTDIR || errno == Errno::LOOP || errno == Errno::MLINK
}

/// A pipe whose read end wakes a thread that waits in `poll(2)` or `kevent(2)`.
pub(crate) fn wake_pipe() -> io::Result<(OwnedFd, File)> {
    #[cfg(any(target_os = "macos", target_os = "ios"))]
    let (read, write) = {
        let (read, write) = rustix::pipe::pipe()?;
        for end in [&read, &write] {
            rustix::io::fcntl_setfd(end, rustix::io::FdFlags::CLOEXEC)?;
            rustix::fs::fcntl_setfl(end, OFlags::NONBLOCK)?;
        }
        (read, write)
    };
    #[cfg(not(any(target_os = "macos", target_os = "ios")))]
    let (read, write) = {
        use rustix::pipe::PipeFlags;
        rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?
    };
    Ok((read, File::from(write)))
}
