//! The single steps of a publish, each relative to the open directory.
//!
//! Knows no order; that is `publish_at`'s. Whatever changes the disk goes through [`Writer::act`].

use std::ffi::{CStr, CString};
use std::fs::{File, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime};

use rustix::fs::{AtFlags, Dir, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use zeroize::Zeroizing;

use super::PublishError;

/// The link that is swapped.
const DATA: &CStr = c"..data";
/// Its successor, for the moment before the rename.
const DATA_TMP: &CStr = c"..data_tmp";
/// Tries for a name that is not taken; each try is another nanosecond.
const NAME_TRIES: u32 = 64;

/// One publish under way.
pub(super) struct Writer<'a> {
    dir: &'a File,
    path: &'a Path,
    mode: u32,
    after: &'a mut dyn FnMut(&'static str) -> Result<(), PublishError>,
}

impl<'a> Writer<'a> {
    pub(super) fn new(
        dir: &'a File,
        path: &'a Path,
        mode: u32,
        after: &'a mut dyn FnMut(&'static str) -> Result<(), PublishError>,
    ) -> Self {
        Self { dir, path, mode, after }
    }

    /// The set that readers see, as `..data` names it.
    pub(super) fn live(&self) -> Result<Option<CString>, PublishError> {
        match rustix::fs::readlinkat(self.dir, DATA, Vec::new()) {
            Ok(target) => Ok(Some(target)),
            Err(Errno::NOENT) => Ok(None),
            Err(Errno::INVAL) => Err(self.occupied(lossless(DATA), "no link", "a dated directory")),
            Err(errno) => Err(PublishError::io(&self.at(DATA), "read the link", errno)),
        }
    }

    /// Stops before the first change where a name of ours is taken: a file that somebody else put there is
    /// not ours to delete.
    pub(super) fn refuse_strangers(&self, files: &[(&str, &[u8])]) -> Result<(), PublishError> {
        for (name, _) in files {
            let path = self.path.join(name);
            let expected = link_target(name.as_bytes());
            match rustix::fs::readlinkat(self.dir, *name, Vec::new()) {
                Ok(target) if target.as_bytes() == expected => {}
                Ok(target) => {
                    let found = format!("a link to {}", target.to_string_lossy());
                    return Err(self.occupied(*name, &found, &String::from_utf8_lossy(&expected)));
                }
                Err(Errno::NOENT) => {}
                Err(Errno::INVAL) => {
                    return Err(self.occupied(*name, "no link", &String::from_utf8_lossy(&expected)));
                }
                Err(errno) => return Err(PublishError::io(&path, "read the link", errno)),
            }
        }
        Ok(())
    }

    /// Whether the set `live` has exactly these names, bytes and modes. A set that cannot be read does not.
    pub(super) fn holds(&self, live: &CStr, files: &[(&str, &[u8])]) -> bool {
        let Ok(set) = open_dir_at(self.dir, live) else {
            return false;
        };
        entries(&set).is_ok_and(|names| names.len() == files.len())
            && files.iter().all(|(name, bytes)| same_file(&set, name, bytes, self.mode).unwrap_or(false))
    }

    /// Writes the files into a fresh dated directory and has all of it on disk.
    pub(super) fn write_set(
        &mut self,
        files: &[(&str, &[u8])],
        now: SystemTime,
    ) -> Result<CString, PublishError> {
        let name = self.make_dated(now)?;
        let path = self.at(&name);
        let set = open_dir_at(self.dir, &name)
            .map_err(|source| PublishError::io(&path, "open the new directory", source))?;
        // As the kubelet has it, whatever the umask: the mode of the files is what protects the key.
        self.act(&path, "set the mode of the new directory", || {
            set.set_permissions(Permissions::from_mode(0o755))
        })?;
        for (name, bytes) in files {
            let path = path.join(name);
            let mode = Permissions::from_mode(self.mode);
            let mut file = self.act(&path, "create the file", || create(&set, name))?;
            self.act(&path, "write the file", || file.write_all(bytes))?;
            self.act(&path, "set the mode of the file", || file.set_permissions(mode))?;
            self.act(&path, "sync the file", || file.sync_all())?;
        }
        self.act(&path, "sync the new directory", || set.sync_all())?;
        Ok(name)
    }

    /// Makes the links that readers use, where they are missing.
    pub(super) fn link(&mut self, files: &[(&str, &[u8])]) -> Result<(), PublishError> {
        let dir = self.dir;
        for (name, _) in files {
            let target = link_target(name.as_bytes());
            self.act(&self.path.join(name), "make the link", || {
                match rustix::fs::symlinkat(target.as_slice(), dir, *name) {
                    Err(Errno::EXIST) => Ok(()),
                    made => made.map_err(io::Error::from),
                }
            })?;
        }
        Ok(())
    }

    /// Points `..data_tmp` at the new set, and has every name so far on disk: were the rename on disk before
    /// the directory it leads to, a power cut between the two would leave readers with nothing.
    pub(super) fn point(&mut self, fresh: &CStr) -> Result<(), PublishError> {
        let dir = self.dir;
        self.act(&self.at(DATA_TMP), "make the link", || Ok(rustix::fs::symlinkat(fresh, dir, DATA_TMP)?))?;
        self.sync_dir()
    }

    /// The one step that readers see.
    pub(super) fn swap(&mut self) -> Result<Instant, PublishError> {
        let dir = self.dir;
        self.act(&self.at(DATA), "swap the link", || {
            rustix::fs::renameat(dir, DATA_TMP, dir, DATA)?;
            Ok(Instant::now())
        })
    }

    pub(super) fn sync_dir(&mut self) -> Result<(), PublishError> {
        let dir = self.dir;
        self.act(self.path, "sync the directory", || dir.sync_all())
    }

    /// Removes our links to files that are not listed any more. They lead nowhere already.
    pub(super) fn unlink_except(&mut self, files: &[(&str, &[u8])]) -> Result<(), PublishError> {
        let dir = self.dir;
        for name in self.entries()? {
            let listed = files.iter().any(|(listed, _)| listed.as_bytes() == name.to_bytes());
            let ours = rustix::fs::readlinkat(dir, name.as_c_str(), Vec::new())
                .is_ok_and(|target| target.to_bytes() == link_target(name.to_bytes()));
            if ours && !listed {
                self.act(&self.at(&name), "remove the link", || {
                    Ok(rustix::fs::unlinkat(dir, name.as_c_str(), AtFlags::empty())?)
                })?;
            }
        }
        Ok(())
    }

    /// Removes `..data_tmp`, every dated directory but `keep`, and `old`, whatever its name.
    ///
    /// The directory is synced first: the rename that made them leftovers must outlive them.
    pub(super) fn remove_sets_except(
        &mut self,
        keep: Option<&CStr>,
        old: Option<&CStr>,
    ) -> Result<(), PublishError> {
        let dir = self.dir;
        let leftover = |name: &CString| {
            let name = name.as_c_str();
            Some(name) != keep && (name == DATA_TMP || Some(name) == old || is_dated(name.to_bytes()))
        };
        let mut leftovers = self.entries()?;
        leftovers.retain(leftover);
        if !leftovers.is_empty() {
            self.sync_dir()?;
        }
        for name in leftovers {
            let path = self.at(&name);
            let Ok(set) = open_dir_at(dir, &name) else {
                self.act(&path, "remove the link", || {
                    Ok(rustix::fs::unlinkat(dir, name.as_c_str(), AtFlags::empty())?)
                })?;
                continue;
            };
            let files =
                entries(&set).map_err(|source| PublishError::io(&path, "list the old directory", source))?;
            for file in files {
                self.act(&path.join(lossless(&file)), "remove the old file", || {
                    Ok(rustix::fs::unlinkat(&set, file.as_c_str(), AtFlags::empty())?)
                })?;
            }
            self.act(&path, "remove the old directory", || {
                Ok(rustix::fs::unlinkat(dir, name.as_c_str(), AtFlags::REMOVEDIR)?)
            })?;
        }
        Ok(())
    }

    /// The kubelet's name for `now`, or for one of the nanoseconds after it.
    fn make_dated(&mut self, now: SystemTime) -> Result<CString, PublishError> {
        let dir = self.dir;
        self.act(self.path, "make a new dated directory", || {
            let mut taken = Errno::EXIST;
            for nth in 0..NAME_TRIES {
                let name = CString::new(dated(now, nth))?;
                match rustix::fs::mkdirat(dir, name.as_c_str(), Mode::RWXU) {
                    Ok(()) => return Ok(name),
                    Err(Errno::EXIST) => taken = Errno::EXIST,
                    Err(errno) => return Err(errno.into()),
                }
            }
            Err(taken.into())
        })
    }

    /// One change of the disk, then whatever a test wants to see or break at this point.
    fn act<T>(
        &mut self,
        path: &Path,
        doing: &'static str,
        change: impl FnOnce() -> io::Result<T>,
    ) -> Result<T, PublishError> {
        let done = change().map_err(|source| PublishError::io(path, doing, source))?;
        (self.after)(doing)?;
        Ok(done)
    }

    fn entries(&self) -> Result<Vec<CString>, PublishError> {
        entries(self.dir).map_err(|source| PublishError::io(self.path, "list the directory", source))
    }

    fn at(&self, name: &CStr) -> PathBuf {
        self.path.join(lossless(name))
    }

    fn occupied(&self, name: impl AsRef<Path>, found: &str, expected: &str) -> PublishError {
        PublishError::Occupied {
            path: self.path.join(name),
            found: found.to_owned(),
            expected: expected.to_owned(),
        }
    }
}

