//! Why the files could not be read: facts only, never a byte of a file.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use super::disk::FileKind;

/// Why the files of an identity could not be read as one generation.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReadError {
    /// A name on the way is missing.
    #[non_exhaustive]
    NotFound {
        /// The configured path.
        path: PathBuf,
        /// The deepest directory that is there, links resolved.
        dir: PathBuf,
        /// The name that is missing in it.
        missing: OsString,
    },
    /// The process may not read the file, or not pass a directory on the way.
    #[non_exhaustive]
    Denied {
        /// The configured path.
        path: PathBuf,
        /// Where it was refused, links resolved.
        at: PathBuf,
        /// The effective user id of this process.
        uid: u32,
        /// The permission bits there, if they can be seen.
        mode: Option<u32>,
    },
    /// The path leads to something that is not a regular file. It was not opened.
    #[non_exhaustive]
    NotAFile {
        /// The configured path.
        path: PathBuf,
        /// What it leads to.
        kind: FileKind,
    },
    /// The file is larger than what is ever read.
    #[non_exhaustive]
    TooLarge {
        /// The configured path.
        path: PathBuf,
        /// The size found, in bytes.
        size: u64,
        /// The size allowed, in bytes.
        cap: u64,
    },
    /// The files of this role are larger together than what is ever read.
    #[non_exhaustive]
    TooLargeTogether {
        /// The first path that is too much.
        path: PathBuf,
        /// The sizes up to this one, in bytes.
        size: u64,
        /// The sum allowed, in bytes.
        cap: u64,
    },
    /// The directory holds no CRL file.
    #[non_exhaustive]
    NoFiles {
        /// The configured path.
        path: PathBuf,
    },
    /// The directory holds more names than are ever looked at.
    #[non_exhaustive]
    TooManyNames {
        /// The configured path.
        path: PathBuf,
        /// How many are allowed.
        cap: usize,
    },
    /// More links than the kernel would follow, most likely a loop.
    #[non_exhaustive]
    LinkLoop {
        /// The configured path.
        path: PathBuf,
    },
    /// The files changed each time while they were read.
    #[non_exhaustive]
    Unsettled {
        /// The path that changed last.
        path: PathBuf,
        /// How often the read was started.
        attempts: u32,
    },
    /// Any other error of the operating system.
    #[non_exhaustive]
    Io {
        /// The configured path.
        path: PathBuf,
        /// What kind of error.
        kind: io::ErrorKind,
        /// The number, where there is one.
        errno: Option<i32>,
    },
}

impl ReadError {
    /// The configured path that it is about, or that of a file in a configured directory.
    pub fn path(&self) -> &Path {
        match self {
            Self::NotFound { path, .. }
            | Self::Denied { path, .. }
            | Self::NotAFile { path, .. }
            | Self::TooLarge { path, .. }
            | Self::TooLargeTogether { path, .. }
            | Self::NoFiles { path }
            | Self::TooManyNames { path, .. }
            | Self::LinkLoop { path }
            | Self::Unsettled { path, .. }
            | Self::Io { path, .. } => path,
        }
    }

    /// A short stable word for metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NotFound { .. } => "not_found",
            Self::Denied { .. } => "denied",
            Self::NotAFile { .. } => "not_a_file",
            Self::TooLarge { .. } | Self::TooLargeTogether { .. } => "too_large",
            Self::NoFiles { .. } => "no_files",
            Self::TooManyNames { .. } => "too_many_names",
            Self::LinkLoop { .. } => "link_loop",
            Self::Unsettled { .. } => "unsettled",
            Self::Io { .. } => "io",
        }
    }

    /// Files that were written a moment ago.
    pub(crate) fn in_motion(path: &Path) -> Self {
        Self::Unsettled { path: path.to_owned(), attempts: 1 }
    }

    #[cfg(test)]
    pub(crate) fn torn_in_a_test(role: crate::paths::Role) -> Self {
        Self::Io { path: format!("{role:?}").into(), kind: io::ErrorKind::InvalidData, errno: None }
    }

    pub(super) fn not_found(path: &Path, dir: &Path, missing: OsString) -> Self {
        Self::NotFound { path: path.to_owned(), dir: dir.to_owned(), missing }
    }

    pub(super) fn not_a_file(path: &Path, kind: FileKind) -> Self {
        Self::NotAFile { path: path.to_owned(), kind }
    }

    pub(super) fn from_io(path: &Path, error: &io::Error) -> Self {
        Self::refused(path, path, error.kind(), error.raw_os_error())
    }

    pub(super) fn refused(path: &Path, at: &Path, kind: io::ErrorKind, errno: Option<i32>) -> Self {
        let path = path.to_owned();
        match kind {
            io::ErrorKind::PermissionDenied => {
                Self::Denied { path, at: at.to_owned(), uid: rustix::process::geteuid().as_raw(), mode: None }
            }
            kind => Self::Io { path, kind, errno },
        }
    }

    /// Adds the permission bits that were seen to a refusal.
    pub(super) fn with_mode(self, mode: u32) -> Self {
        match self {
            Self::Denied { path, at, uid, .. } => Self::Denied { path, at, uid, mode: Some(mode) },
            other => other,
        }
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.path().display())?;
        match self {
            Self::NotFound { dir, missing, .. } => {
                let missing = Path::new(missing).display();
                write!(f, "not found: there is no `{missing}` in {}", dir.display())
            }
            Self::Denied { path, at, uid, mode } => {
                write!(f, "permission denied for uid {uid}")?;
                if at != path {
                    write!(f, " at {}", at.display())?;
                }
                mode.map_or(Ok(()), |mode| write!(f, " (mode {mode:04o}): is the file for another user?"))
            }
            Self::NotAFile { kind, .. } => write!(f, "this is a {kind}, expected a regular file"),
            Self::TooLarge { size, cap, .. } => {
                write!(f, "{size} bytes, more than the {cap} that are read: is this the right file?")
            }
            Self::TooLargeTogether { size, cap, .. } => {
                write!(f, "{size} bytes with those before it, more than the {cap} that are read in all")
            }
            Self::NoFiles { .. } => f.write_str(
                "this directory holds no file with a name that does not start with a dot, expected at least one",
            ),
            Self::TooManyNames { cap, .. } => {
                write!(f, "this directory holds more than {cap} names: is this the right one?")
            }
            Self::LinkLoop { .. } => f.write_str("too many symbolic links: do they lead in a circle?"),
            Self::Unsettled { attempts, .. } => {
                write!(f, "kept changing while it was read, {attempts} times: is somebody rewriting it?")
            }
            Self::Io { kind, errno: None, .. } => write!(f, "cannot be read: {kind}"),
            Self::Io { errno: Some(errno), .. } => {
                write!(f, "cannot be read: {}", io::Error::from_raw_os_error(*errno))
            }
        }
    }
}

impl std::error::Error for ReadError {}
