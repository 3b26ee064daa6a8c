//! The few calls on the disk that the pinned read makes, behind one small trait.
//!
//! Tests run the same read on a simulated disk that lets a writer act between any two of these calls.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, FileType, Mode, Stat};
use rustix::io::Errno;

use crate::sys;

/// The calls. None of them follows a link, except [`Disk::stat`].
pub(crate) trait Disk {
    /// A directory that is held, whatever happens to its name.
    type Dir;
    /// A file that is held open for reading.
    type File;

    /// Opens `/`.
    fn root(&self) -> io::Result<Self::Dir>;

    /// Opens the directory `name` in `at`; `None` where the name is something else.
    fn open_dir(&self, at: &Self::Dir, name: &OsStr) -> io::Result<Option<Self::Dir>>;

    /// Which directory this is.
    fn dir_id(&self, dir: &Self::Dir) -> io::Result<Inode>;

    /// The text of the link `name` in `at`; `None` where the name is something else.
    fn read_link(&self, at: &Self::Dir, name: &OsStr) -> io::Result<Option<OsString>>;

    /// What `name` in `at` is now.
    fn lstat(&self, at: &Self::Dir, name: &OsStr) -> io::Result<Status>;

    /// The names in `dir`, in any order, without `.` and `..`. Of more than [`MAX_NAMES`] only so many that this shows.
    fn list(&self, dir: &Self::Dir) -> io::Result<Vec<OsString>>;

    /// Opens the file `name` in `at` without waiting.
    fn open_file(&self, at: &Self::Dir, name: &OsStr) -> io::Result<Self::File>;

    /// What the open file is now.
    fn fstat(&self, file: &Self::File) -> io::Result<Status>;

    /// Reads from `offset` on; 0 at the end.
    fn read_at(&self, file: &Self::File, offset: usize, buffer: &mut [u8]) -> io::Result<usize>;

    /// What `path` leads to now, links followed.
    fn stat(&self, path: &Path) -> io::Result<Status>;

    /// The text of the link at `path`, the links before the last name followed; `None` where it is no link.
    fn read_link_at(&self, path: &Path) -> io::Result<Option<OsString>>;

    /// Which directory `path` leads to now, links followed, and the names in it, as [`Disk::list`].
    fn list_at(&self, path: &Path) -> io::Result<(Inode, Vec<OsString>)>;

    /// What a test of the test takes out of the read.
    #[cfg(test)]
    fn sabotage(&self) -> super::Sabotage {
        super::Sabotage::default()
    }
}

/// The most names that a directory of CRL files may have.
pub(crate) const MAX_NAMES: usize = 1024;

/// A kind of file with its identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Status {
    pub(crate) kind: FileKind,
    /// Permission bits, for messages.
    pub(crate) mode: u32,
    pub(crate) identity: Identity,
}

/// What tells one state of one file from another, as far as the kernel's clock is fine enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) inode: Inode,
    pub(crate) size: u64,
    pub(crate) modified: Timestamp,
    pub(crate) changed: Timestamp,
}

/// Device and inode number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Inode {
    pub(crate) device: u64,
    pub(crate) number: u64,
}

/// Seconds since 1970 and nanoseconds, as the file system keeps them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Timestamp {
    pub(crate) seconds: i64,
    pub(crate) nanos: u32,
}

impl Timestamp {
    /// The clock of the system, which stamps files, whatever clock peers are verified by.
    pub(crate) fn now() -> Self {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        Self { seconds: now.tv_sec, nanos: u32::try_from(now.tv_nsec).unwrap_or(0) }
    }

    /// The time from `earlier` to this; `None` if it is in the future.
    pub(crate) fn duration_since(self, earlier: Self) -> Option<Duration> {
        let nanos = |stamp: Self| i128::from(stamp.seconds) * 1_000_000_000 + i128::from(stamp.nanos);
        let elapsed = u64::try_from(nanos(self) - nanos(earlier)).ok()?;
        Some(Duration::from_nanos(elapsed))
    }
}

/// What a path led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A character or block device.
    Device,
    /// Something else.
    Other,
}

/// The disk of this machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OsDisk;

impl Disk for OsDisk {
    type Dir = OwnedFd;
    type File = OwnedFd;

    fn root(&self) -> io::Result<OwnedFd> {
        Ok(rustix::fs::openat(CWD, c"/", sys::SEARCH_DIR, Mode::empty())?)
    }

