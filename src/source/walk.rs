//! One resolution of all configured paths, hop by hop.
//!
//! Every name is looked up once: two paths that pass the same link (`..data` of a Kubernetes mount) share
//! the one answer, so the directory behind it is the same for both. The directories reached are held, and
//! the files are opened relative to them.

use std::collections::{HashMap, VecDeque};
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Component, Path, PathBuf};

use super::ReadError;
use super::disk::{Disk, FileKind, Inode, Status};
use super::trace::{Found, Goal, Hop, Route, Trace, is_missing};
use crate::paths::{Paths, Presence, Role};

/// The directories that were reached, and where each path ends.
pub(crate) struct Walk<'d, D: Disk> {
    disk: &'d D,
    nodes: Vec<Node<D>>,
    asked: Vec<Asked>,
    known: HashMap<(usize, OsString), usize>,
    ends: Vec<End>,
}

/// A directory that is held.
struct Node<D: Disk> {
    dir: D::Dir,
    id: Inode,
    path: PathBuf,
    parent: usize,
}

/// A name that was looked up, and the answer.
struct Asked {
    node: usize,
    name: OsString,
    answer: Answer,
}

#[derive(Clone)]
enum Answer {
    Directory(usize),
    Link(OsString),
    File(Status),
    Missing,
    Refused(io::ErrorKind, Option<i32>),
}

/// Where a configured path ends.
pub(super) struct End {
    pub(super) role: Role,
    pub(super) path: PathBuf,
    pub(super) found: Result<Place, ReadError>,
    hops: Vec<usize>,
}

impl End {
    fn goal(&self) -> Goal {
        match &self.found {
            Ok(Place::File { status, .. }) => Goal::File(status.identity),
            Ok(Place::Absent) | Err(ReadError::NotFound { .. }) => Goal::Absent,
            Err(ReadError::NotAFile { kind, .. }) => Goal::NotAFile(*kind),
            Err(ReadError::LinkLoop { .. }) => Goal::LinkLoop,
            Err(ReadError::Denied { .. }) => Goal::Refused(io::ErrorKind::PermissionDenied),
            Err(ReadError::Io { kind, .. }) => Goal::Refused(*kind),
            Err(ReadError::TooLarge { .. } | ReadError::Unsettled { .. }) => {
                Goal::Refused(io::ErrorKind::Other)
            }
        }
    }
}

/// A regular file, or the absence of an optional one.
pub(super) enum Place {
    File { node: usize, name: OsString, status: Status },
    Absent,
}

impl<'d, D: Disk> Walk<'d, D> {
    /// Resolves every path of `paths`. A path that leads nowhere is part of the answer.
    ///
    /// # Errors
    ///
    /// Only where `/` itself cannot be opened, or a directory vanishes between two calls.
    pub(crate) fn new(disk: &'d D, paths: &Paths) -> io::Result<Self> {
        let dir = disk.root()?;
        let root = Node { id: disk.dir_id(&dir)?, dir, path: PathBuf::from("/"), parent: ROOT };
        let mut walk =
            Self { disk, nodes: vec![root], asked: Vec::new(), known: HashMap::new(), ends: Vec::new() };
        for (role, path, presence) in paths.files() {
            let mut hops = Vec::new();
            let found = match walk.resolve(path, &mut hops)? {
                Err(ReadError::NotFound { .. }) if presence == Presence::Optional => Ok(Place::Absent),
                found => found,
            };
            walk.ends.push(End { role, path: path.to_owned(), found, hops });
        }
        Ok(walk)
    }

    pub(crate) fn trace(&self) -> Trace {
        let hop = |asked: &Asked| {
            let node = self.nodes.get(asked.node)?;
            let found = match &asked.answer {
                Answer::Directory(node) => Found::Directory(self.nodes.get(*node)?.id),
                Answer::Link(text) => Found::Link(text.clone()),
                Answer::File(status) => Found::File(*status),
                Answer::Missing => Found::Missing,
                Answer::Refused(kind, _) => Found::Refused(*kind),
            };
            Some(Hop { dir: node.path.clone(), dir_id: node.id, name: asked.name.clone(), found })
        };
        let route = |end: &End| Route {
            path: end.path.clone(),
            hops: end.hops.clone(),
            complete: end.found.is_ok(),
            goal: end.goal(),
        };
        Trace {
            hops: self.asked.iter().filter_map(hop).collect(),
            routes: self.ends.iter().map(route).collect(),
        }
    }

    pub(super) fn ends(&self) -> &[End] {
        &self.ends
    }

    pub(super) fn open(&self, node: usize, name: &OsStr) -> io::Result<D::File> {
        let node = self.nodes.get(node).ok_or(io::ErrorKind::NotFound)?;
        self.disk.open_file(&node.dir, name)
    }