/// A second descriptor of the directory that holds the lock until it is dropped. It has to be opened anew:
/// `flock(2)` belongs to the open file, and two threads that share one would both be let in.
pub(super) fn lock(dir: &File, path: &Path) -> Result<File, PublishError> {
    let own =
        open_dir_at(dir, c".").map_err(|source| PublishError::io(path, "open the directory", source))?;
    match rustix::fs::flock(&own, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(own),
        Err(Errno::WOULDBLOCK) => Err(PublishError::Busy { path: path.to_owned() }),
        Err(errno) => {
            log::warn!("{}: publishing without a lock: {errno}", path.display());
            Ok(own)
        }
    }
}

/// Follows links: for directories that the caller names.
pub(super) fn open_dir(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::open(path, flags, Mode::empty())?))
}

/// Follows no link: for what is found inside, where `..data_tmp` leads into a set that may be live.
fn open_dir_at(at: impl AsFd, name: &CStr) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::openat(at, name, flags, Mode::empty())?))
}

/// Has the entry of a directory that was just created on disk.
pub(super) fn sync_parent(path: &Path) -> Result<(), PublishError> {
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    open_dir(parent)
        .and_then(|dir| dir.sync_all())
        .map_err(|source| PublishError::io(parent, "sync the directory", source))
}

