//! What a writer does: one system call an [`Op`].

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use super::fs::{Body, Call, FileSystem, Follow};
use crate::source::FileKind;

/// One system call of a writer. Paths are absolute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Mkdir(String),
    Rmdir(String),
    /// `open(O_CREAT | O_TRUNC)`, links followed.
    Open(String),
    /// `write` at the end.
    Append(String, Vec<u8>),
    /// `pwrite`: what is there is written over.
    WriteAt(String, usize, Vec<u8>),
    Truncate(String, usize),
    Symlink {
        text: String,
        path: String,
    },
    Hardlink {
        from: String,
        to: String,
    },
    Rename {
        from: String,
        to: String,
    },
    /// `renameat2(RENAME_EXCHANGE)`.
    Exchange {
        one: String,
        other: String,
    },
    Unlink(String),
    Chmod(String, u32),
    /// `utimensat`, as `cp -p` and `touch -d` do it: seconds since 1970.
    SetModified(String, u64),
    /// A FIFO, a socket, a device.
    Mknod(String, FileKind),
}

impl Op {
    /// Does it, at the time that the disk shows.
    pub(crate) fn apply(&self, fs: &mut FileSystem) -> Call<()> {
        let at = Path::new;
        match self {
            Self::Mkdir(path) => {
                let body = Body::Directory { entries: BTreeMap::new(), parent: 0 };
                fs.make(at(path), body, 0o755).map(drop)
            }
            Self::Rmdir(path) => fs.remove(at(path), true),
            Self::Open(path) if fs.resolve(at(path), Follow::Yes).is_ok() => fs.write(at(path), Vec::clear),
            Self::Open(path) => fs.make(at(path), Body::File(Vec::new()), 0o644).map(drop),
            Self::Append(path, more) => fs.write(at(path), |bytes| bytes.extend_from_slice(more)),
            Self::WriteAt(path, offset, new) => fs.write(at(path), |bytes| {
                bytes.resize(bytes.len().max(offset + new.len()), 0);
                bytes[*offset..offset + new.len()].copy_from_slice(new);
            }),
            Self::Truncate(path, size) => fs.write(at(path), |bytes| bytes.resize(*size, 0)),
            Self::Symlink { text, path } => fs.make(at(path), Body::Link(text.into()), 0o777).map(drop),
            Self::Hardlink { from, to } => fs.link(at(from), at(to)),
            Self::Rename { from, to } => fs.rename(at(from), at(to)),
            Self::Exchange { one, other } => fs.exchange(at(one), at(other)),
            Self::Unlink(path) => fs.remove(at(path), false),
            Self::Chmod(path, mode) => fs.set_mode(at(path), *mode),
            Self::SetModified(path, seconds) => fs.set_modified(at(path), Duration::from_secs(*seconds)),
            Self::Mknod(path, kind) => fs.make(at(path), Body::Special(*kind), 0o644).map(drop),
        }
    }
}
