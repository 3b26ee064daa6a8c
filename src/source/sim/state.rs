//! What a reader of one instant would see: the judge of the read.
//!
//! The resolver here is naive on purpose and shares nothing with the one of the disk or of the walk: it
//! replaces a link by its text and starts again from `/`.

use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

use super::FileSystem;
use super::fs::{Body, READ, ROOT, SEARCH};
use crate::paths::{Paths, Presence, Role};
use crate::source::{ReadError, Snapshot};

/// Every configured file at one instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct State(Vec<(Role, PathBuf, Presence, Seen)>);

/// One file at one instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    Bytes(Vec<u8>),
    Directory(u64),
    /// A directory of files, without any.
    Empty,
    Missing,
    Denied,
    Loop,
    NotAFile,
}

impl State {
    pub(crate) fn of(fs: &FileSystem, paths: &Paths) -> Self {
        let mut files = Vec::new();
        for (role, path, presence) in paths.files() {
            match see(fs, path, 0) {
                Seen::Directory(inode) if role == Role::Crl => match see_in(fs, path, inode) {
                    Ok(inside) => {
                        files.extend(inside.into_iter().map(|(path, seen)| (role, path, presence, seen)));
                    }
                    Err(seen) => files.push((role, path.to_owned(), presence, seen)),
                },
                seen => files.push((role, path.to_owned(), presence, seen)),
            }
        }
        Self(files)
    }

    /// Whether a read may answer so if the disk stands in this state.
    pub(crate) fn agrees_with(&self, answer: &Result<Snapshot, ReadError>) -> bool {
        match answer {
            Ok(snapshot) => {
                let read = ROLES.iter().flat_map(|role| snapshot.all(*role)).count();
                let there = self.0.iter().filter(|(.., seen)| *seen != Seen::Missing).count();
                let as_read = |role, path: &PathBuf| snapshot.all(role).find(|(read, _)| read == path);
                read == there
                    && self.0.iter().all(|(role, path, presence, seen)| match seen {
                        Seen::Bytes(bytes) => as_read(*role, path).is_some_and(|(_, read)| read == bytes),
                        Seen::Missing => *presence == Presence::Optional && snapshot.bytes(*role).is_none(),
                        _ => false,
                    })
            }
            Err(error) => self.0.iter().any(|(_, path, presence, seen)| {
                path == error.path()
                    && match error {
                        ReadError::NotFound { .. } => {
                            *seen == Seen::Missing && *presence == Presence::Required
                        }
                        ReadError::Denied { .. } => *seen == Seen::Denied,
                        ReadError::LinkLoop { .. } => *seen == Seen::Loop,
                        ReadError::NotAFile { .. } => matches!(seen, Seen::NotAFile | Seen::Directory(_)),
                        ReadError::NoFiles { .. } => *seen == Seen::Empty,
                        _ => false,
                    }
            }),
        }
    }

    /// Whether every file that is there holds the whole of generation `number`, and certificate and key are there.
    pub(crate) fn is_generation(&self, number: u32) -> bool {
        self.0.iter().all(|(role, _, presence, seen)| match seen {
            Seen::Bytes(bytes) => *bytes == content(*role, number) || *bytes == content(Role::Cert, number),
            Seen::Missing => *presence == Presence::Optional,
            _ => false,
        })
    }
}

/// The bytes of a file of one generation. All are of one length, the harshest case for comparing sizes, and
/// both ends carry the number, so that no mixture of two is a third.
pub(crate) fn content(role: Role, generation: u32) -> Vec<u8> {
    format!("{generation:02} {:4} {generation:02}", format!("{role:?}")).into_bytes()
}

const ROLES: [Role; 5] = [Role::Cert, Role::Key, Role::Ca, Role::Crl, Role::Ocsp];

/// The length of each [`content`].
pub(crate) const CONTENT: usize = 10;

/// The files in a directory of files, or what the directory is instead.
fn see_in(fs: &FileSystem, path: &Path, inode: u64) -> Result<Vec<(PathBuf, Seen)>, Seen> {
    let node = fs.node(inode).map_err(|_| Seen::Missing)?;
    let Body::Directory { entries, .. } = &node.body else { return Err(Seen::NotAFile) };
    if node.mode & READ == 0 {
        return Err(Seen::Denied);
    }
    let names = entries.keys().filter(|name| !name.to_str().unwrap().starts_with('.'));
    let all = names.map(|name| (path.join(name), see(fs, &path.join(name), 0)));
    let files: Vec<_> = all.filter(|(_, seen)| !matches!(seen, Seen::Directory(_))).collect();
    if files.is_empty() { Err(Seen::Empty) } else { Ok(files) }
}

fn see(fs: &FileSystem, path: &Path, links: u32) -> Seen {
    let mut inode = ROOT;
    let mut walked = PathBuf::from("/");
    let names: Vec<OsString> = path
        .components()
        .filter(|component| matches!(component, Component::Normal(_) | Component::ParentDir))
        .map(|component| component.as_os_str().to_owned())
        .collect();
    for (index, name) in names.iter().enumerate() {
        let Ok(node) = fs.node(inode) else { return Seen::Missing };
        let Body::Directory { entries, .. } = &node.body else { return Seen::Missing };
        if node.mode & SEARCH == 0 {
            return Seen::Denied;
        }
        if name == ".." {
            // No link is left in what was walked, so the text is the truth.
            let parent = walked.parent().unwrap_or_else(|| Path::new("/")).to_owned();
            let rest: PathBuf = names[index + 1..].iter().collect();
            return see(fs, &parent.join(rest), links);
        }
        let Some(next) = entries.get(name) else { return Seen::Missing };
        if let Ok(Body::Link(text)) = fs.node(*next).map(|node| &node.body) {
            if links == 40 {
                return Seen::Loop;
            }
            let rest: PathBuf = names[index + 1..].iter().collect();
            return see(fs, &walked.join(text).join(rest), links + 1);
        }
        inode = *next;
        walked.push(name);
    }
    match fs.node(inode) {
        Ok(node) => match &node.body {
            Body::File(_) if node.mode & READ == 0 => Seen::Denied,
            Body::File(bytes) => Seen::Bytes(bytes.clone()),
            Body::Directory { .. } => Seen::Directory(inode),
            _ => Seen::NotAFile,
        },
        Err(_) => Seen::Missing,
    }
}