fn create(set: &File, name: &str) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::openat(set, name, flags, Mode::RUSR | Mode::WUSR)?))
}

fn same_file(set: &File, name: &str, bytes: &[u8], mode: u32) -> io::Result<bool> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::openat(set, name, flags, Mode::empty())?);
    let meta = file.metadata()?;
    if !meta.is_file()
        || meta.permissions().mode() & 0o777 != mode
        || usize::try_from(meta.len()) != Ok(bytes.len())
    {
        return Ok(false);
    }
    // Room for all of it at once: a buffer that grows leaves copies of the key behind.
    let mut found = Zeroizing::new(Vec::with_capacity(bytes.len().saturating_add(1)));
    file.take(meta.len()).read_to_end(&mut found)?;
    Ok(found.as_slice() == bytes)
}

fn entries(dir: &File) -> io::Result<Vec<CString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(dir)? {
        let name = entry?.file_name().to_owned();
        if name.as_bytes() != b"." && name.as_bytes() != b".." {
            names.push(name);
        }
    }
    Ok(names)
}

fn link_target(name: &[u8]) -> Vec<u8> {
    [b"..data/", name].concat()
}

fn lossless(name: &CStr) -> &Path {
    Path::new(std::ffi::OsStr::from_bytes(name.to_bytes()))
}

/// `..YYYY_MM_DD_hh_mm_ss.NNNNNNNNN` in UTC. The kubelet's digits are random, ours are the nanoseconds.
pub(super) fn dated(now: SystemTime, nth: u32) -> String {
    let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let nanos = (since.subsec_nanos().saturating_add(nth)) % 1_000_000_000;
    let (days, second) = (since.as_secs() / 86_400, since.as_secs() % 86_400);

    // Days to a date in years that begin in March: https://howardhinnant.github.io/date_algorithms.html
    let z = days.saturating_add(719_468);
    let (era, doe) = (z / 146_097, z % 146_097);
    let yoe = (doe - doe / 1_460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let day = doy - (153 * mp + 2) / 5 + 1;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    let year = era * 400 + yoe + u64::from(month <= 2);

    let (h, m, s) = (second / 3_600, second / 60 % 60, second % 60);
    format!("..{year:04}_{month:02}_{day:02}_{h:02}_{m:02}_{s:02}.{nanos:09}")
}

/// Whether a name has the shape of [`dated`] or of the kubelet's, whose last part may be of any length.
fn is_dated(name: &[u8]) -> bool {
    const SHAPE: &[u8] = b"..dddd_dd_dd_dd_dd_dd.";
    let digit = |(byte, shape): (&u8, &u8)| match shape {
        b'd' => byte.is_ascii_digit(),
        other => byte == other,
    };
    name.split_at_checked(SHAPE.len()).is_some_and(|(head, tail)| {
        head.iter().zip(SHAPE).all(digit) && !tail.is_empty() && tail.iter().all(u8::is_ascii_digit)
    })
}
