//! What a load and a resync cost, in system calls.

use std::cell::Cell;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use super::mount_secret;
use crate::paths::Paths;
use crate::source::disk::{Disk, Inode, OsDisk, Status};
use crate::source::read;

/// The disk of this machine, with a counter: one for each call, and one for the `close` of each handle.
#[derive(Default)]
struct Counted(Cell<usize>);

impl Counted {
    fn count<T>(&self, calls: usize, answer: T) -> T {
        self.0.set(self.0.get() + calls);
        answer
    }
}

impl Disk for Counted {
    type Dir = OwnedFd;
    type File = OwnedFd;

    fn root(&self) -> io::Result<OwnedFd> {
        self.count(2, OsDisk.root())
    }

    fn open_dir(&self, at: &OwnedFd, name: &OsStr) -> io::Result<Option<OwnedFd>> {
        let dir = OsDisk.open_dir(at, name);
        let closes = usize::from(matches!(dir, Ok(Some(_))));
        self.count(1 + closes, dir)
    }

    fn dir_id(&self, dir: &OwnedFd) -> io::Result<Inode> {
        self.count(1, OsDisk.dir_id(dir))
    }

    fn read_link(&self, at: &OwnedFd, name: &OsStr) -> io::Result<Option<OsString>> {
        self.count(1, OsDisk.read_link(at, name))
    }

    fn lstat(&self, at: &OwnedFd, name: &OsStr) -> io::Result<Status> {
        self.count(1, OsDisk.lstat(at, name))
    }

    fn list(&self, dir: &OwnedFd) -> io::Result<Vec<OsString>> {
        self.count(4, OsDisk.list(dir))
    }

    fn open_file(&self, at: &OwnedFd, name: &OsStr) -> io::Result<OwnedFd> {
        self.count(2, OsDisk.open_file(at, name))
    }

    fn fstat(&self, file: &OwnedFd) -> io::Result<Status> {
        self.count(1, OsDisk.fstat(file))
    }

    fn read_at(&self, file: &OwnedFd, offset: usize, buffer: &mut [u8]) -> io::Result<usize> {
        self.count(1, OsDisk.read_at(file, offset, buffer))
    }

    fn stat(&self, path: &Path) -> io::Result<Status> {
        self.count(1, OsDisk.stat(path))
    }

    fn read_link_at(&self, path: &Path) -> io::Result<Option<OsString>> {
        self.count(1, OsDisk.read_link_at(path))
    }

    fn list_at(&self, path: &Path) -> io::Result<(Inode, Vec<OsString>)> {
        self.count(5, OsDisk.list_at(path))
    }
}

#[test]
fn mount_of_three_files_costs_at_most_sixty_calls_and_its_resync_ten() {
    let dir = tempfile::tempdir_in("/tmp").unwrap();
    mount_secret(dir.path());
    let disk = Counted::default();
    let Ok(snapshot) = read(&disk, &Paths::secret(dir.path())) else { panic!("the mount is not read") };
    let load = disk.0.take();
    assert!(snapshot.trace().still_holds(&disk));
    let resync = disk.0.take();
    println!("load: {load} calls, resync: {resync} calls");
    assert!(load <= 60 && resync <= 10, "load: {load} calls, resync: {resync} calls");
}
