//! The pinned read: the files of one identity, all of one instant, or nothing.
//!
//! 1. Every path is resolved hop by hop, each name once ([`Walk`]); the directories reached are held.
//! 2. Each file is opened without waiting, must be a regular file below its cap, and is read to the end
//!    between two looks at its identity.
//! 3. When all are read, each is read once more through the handle that is still held, and each path is
//!    resolved once more, by the kernel. Where a byte differs, or a path leads elsewhere, or to a file of
//!    another identity, all is read again.
//!
//! A path of CRLs may be that of a directory: then step 1 lists it, each visible name in it is one more path, and
//! step 3 lists it again.
//!
//! What is returned was therefore on the disk, whole, at the instant between the last read of step 2 and the
//! first look of step 3. The identity alone would not prove it: two writes within one tick of the file
//! system's clock (4 to 10 ms before Linux 6.13, 2 s on FAT) share it, and so do a file and its successor in
//! the same inode. What still goes unseen is a disk that changes, changes back and changes again within the
//! few calls of one read.
//!
//! It knows names and bytes; what they mean is decided elsewhere.

mod disk;
mod error;
#[cfg(test)]
pub(crate) mod sim;
#[cfg(test)]
mod tests;
mod trace;
mod walk;

pub use disk::FileKind;
#[cfg(any(test, fuzzing))]
pub(crate) use disk::Identity;
pub(crate) use disk::{Disk, Inode, OsDisk, Status, Timestamp};
pub use error::ReadError;
#[cfg(any(test, fuzzing))]
pub(crate) use trace::Hop;
pub(crate) use trace::{Found, Trace, is_visible};
pub(crate) use walk::Walk;

use std::io;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use self::walk::{End, Place};
use crate::paths::{Paths, Role};

/// The bytes of one generation, with the state of the disk that they were read from.
pub(crate) struct Snapshot {
    trace: Trace,
    files: Vec<FileBytes>,
}

struct FileBytes {
    role: Role,
    path: PathBuf,
    identity: Inode,
    bytes: Zeroizing<Vec<u8>>,
}

impl Snapshot {
    pub(crate) fn trace(&self) -> &Trace {
        &self.trace
    }

    /// Lets the bytes go.
    pub(crate) fn into_trace(self) -> Trace {
        self.trace
    }

    /// The bytes of the file that plays `role`; `None` where it is absent.
    pub(crate) fn bytes(&self, role: Role) -> Option<&[u8]> {
        self.all(role).next().map(|(_, bytes)| bytes)
    }

    /// Every file that plays `role`, with its path: as configured, or behind that of its directory.
    pub(crate) fn all(&self, role: Role) -> impl Iterator<Item = (&Path, &[u8])> {
        let files = self.files.iter().filter(move |file| file.role == role);
        files.map(|file| (file.path.as_path(), file.bytes.as_slice()))
    }

    /// Whether two roles are played by the same file, whatever their paths are.
    pub(crate) fn same_file(&self, one: Role, other: Role) -> bool {
        let inode = |role| self.files.iter().find(|file| file.role == role).map(|file| file.identity);
        inode(one).is_some() && inode(one) == inode(other)
    }

    /// A digest of everything that was read: equal digests are equal generations.
    pub(crate) fn digest(&self) -> Digest {
        let mut hash = Sha256::new();
        for file in &self.files {
            // The length keeps a byte that moves from one file to the next from going unnoticed.
            hash.update(format!("{:?} {};", file.role, file.bytes.len()));
            hash.update(file.bytes.as_slice());
        }
        Digest(hash.finalize().into())
    }
}

/// See [`Snapshot::digest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Digest([u8; 32]);

/// Reads every file of `paths` as one generation.
///
/// # Errors
///
/// The first file that cannot be read, with the trace of the attempt: what is missing can be watched for.
pub(crate) fn read<D: Disk>(disk: &D, paths: &Paths) -> Result<Snapshot, (Trace, ReadError)> {
    let mut moved = paths.cert().to_owned();
    let mut last = Trace::default();
    for _ in 0..MAX_ATTEMPTS {
        let walk = Walk::new(disk, paths)
            .map_err(|error| (last.clone(), ReadError::from_io(paths.cert(), &error)))?;
        last = walk.trace();
        match read_walked(disk, &walk, &last) {
            Ok(files) => return Ok(Snapshot { trace: last, files }),
            Err(Torn::Moved(path)) => moved = path,
            Err(Torn::Failed(error)) => return Err((last, error)),
        }
    }
    Err((last, ReadError::Unsettled { path: moved, attempts: MAX_ATTEMPTS }))
}

/// Why one attempt gave nothing.
enum Torn {
    /// The disk moved on meanwhile: start over.
    Moved(PathBuf),
    Failed(ReadError),
}

fn read_walked<D: Disk>(disk: &D, walk: &Walk<'_, D>, trace: &Trace) -> Result<Vec<FileBytes>, Torn> {
    let mut crls = 0;
    let opened = walk
        .ends()
        .iter()
        .filter_map(|end| read_end(disk, walk, end, &mut crls).transpose())
        .collect::<Result<Vec<_>, _>>()
        .and_then(|opened| read_again(disk, opened));
    // A failure, too, is only true of a disk that stood still: half of a rotation is not an error.
    match trace.first_moved(disk) {
        Some(path) if rechecks(disk) => Err(Torn::Moved(path.to_owned())),
        _ => Ok(opened?.into_iter().map(|opened| opened.file).collect()),
    }
}

/// A file that was read once. While it is held, no other file gets its inode.
struct Opened<'w, D: Disk> {
    handle: D::File,
    end: &'w End,
    file: FileBytes,
}

