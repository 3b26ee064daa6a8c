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
use super::disk::{Disk, FileKind, Inode, MAX_NAMES, Status};
use super::trace::{Found, Goal, Hop, Route, Trace, Unlisted, is_missing, visible};
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
    /// What is in the directory itself.
    Names(Result<Vec<OsString>, Unlisted>),
    Missing,
    Refused(io::ErrorKind, Option<i32>),
}

/// Where a configured path ends, or that of a file in a configured directory.
pub(super) struct End {
    pub(super) role: Role,
    pub(super) path: PathBuf,
    pub(super) found: Result<Place, ReadError>,
    hops: Vec<usize>,
    /// Of a directory of files.
    names: Option<Result<(Inode, Vec<OsString>), Unlisted>>,
}

impl End {
    fn goal(&self) -> Goal {
        if let Some(names) = &self.names {
            return Goal::Names(names.clone());
        }
        match &self.found {
            Ok(Place::File { status, .. }) => Goal::File(status.identity),
            Ok(Place::Directory(_)) => Goal::NotAFile(FileKind::Directory),
            Ok(Place::Absent) | Err(ReadError::NotFound { .. }) => Goal::Absent,
            Err(ReadError::NotAFile { kind, .. }) => Goal::NotAFile(*kind),
            Err(ReadError::LinkLoop { .. }) => Goal::LinkLoop,
            Err(ReadError::Denied { .. }) => Goal::Refused(io::ErrorKind::PermissionDenied),
            Err(ReadError::Io { kind, .. }) => Goal::Refused(*kind),
            Err(
                ReadError::TooLarge { .. }
                | ReadError::TooLargeTogether { .. }
                | ReadError::NoFiles { .. }
                | ReadError::TooManyNames { .. }
                | ReadError::Unsettled { .. },
            ) => Goal::Refused(io::ErrorKind::Other),
        }
    }
}

/// A regular file, the absence of an optional one, or a directory.
pub(super) enum Place {
    File { node: usize, name: OsString, status: Status },
    Directory(usize),
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
            walk.find(role, path, presence)?;
        }
        Ok(walk)
    }

    fn find(&mut self, role: Role, path: &Path, presence: Presence) -> io::Result<()> {
        let mut hops = Vec::new();
        let mut names = VecDeque::new();
        let start = enter(path, ROOT, &mut names);
        let found = match self.resolve(path, start, names, &mut hops)? {
            Err(ReadError::NotFound { .. }) if presence == Presence::Optional => Ok(Place::Absent),
            Ok(Place::Directory(node)) if role == Role::Crl => return self.find_in(role, path, node, hops),
            Ok(Place::Directory(_)) => Err(ReadError::not_a_file(path, FileKind::Directory)),
            found => found,
        };
        self.ends.push(End { role, path: path.to_owned(), found, hops, names: None });
        Ok(())
    }

    /// Finds the files in a directory. Subdirectories are none; they are remembered, for that may change.
    fn find_in(&mut self, role: Role, path: &Path, node: usize, mut hops: Vec<usize>) -> io::Result<()> {
        let (hop, names) = self.list(node);
        hops.push(hop);
        let mut files = 0_usize;
        for name in names.iter().flatten() {
            let path = path.join(name);
            let mut hops = hops.clone();
            let found = self.resolve(&path, node, VecDeque::from([name.clone()]), &mut hops)?;
            if !matches!(found, Ok(Place::Directory(_))) {
                files = files.saturating_add(1);
            }
            self.ends.push(End { role, path, found, hops, names: None });
        }
        let found = match &names {
            Ok(_) if files == 0 => Err(ReadError::NoFiles { path: path.to_owned() }),
            Ok(_) => Ok(Place::Directory(node)),
            Err(Unlisted::TooMany) => Err(ReadError::TooManyNames { path: path.to_owned(), cap: MAX_NAMES }),
            Err(Unlisted::Refused(kind, errno)) => {
                Err(ReadError::refused(path, self.path_of(node), *kind, *errno))
            }
        };
        let names = names.and_then(|names| match self.nodes.get(node) {
            Some(node) => Ok((node.id, names)),
            None => Err(Unlisted::TooMany),
        });
        self.ends.push(End { role, path: path.to_owned(), found, hops, names: Some(names) });
        Ok(())
    }

    /// Asks for the names in a directory once.
    fn list(&mut self, node: usize) -> (usize, Result<Vec<OsString>, Unlisted>) {
        // No name is empty.
        let key = (node, OsString::new());
        if let Some(&known) = self.known.get(&key)
            && let Some(Asked { answer: Answer::Names(names), .. }) = self.asked.get(known)
        {
            return (known, names.clone());
        }
        let listed = match self.nodes.get(node) {
            Some(node) => self.disk.list(&node.dir),
            None => Err(io::ErrorKind::NotFound.into()),
        };
        let names =
            listed.map_err(|error| Unlisted::Refused(error.kind(), error.raw_os_error())).and_then(visible);
        let hop = self.asked.len();
        self.asked.push(Asked { node, name: OsString::new(), answer: Answer::Names(names.clone()) });
        self.known.insert(key, hop);
        (hop, names)
    }

    pub(crate) fn trace(&self) -> Trace {
        let hop = |asked: &Asked| {
            let node = self.nodes.get(asked.node)?;
            let found = match &asked.answer {
                Answer::Directory(node) => Found::Directory(self.nodes.get(*node)?.id),
                Answer::Link(text) => Found::Link(text.clone()),
                Answer::File(status) => Found::File(*status),
                Answer::Names(names) => Found::Names(names.clone()),
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

    /// Looks up `names` from `node` on, which is where `path` leads to.
    fn resolve(
        &mut self,
        path: &Path,
        mut node: usize,
        mut names: VecDeque<OsString>,
        hops: &mut Vec<usize>,
    ) -> io::Result<Result<Place, ReadError>> {
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
                Answer::Directory(end) => return Ok(Ok(Place::Directory(end))),
                Answer::File(status) if last && status.kind == FileKind::File => {
                    return Ok(Ok(Place::File { node, name, status }));
                }
                Answer::File(status) if last => ReadError::not_a_file(path, status.kind),
                Answer::File(_) | Answer::Names(_) | Answer::Missing => {
                    ReadError::not_found(path, self.path_of(node), name)
                }
                Answer::Refused(kind, errno) => {
                    ReadError::refused(path, &self.path_of(node).join(name), kind, errno)
                }
            };
            return Ok(Err(error));
        }
        Ok(Ok(Place::Directory(node)))
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