    fn resolve(&mut self, path: &Path, hops: &mut Vec<usize>) -> io::Result<Result<Place, ReadError>> {
        let mut names = VecDeque::new();
        let mut node = enter(path, ROOT, &mut names);
        let mut links = 0;
        while let Some(name) = names.pop_front() {
            if name == ".." {
                node = self.nodes.get(node).map_or(ROOT, |node| node.parent);
                continue;
            }
            let last = names.is_empty();
            let hop = self.look_up(node, &name, last)?;
            hops.push(hop);
            let answer = self.asked.get(hop).map_or(Answer::Missing, |asked| asked.answer.clone());
            let error = match answer {
                Answer::Link(text) if links < MAX_LINKS => {
                    links += 1;
                    node = enter(Path::new(&text), node, &mut names);
                    continue;
                }
                Answer::Link(_) => ReadError::LinkLoop { path: path.to_owned() },
                Answer::Directory(next) if !last => {
                    node = next;
                    continue;
                }
                Answer::Directory(_) => ReadError::not_a_file(path, FileKind::Directory),
                Answer::File(status) if last && status.kind == FileKind::File => {
                    return Ok(Ok(Place::File { node, name, status }));
                }
                Answer::File(status) if last => ReadError::not_a_file(path, status.kind),
                Answer::File(_) | Answer::Missing => ReadError::not_found(path, self.path_of(node), name),
                Answer::Refused(kind, errno) => {
                    ReadError::refused(path, &self.path_of(node).join(name), kind, errno)
                }
            };
            return Ok(Err(error));
        }
        Ok(Err(ReadError::not_a_file(path, FileKind::Directory)))
    }

    /// Asks the disk for a name once: whoever comes through the same directory gets the same answer.
    fn look_up(&mut self, node: usize, name: &OsStr, last: bool) -> io::Result<usize> {
        let key = (node, name.to_owned());
        if let Some(&known) = self.known.get(&key)
            && self.shares_answers()
        {
            return Ok(known);
        }
        let answer = match self.ask(node, name, last) {
            Ok(answer) => answer,
            Err(error) if is_missing(&error) => Answer::Missing,
            Err(error) => Answer::Refused(error.kind(), error.raw_os_error()),
        };
        let index = self.asked.len();
        self.asked.push(Asked { node, name: name.to_owned(), answer });
        self.known.insert(key, index);
        Ok(index)
    }

    fn ask(&mut self, node: usize, name: &OsStr, last: bool) -> io::Result<Answer> {
        if !last && let Some(next) = self.pass(node, name)? {
            return Ok(Answer::Directory(next));
        }
        let at = self.nodes.get(node).ok_or(io::ErrorKind::NotFound)?;
        if !last && let Some(text) = self.disk.read_link(&at.dir, name)? {
            return Ok(Answer::Link(text));
        }
        let status = self.disk.lstat(&at.dir, name)?;
        match status.kind {
            // A link that is gone by now was replaced: the next attempt sees by what. So with a directory.
            FileKind::Link => Ok(self.disk.read_link(&at.dir, name)?.map_or(Answer::Missing, Answer::Link)),
            // The next path may pass it.
            FileKind::Directory => Ok(self.pass(node, name)?.map_or(Answer::Missing, Answer::Directory)),
            _ => Ok(Answer::File(status)),
        }
    }

    /// Opens the directory `name`; `None` where the name is something else.
    fn pass(&mut self, node: usize, name: &OsStr) -> io::Result<Option<usize>> {
        let at = self.nodes.get(node).ok_or(io::ErrorKind::NotFound)?;
        let Some(dir) = self.disk.open_dir(&at.dir, name)? else { return Ok(None) };
        let next = Node { id: self.disk.dir_id(&dir)?, dir, path: at.path.join(name), parent: node };
        self.nodes.push(next);
        Ok(Some(self.nodes.len() - 1))
    }

    fn path_of(&self, node: usize) -> &Path {
        self.nodes.get(node).map_or_else(|| Path::new("/"), |node| &node.path)
    }

    #[cfg(not(test))]
    fn shares_answers(&self) -> bool {
        true
    }

    #[cfg(test)]
    fn shares_answers(&self) -> bool {
        !self.disk.sabotage().asks_twice
    }
}

/// Puts the names of `path` in front of what is still to be walked; returns where to go on.
fn enter(path: &Path, from: usize, names: &mut VecDeque<OsString>) -> usize {
    let mut start = from;
    for component in path.components().rev() {
        match component {
            Component::RootDir => start = ROOT,
            Component::ParentDir => names.push_front("..".into()),
            Component::Normal(name) => names.push_front(name.to_owned()),
            Component::CurDir | Component::Prefix(_) => {}
        }
    }
    start
}

/// The first node is `/`, which is its own parent.
const ROOT: usize = 0;

/// As many as Linux follows (`path_resolution(7)`).
const MAX_LINKS: usize = 40;
