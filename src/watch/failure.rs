//! Why the kernel does not tell of every change, so that polling has to do.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::sys::kernel;

/// Why the kernel does not tell of every change. Files are polled meanwhile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchFailure {
    cause: Cause,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Cause {
    /// No queue of events, for nobody.
    Queue { errno: Option<i32>, kind: io::ErrorKind },
    /// One directory or file cannot be watched.
    Place { path: PathBuf, errno: Option<i32>, kind: io::ErrorKind },
    /// The file is a mount of its own.
    MountedFile { path: PathBuf, gone: bool },
    /// The file system has other writers than this machine.
    SilentFileSystem { path: PathBuf, name: &'static str },
}

impl WatchFailure {
    pub(super) fn of_queue(error: &io::Error) -> Self {
        Self { cause: Cause::Queue { errno: error.raw_os_error(), kind: error.kind() } }
    }

    pub(super) fn of_place(path: &Path, error: &io::Error) -> Self {
        let (errno, kind) = (error.raw_os_error(), error.kind());
        Self { cause: Cause::Place { path: path.to_owned(), errno, kind } }
    }

    /// Whatever is renamed over the file outside of the mount is never seen at `path`.
    pub(super) fn mounted_file(path: &Path, gone: bool) -> Self {
        Self { cause: Cause::MountedFile { path: path.to_owned(), gone } }
    }

    pub(super) fn silent_file_system(path: &Path, name: &'static str) -> Self {
        Self { cause: Cause::SilentFileSystem { path: path.to_owned(), name } }
    }

    /// Whether equal identities prove nothing: this machine may be shown old ones.
    pub(crate) fn caches_identities(&self) -> bool {
        matches!(self.cause, Cause::SilentFileSystem { .. })
    }
}

impl fmt::Display for WatchFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cause {
            Cause::Queue { errno, kind } => {
                f.write_str("events of the kernel cannot be had: ")?;
                reason(f, *errno, *kind, kernel::limit_of_queues)
            }
            Cause::Place { path, errno, kind } => {
                write!(f, "{}: cannot be watched: ", path.display())?;
                reason(f, *errno, *kind, kernel::limit_of_watches)
            }
            Cause::MountedFile { path, gone } => {
                write!(
                    f,
                    "{}: is a mount point of its own (subPath, or a bind mount of one file)",
                    path.display()
                )?;
                f.write_str(if *gone { ", and its source was replaced: " } else { ": " })?;
                f.write_str(
                    "a file that is renamed over its source is never seen here; mount the directory instead",
                )
            }
            Cause::SilentFileSystem { path, name } => {
                write!(f, "{}: the file system {name} does not tell of changes by others", path.display())
            }
        }
    }
}

impl std::error::Error for WatchFailure {}

/// The limit that was reached, if `errno` says that it is one.
fn reason(
    f: &mut fmt::Formatter<'_>,
    errno: Option<i32>,
    kind: io::ErrorKind,
    limit: fn(Errno) -> Option<&'static str>,
) -> fmt::Result {
    match errno {
        Some(errno) => match limit(Errno::from_raw_os_error(errno)) {
            Some(limit) => write!(f, "the limit {limit} is reached"),
            None => write!(f, "{}", io::Error::from_raw_os_error(errno)),
        },
        None => write!(f, "{kind}"),
    }
}