fn read_end<'w, D: Disk>(
    disk: &D,
    walk: &'w Walk<'_, D>,
    end: &'w End,
    crls: &mut u64,
) -> Result<Option<Opened<'w, D>>, Torn> {
    let (node, name, status) = match &end.found {
        Ok(Place::File { node, name, status }) => (*node, name, status),
        // The files in a directory have ends of their own.
        Ok(Place::Absent | Place::Directory(_)) => return Ok(None),
        Err(error) => return Err(Torn::Failed(error.clone())),
    };
    let failed = |error: io::Error| {
        if trace::is_missing(&error) {
            return Torn::Moved(end.path.clone());
        }
        Torn::Failed(ReadError::from_io(&end.path, &error).with_mode(status.mode))
    };
    let handle = walk.open(node, name).map_err(failed)?;
    let before = disk.fstat(&handle).map_err(failed)?;
    if before != *status {
        return Err(Torn::Moved(end.path.clone()));
    }
    if end.role == Role::Crl {
        *crls = crls.saturating_add(before.identity.size);
        if *crls > CRLS_TOGETHER {
            let (path, size, cap) = (end.path.clone(), *crls, CRLS_TOGETHER);
            return Err(Torn::Failed(ReadError::TooLargeTogether { path, size, cap }));
        }
    }
    let bytes = read_to_end(disk, &handle, &before, end)?;
    if disk.fstat(&handle).map_err(failed)? != before {
        return Err(Torn::Moved(end.path.clone()));
    }
    let file = FileBytes { role: end.role, path: end.path.clone(), identity: before.identity.inode, bytes };
    Ok(Some(Opened { handle, end, file }))
}

/// Reads what was read once more: all the first reads lie before all the second ones.
fn read_again<'w, D: Disk>(disk: &D, opened: Vec<Opened<'w, D>>) -> Result<Vec<Opened<'w, D>>, Torn> {
    for Opened { handle, end, file } in &opened {
        match still_reads(disk, handle, &file.bytes) {
            Ok(false) if rereads(disk) => return Err(Torn::Moved(end.path.clone())),
            Ok(_) => {}
            Err(error) => return Err(Torn::Failed(ReadError::from_io(&end.path, &error))),
        }
    }
    Ok(opened)
}

fn still_reads<D: Disk>(disk: &D, handle: &D::File, bytes: &[u8]) -> io::Result<bool> {
    let mut buffer = Zeroizing::new(vec![0; bytes.len().min(SECOND_LOOK)]);
    let mut rest = bytes;
    let mut offset = 0;
    while !rest.is_empty() {
        let room = rest.len().min(SECOND_LOOK);
        let count = disk.read_at(handle, offset, buffer.get_mut(..room).unwrap_or_default())?;
        match rest.split_at_checked(count) {
            Some((expected, left)) if count > 0 && buffer.get(..count) == Some(expected) => rest = left,
            _ => return Ok(false),
        }
        offset += count;
    }
    Ok(true)
}

/// Reads exactly the size that the file has, in one buffer: a growing one would leave copies of a key behind.
fn read_to_end<D: Disk>(
    disk: &D,
    handle: &D::File,
    status: &Status,
    end: &End,
) -> Result<Zeroizing<Vec<u8>>, Torn> {
    let size = status.identity.size;
    let cap = cap(end.role);
    if size > cap {
        return Err(Torn::Failed(ReadError::TooLarge { path: end.path.clone(), size, cap }));
    }
    // One byte more than expected shows that the file grew.
    let room = usize::try_from(size).unwrap_or(usize::MAX).saturating_add(1);
    let mut bytes = Zeroizing::new(vec![0; room]);
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match disk.read_at(handle, filled, rest) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) => return Err(Torn::Failed(ReadError::from_io(&end.path, &error))),
        }
    }
    if filled + 1 != room {
        return Err(Torn::Moved(end.path.clone()));
    }
    bytes.truncate(filled);
    Ok(bytes)
}

/// What is read at most: refuses `/dev/zero`-like mistakes before they cost memory.
fn cap(role: Role) -> u64 {
    match role {
        Role::Ca | Role::Crl => 16 << 20,
        Role::Cert | Role::Key | Role::Ocsp => 1 << 20,
    }
}

/// What all CRL files may have together: a directory may hold a thousand.
const CRLS_TOGETHER: u64 = 64 << 20;

#[cfg(not(test))]
fn rechecks<D: Disk>(_: &D) -> bool {
    true
}

#[cfg(test)]
fn rechecks<D: Disk>(disk: &D) -> bool {
    !disk.sabotage().trusts_first_look
}

#[cfg(not(test))]
fn rereads<D: Disk>(_: &D) -> bool {
    true
}

#[cfg(test)]
fn rereads<D: Disk>(disk: &D) -> bool {
    !disk.sabotage().trusts_stamps
}

/// How many bytes are compared at a time when a file is read once more.
const SECOND_LOOK: usize = 64 << 10;

/// How often a read starts over before the schedule takes it up again.
const MAX_ATTEMPTS: u32 = 8;

/// What a test takes out of the read, to see that the proof fails without it.
#[cfg(test)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sabotage {
    /// Each path asks for its links on its own.
    pub(crate) asks_twice: bool,
    /// The paths are not resolved a second time.
    pub(crate) trusts_first_look: bool,
    /// The bytes are not read a second time.
    pub(crate) trusts_stamps: bool,
    /// Directories are not listed a second time.
    pub(crate) trusts_listing: bool,
}
