//! What differs by platform: the only file with `cfg(target_os)`.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::net::SendFlags;

/// Where the kernel tells of changes in directories.
#[cfg(all(any(target_os = "linux", target_os = "android"), not(kqueue_shim)))]
#[path = "watch/inotify.rs"]
pub(crate) mod kernel;

/// Where the kernel tells of changes to what is held open. With `kqueue_shim`, Linux stands in for it.
#[cfg(any(
    target_os = "freebsd",
    target_os = "openbsd",
    target_os = "netbsd",
    target_os = "dragonfly",
    target_os = "macos",
    kqueue_shim
))]
#[path = "watch/kqueue.rs"]
pub(crate) mod kernel;

/// Where the kernel tells of nothing that we know how to ask for.
#[cfg(not(any(
    target_os = "linux",
    target_os = "android",
    target_os = "freebsd",
    target_os = "openbsd",
    target_os = "netbsd",
    target_os = "dragonfly",
    target_os = "macos",
    kqueue_shim
)))]
#[path = "watch/none.rs"]
pub(crate) mod kernel;

/// A directory opened for looking up names only. Needs search permission on it, not read permission.
#[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
pub(crate) const SEARCH_DIR: OFlags =
    OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A directory opened for looking up names. Without `O_PATH` this needs read permission on it.
#[cfg(not(any(target_os = "linux", target_os = "android", target_os = "freebsd")))]
pub(crate) const SEARCH_DIR: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A directory opened for listing the names in it. A link is followed: it may be named by a path.
pub(crate) const READ_DIR: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// A file opened for reading: never follows a link, never waits for the writer of a FIFO, never takes a
/// terminal.
pub(crate) const READ_FILE: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

/// A file or directory opened only to be watched: it keeps its file system busy.
#[cfg(any(
    target_os = "freebsd",
    target_os = "openbsd",
    target_os = "netbsd",
    target_os = "dragonfly",
    kqueue_shim
))]
pub(crate) const WATCH: OFlags = READ_FILE;

/// A file or directory opened only to be watched. `O_EVTONLY` (`open(2)`): its file system can be unmounted.
#[cfg(target_os = "macos")]
pub(crate) const WATCH: OFlags = READ_FILE.union(OFlags::from_bits_retain(0x8000));

/// How to send on a socket: without SIGPIPE when the peer is gone.
#[cfg(not(any(target_os = "macos", target_os = "ios")))]
pub(crate) const SEND: SendFlags = SendFlags::NOSIGNAL;

/// How to send on a socket. The standard library sets `SO_NOSIGPIPE` on each (`setsockopt(2)`).
#[cfg(any(target_os = "macos", target_os = "ios"))]
pub(crate) const SEND: SendFlags = SendFlags::empty();

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

/// Whether the file at `path` is the root of a mount, as `subPath` makes it; if so, whether the file behind it
/// has no name any more (it was replaced at its source).
pub(crate) fn is_mounted_file(path: &Path) -> Option<bool> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        use rustix::fs::{AtFlags, CWD, FileType, StatxAttributes, StatxFlags, statx};
        // Kernels before 5.8 do not say, and a sandbox may forbid it: then nothing is known.
        let status = statx(CWD, path, AtFlags::empty(), StatxFlags::BASIC_STATS).ok()?;
        let is_file = FileType::from_raw_mode(status.stx_mode.into()).is_file();
        let mounted = is_file && status.stx_attributes.contains(StatxAttributes::MOUNT_ROOT);
        mounted.then_some(status.stx_nlink == 0)
    }
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    {
        let _unknown = path;
        None
    }
}

/// The name of the file system that `path` lies on, if changes made by others have no events there.
pub(crate) fn silent_file_system(path: &Path) -> Option<&'static str> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        let kind = u64::try_from(rustix::fs::statfs(path).ok()?.f_type).ok()? & 0xffff_ffff;
        SILENT.iter().find(|(magic, _)| *magic == kind).map(|(_, name)| *name)
    }
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    {
        let _unknown = path;
        None
    }
}

/// `statfs(2)` and `linux/magic.h`.
#[cfg(any(target_os = "linux", target_os = "android"))]
const SILENT: &[(u64, &str)] = &[
    (0x6969, "NFS"),
    (0x517b, "SMB"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB2"),
    (0x6573_5546, "FUSE"),
    (0x0102_1997, "9P"),
    (0x5346_414f, "AFS"),
    (0x6b41_4653, "AFS"),
    (0x00c3_6400, "Ceph"),
    (0x7375_7245, "Coda"),
];
