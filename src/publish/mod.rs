//! The writer's side: puts a set of files into a directory the way the kubelet does, crash-safe.
//!
//! Knows nothing of TLS and never looks into the bytes. For whatever obtains certificates (an ACME or
//! EST client, an agent, a test) and wants readers to see each set whole:
//!
//! ```text
//! tls.crt -> ..data/tls.crt                      the names readers use never change
//! tls.key -> ..data/tls.key
//! ..data  -> ..2026_11_30_11_08_53.104512345     one rename(2) moves every file at once
//! ..2026_11_30_11_08_53.104512345/tls.crt
//! ..2026_11_30_11_08_53.104512345/tls.key
//! ```
//!
//! # Against crashes
//!
//! Every file, the dated directory and the links are on disk (`fsync(2)`) before the rename, and the rename
//! is on disk before the old set is removed. So after a crash, of the process or of the machine, a reader
//! that follows the links finds the old set or the new one. What a crashed publish left behind is removed by
//! the next one, also by one that finds its bytes in place already.
//!
//! The kubelet makes the links of *new* names after the rename; here they are made before it. Until the
//! rename they lead nowhere, which a reader sees as "not there", and a first set appears as a whole too.
//!
//! # One writer at a time
//!
//! A publish holds `flock(2)` on the directory and refuses, rather than waits, while another one runs. On a
//! file system without that lock (some NFS servers) a warning is logged, and that there is one writer is the
//! caller's care.

mod disk;
#[cfg(test)]
mod tests;

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime};

use disk::Writer;

/// A directory whose files are only ever replaced as a set.
///
/// ```
/// use rustls_reload::publish::SecretDir;
///
/// # let tmp = tempfile::tempdir()?;
/// # let mount = tmp.path().join("tls");
/// let secret = SecretDir::open(&mount)?;
/// let files: &[(&str, &[u8])] = &[("tls.crt", b"the chain"), ("tls.key", b"the key")];
/// assert!(secret.publish(files)?.swapped_at().is_some());
/// assert!(secret.publish(files)?.swapped_at().is_none(), "the same bytes move nothing");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// The handle stays on the directory it opened, also when that is renamed.
#[derive(Debug)]
pub struct SecretDir {
    path: PathBuf,
    dir: File,
    mode: u32,
}

impl SecretDir {
    /// Opens `path`, and creates it (one level, mode 0755 less the umask) where it is missing.
    ///
    /// What is in it already is not judged here; [`publish`](Self::publish) does that.
    ///
    /// # Errors
    ///
    /// [`PublishError::Io`] if the directory cannot be made or opened, or is something else.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, PublishError> {
        let path = path.into();
        match fs::DirBuilder::new().mode(0o755).create(&path) {
            Ok(()) => disk::sync_parent(&path)?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(source) => return Err(PublishError::io(&path, "create the directory", source)),
        }
        let dir =
            disk::open_dir(&path).map_err(|source| PublishError::io(&path, "open the directory", source))?;
        Ok(Self { path, dir, mode: 0o600 })
    }

    /// Sets the mode of every file, whatever the umask. Default: `0o600`, since one of them is the key.
    ///
    /// Owner and group are those of the process. Only the nine permission bits count.
    #[must_use]
    pub fn with_mode(self, mode: u32) -> Self {
        Self { mode: mode & 0o777, ..self }
    }

    /// The directory, as it was given to [`open`](Self::open).
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Replaces the whole set of files by `files`, names and contents; names that are not listed go away.
    ///
    /// Blocks on the disk, for several `fsync(2)`. Where names, bytes and mode are those in place already,
    /// nothing moves ([`Published::Unchanged`]). After an error it is safe to call this again with the same
    /// files: it completes what was left undone.
    ///
    /// # Errors
    ///
    /// - [`PublishError::Name`]: a name that cannot stand in such a directory, or stands twice.
    /// - [`PublishError::Occupied`]: something that is not one of our links has the place of one. Nothing was
    ///   changed.
    /// - [`PublishError::Busy`]: another publish runs. Nothing was changed.
    /// - [`PublishError::Io`]: the disk refused; the old set is in place.
    /// - [`PublishError::Unsettled`]: the new set is in place, but not yet known to be on disk, or parts of the
    ///   old one are still there.
    pub fn publish(&self, files: &[(&str, &[u8])]) -> Result<Published, PublishError> {
        #[expect(clippy::disallowed_methods, reason = "the date is a part of a name and decides nothing")]
        let now = SystemTime::now();
        self.publish_at(files, now, &mut |_| Ok(()))
    }

    /// `after` is called after each change of the disk, so that tests can look at it, or crash, there.
    fn publish_at(
        &self,
        files: &[(&str, &[u8])],
        now: SystemTime,
        after: &mut dyn FnMut(&'static str) -> Result<(), PublishError>,
    ) -> Result<Published, PublishError> {
        check_names(&self.path, files)?;
        let lock = disk::lock(&self.dir, &self.path)?;
        let mut writer = Writer::new(&lock, &self.path, self.mode, after);

        let live = writer.live()?;
        writer.refuse_strangers(files)?;
        writer.remove_sets_except(live.as_deref(), None)?;
        if let Some(live) = live.as_deref()
            && writer.holds(live, files)
        {
            writer.link(files)?;
            // Whoever swapped it in may have ended before the rename was on disk.
            writer.sync_dir()?;
            return match writer.unlink_except(files) {
                Ok(()) => Ok(Published::Unchanged),
                Err(error) => Err(error.after_the_swap()),
            };
        }

        let fresh = writer.write_set(files, now)?;
        writer.link(files)?;
        writer.point(&fresh)?;
        let at = writer.swap()?;
        writer
            .sync_dir()
            .and_then(|()| writer.unlink_except(files))
            .and_then(|()| writer.remove_sets_except(Some(&fresh), live.as_deref()))
            .map_err(PublishError::after_the_swap)?;
        Ok(Published::Swapped { at })
    }
}

