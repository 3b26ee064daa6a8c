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
    Missing,
    Denied,
    Loop,
    NotAFile,
}

impl State {
    pub(crate) fn of(fs: &FileSystem, paths: &Paths) -> Self {
        let see = |path: &Path| see(fs, path, 0);
        Self(
            paths
                .files()
                .map(|(role, path, presence)| (role, path.to_owned(), presence, see(path)))
                .collect(),
        )
    }

    /// Whether a read may answer so if the disk stands in this state.
    pub(crate) fn agrees_with(&self, answer: &Result<Snapshot, ReadError>) -> bool {
        match answer {
            Ok(snapshot) => self.0.iter().all(|(role, _, presence, seen)| match seen {
                Seen::Bytes(bytes) => snapshot.bytes(*role) == Some(bytes),
                Seen::Missing => *presence == Presence::Optional && snapshot.bytes(*role).is_none(),
                _ => false,
            }),
            Err(error) => self.0.iter().any(|(_, path, presence, seen)| {
                path == error.path()
                    && match error {
                        ReadError::NotFound { .. } => {
                            *seen == Seen::Missing && *presence == Presence::Required
                        }
                        ReadError::Denied { .. } => *seen == Seen::Denied,
                        ReadError::LinkLoop { .. } => *seen == Seen::Loop,
                        ReadError::NotAFile { .. } => *seen == Seen::NotAFile,
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

/// The length of each [`content`].
pub(crate) const CONTENT: usize = 10;

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
            _ => Seen::NotAFile,
        },
        Err(_) => Seen::Missing,
    }
}