    fn open_dir(&self, at: &OwnedFd, name: &OsStr) -> io::Result<Option<OwnedFd>> {
        match retry(|| rustix::fs::openat(at, name, sys::SEARCH_DIR, Mode::empty())) {
            Ok(dir) => Ok(Some(dir)),
            Err(errno) if sys::is_not_a_directory(errno) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    fn dir_id(&self, dir: &OwnedFd) -> io::Result<Inode> {
        Ok(status(&retry(|| rustix::fs::fstat(dir))?).identity.inode)
    }

    fn read_link(&self, at: &OwnedFd, name: &OsStr) -> io::Result<Option<OsString>> {
        link_text(retry(|| rustix::fs::readlinkat(at, name, Vec::new())))
    }

    fn lstat(&self, at: &OwnedFd, name: &OsStr) -> io::Result<Status> {
        let stat = retry(|| rustix::fs::statat(at, name, AtFlags::SYMLINK_NOFOLLOW))?;
        Ok(status(&stat))
    }

    fn list(&self, dir: &OwnedFd) -> io::Result<Vec<OsString>> {
        // What is held may be good for looking up names only.
        names(retry(|| rustix::fs::openat(dir, c".", sys::READ_DIR, Mode::empty()))?)
    }

    fn open_file(&self, at: &OwnedFd, name: &OsStr) -> io::Result<OwnedFd> {
        Ok(retry(|| rustix::fs::openat(at, name, sys::READ_FILE, Mode::empty()))?)
    }

    fn fstat(&self, file: &OwnedFd) -> io::Result<Status> {
        Ok(status(&retry(|| rustix::fs::fstat(file))?))
    }

    fn read_at(&self, file: &OwnedFd, offset: usize, buffer: &mut [u8]) -> io::Result<usize> {
        let offset = u64::try_from(offset).unwrap_or(u64::MAX);
        loop {
            match rustix::io::pread(file, &mut *buffer, offset) {
                Err(Errno::INTR) => {}
                read => return Ok(read?),
            }
        }
    }

    fn stat(&self, path: &Path) -> io::Result<Status> {
        Ok(status(&retry(|| rustix::fs::stat(path))?))
    }

    fn read_link_at(&self, path: &Path) -> io::Result<Option<OsString>> {
        link_text(retry(|| rustix::fs::readlinkat(CWD, path, Vec::new())))
    }

    fn list_at(&self, path: &Path) -> io::Result<(Inode, Vec<OsString>)> {
        let dir = retry(|| rustix::fs::openat(CWD, path, sys::READ_DIR, Mode::empty()))?;
        Ok((self.dir_id(&dir)?, names(dir)?))
    }
}

fn names(dir: OwnedFd) -> io::Result<Vec<OsString>> {
    let mut names = Vec::new();
    let mut entries = rustix::fs::Dir::new(dir)?;
    while names.len() <= MAX_NAMES {
        match entries.read() {
            None => break,
            Some(Err(Errno::INTR)) => {
                // It reads no further after an error.
                entries.rewind();
                names.clear();
            }
            Some(entry) => match entry?.file_name().to_bytes() {
                b"." | b".." => {}
                name => names.push(OsString::from_vec(name.to_vec())),
            },
        }
    }
    Ok(names)
}

/// A signal may interrupt any call that waits for a slow disk (`signal(7)`).
fn retry<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            done => return done,
        }
    }
}

fn link_text(read: rustix::io::Result<std::ffi::CString>) -> io::Result<Option<OsString>> {
    match read {
        Ok(text) => Ok(Some(OsString::from_vec(text.into_bytes()))),
        // readlink(2): EINVAL is "not a link".
        Err(Errno::INVAL) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

#[allow(
    clippy::useless_conversion,
    clippy::unnecessary_fallible_conversions,
    reason = "the field types differ by platform"
)]
fn status(stat: &Stat) -> Status {
    let timestamp = |seconds: i64, nanos: Option<u32>| Timestamp { seconds, nanos: nanos.unwrap_or(0) };
    Status {
        kind: FileKind::from(FileType::from_raw_mode(stat.st_mode)),
        mode: u32::from(stat.st_mode) & 0o7777,
        identity: Identity {
            inode: Inode {
                device: u64::try_from(stat.st_dev).unwrap_or(u64::MAX),
                number: stat.st_ino.into(),
            },
            size: u64::try_from(stat.st_size).unwrap_or(0),
            modified: timestamp(stat.st_mtime.into(), stat.st_mtime_nsec.try_into().ok()),
            changed: timestamp(stat.st_ctime.into(), stat.st_ctime_nsec.try_into().ok()),
        },
    }
}

impl From<FileType> for FileKind {
    fn from(kind: FileType) -> Self {
        match kind {
            FileType::RegularFile => Self::File,
            FileType::Directory => Self::Directory,
            FileType::Symlink => Self::Link,
            FileType::Fifo => Self::Fifo,
            FileType::Socket => Self::Socket,
            FileType::CharacterDevice | FileType::BlockDevice => Self::Device,
            FileType::Unknown => Self::Other,
        }
    }
}

impl std::fmt::Display for FileKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::File => "regular file",
            Self::Directory => "directory",
            Self::Link => "symbolic link",
            Self::Fifo => "FIFO",
            Self::Socket => "socket",
            Self::Device => "device",
            Self::Other => "special file",
        })
    }
}