/// What [`SecretDir::publish`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Published {
    /// The new set replaced the old one.
    #[non_exhaustive]
    Swapped {
        /// Taken right after the `rename(2)` from which on readers see the new set.
        at: Instant,
    },
    /// The same names, bytes and mode were in place: nothing moved.
    Unchanged,
}

impl Published {
    /// The instant right after the rename, if there was one.
    pub fn swapped_at(&self) -> Option<Instant> {
        match self {
            Self::Swapped { at } => Some(*at),
            Self::Unchanged => None,
        }
    }
}

/// Why a set of files was not published, or not completely. Holds names and paths, never contents.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PublishError {
    /// A file name that cannot be used.
    #[error("{}: cannot publish a file named {name:?}: {reason}", path.display())]
    #[non_exhaustive]
    Name {
        /// The directory.
        path: PathBuf,
        /// The name as it was given.
        name: String,
        /// The rule it breaks.
        reason: &'static str,
    },
    /// Something that we did not make has the place of one of our links.
    #[error("{}: found {found}, expected nothing or a link to {expected}: is the directory managed by hand?", path.display())]
    #[non_exhaustive]
    Occupied {
        /// The place.
        path: PathBuf,
        /// What is there.
        found: String,
        /// Where our link would lead.
        expected: String,
    },
    /// Another publish into the same directory is running.
    #[error("{}: another writer is publishing into this directory", path.display())]
    #[non_exhaustive]
    Busy {
        /// The directory.
        path: PathBuf,
    },
    /// The disk refused before the swap: readers see the old set.
    #[error("{}: cannot {doing}", path.display())]
    #[non_exhaustive]
    Io {
        /// What was worked on.
        path: PathBuf,
        /// What was tried.
        doing: &'static str,
        /// The answer of the system.
        source: io::Error,
    },
    /// The disk refused after the swap: readers see the new set, and the next publish tidies up.
    #[error("{}: the new files are in place, but cannot {doing}", path.display())]
    #[non_exhaustive]
    Unsettled {
        /// What was worked on.
        path: PathBuf,
        /// What was tried.
        doing: &'static str,
        /// The answer of the system.
        source: io::Error,
    },
}

impl PublishError {
    fn io(path: &Path, doing: &'static str, source: impl Into<io::Error>) -> Self {
        Self::Io { path: path.to_owned(), doing, source: source.into() }
    }

    fn after_the_swap(self) -> Self {
        match self {
            Self::Io { path, doing, source } => Self::Unsettled { path, doing, source },
            other => other,
        }
    }
}

/// The rules of the kubelet's `validatePath`, and no subdirectories.
fn check_names(path: &Path, files: &[(&str, &[u8])]) -> Result<(), PublishError> {
    for (nth, (name, _)) in files.iter().enumerate() {
        let reason = if name.is_empty() || *name == "." {
            "it names no file"
        } else if name.contains('/') {
            "subdirectories are not supported"
        } else if name.starts_with("..") {
            "names that start with two dots belong to the writer"
        } else if name.contains('\0') {
            "it holds a NUL byte"
        } else if files.iter().take(nth).any(|(earlier, _)| earlier == name) {
            "it is listed twice"
        } else {
            continue;
        };
        return Err(PublishError::Name { path: path.to_owned(), name: (*name).to_owned(), reason });
    }
    Ok(())
}
