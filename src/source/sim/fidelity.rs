//! The simulated disk behaves like the disk of this machine, as far as the read can tell.

use std::ffi::OsStr;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::recipe::{self, Clock};
use super::{FileSystem, Op, Reuse, SimDisk};
use crate::paths::{Paths, Role};
use crate::source::disk::{Disk, Status};
use crate::source::{OsDisk, read};

/// Every recipe, step by step, on both.
#[test]
fn each_step_of_each_recipe_reads_the_same_on_the_real_disk() {
    for recipe in recipe::all() {
        if recipe.ops.iter().any(|op| matches!(op, Op::Chmod(..))) && rustix::process::geteuid().is_root() {
            println!("skipped, root is denied nothing: {}", recipe.name);
            continue;
        }
        let dir = tempfile::tempdir().unwrap();
        let below = |path: &str| dir.path().join(path.trim_start_matches('/'));
        let disk = SimDisk::new(recipe.disk(Clock::Fine, Reuse::AtOnce), recipe.ops.clone());
        for op in &recipe.start {
            apply(op, below);
        }
        for (step, op) in recipe.ops.iter().enumerate() {
            disk.run_writer(1);
            apply(op, below);
            let simulated = seen(&disk, &recipe.paths);
            let real = seen(&OsDisk, &moved_below(&recipe.paths, dir.path()));
            assert_eq!(simulated, real, "{}, step {step}: {op:?}", recipe.name);
        }
    }
}

#[test]
fn two_writes_share_an_identity_within_a_tick_and_only_there() {
    let start = Duration::from_secs(1_764_500_000);
    let disk = SimDisk::new(FileSystem::new(Reuse::Never), vec![Op::Open("/f".into())]);
    disk.with_fs(|fs| fs.tick = Duration::from_secs(2));
    disk.set_now(start);
    disk.set_step(Duration::ZERO);
    let overwrite = || Op::WriteAt("/f".into(), 0, b"new".to_vec());
    disk.extend_writer([Op::Append("/f".into(), b"old".to_vec()), overwrite(), overwrite()]);
    disk.run_writer(2);
    let first = status(&disk);
    disk.advance(Duration::from_millis(1900));
    disk.run_writer(1);
    assert_eq!(status(&disk), first);
    disk.advance(Duration::from_millis(100));
    disk.run_writer(1);
    assert_ne!(status(&disk), first);
    assert_eq!(disk.now().seconds, 1_764_500_002);
}

#[test]
fn inode_goes_to_the_next_file_when_no_name_and_no_handle_is_left() {
    let disk = SimDisk::new(FileSystem::new(Reuse::AtOnce), vec![Op::Open("/f".into())]);
    let again = || [Op::Truncate("/f".into(), 3), Op::Unlink("/f".into()), Op::Open("/f".into())];
    disk.extend_writer(again().into_iter().chain(again()));
    disk.run_writer(1);
    let first = status(&disk).identity.inode;
    let held = disk.open_file(&disk.root().unwrap(), OsStr::new("f")).unwrap();
    disk.run_writer(3);
    assert_ne!(status(&disk).identity.inode, first);
    assert_eq!(disk.fstat(&held).unwrap().identity.size, 3);
    drop(held);
    disk.run_writer(3);
    assert_eq!(status(&disk).identity.inode, first);
}

fn status(disk: &SimDisk) -> Status {
    disk.stat(Path::new("/f")).unwrap()
}

/// The bytes by role, or why there are none.
fn seen<D: Disk>(disk: &D, paths: &Paths) -> Result<Vec<Option<Vec<u8>>>, &'static str> {
    let snapshot = read(disk, paths).map_err(|(_, error)| error.reason())?;
    let mut seen: Vec<_> =
        [Role::Cert, Role::Key, Role::Ca].map(|role| snapshot.bytes(role).map(<[u8]>::to_vec)).into();
    seen.extend(snapshot.all(Role::Crl).map(|(_, bytes)| Some(bytes.to_vec())));
    Ok(seen)
}

fn moved_below(paths: &Paths, base: &Path) -> Paths {
    let below = |path: &Path| base.join(path.strip_prefix("/").unwrap());
    let pair = Paths::new(below(paths.cert()), below(paths.key()));
    let moved = paths.crls().iter().fold(pair, |moved, crl| moved.with_crl(below(crl)));
    match paths.ca() {
        // In the recipes, it may be missing where it is the one of a Secret.
        Some(ca) if ca.starts_with("/m") && !ca.starts_with("/m/..data") => Paths::secret(base.join("m")),
        Some(ca) => moved.with_ca(below(ca)),
        None => moved,
    }
}

fn apply(op: &Op, below: impl Fn(&str) -> PathBuf) {
    let open = |path: &str| fs::OpenOptions::new().write(true).open(below(path)).unwrap();
    match op {
        Op::Mkdir(path) => fs::create_dir(below(path)),
        Op::Rmdir(path) => fs::remove_dir(below(path)),
        Op::Open(path) => fs::File::create(below(path)).map(drop),
        Op::Append(path, bytes) => {
            fs::OpenOptions::new().append(true).open(below(path)).unwrap().write_all(bytes)
        }
        Op::WriteAt(path, offset, bytes) => open(path).write_all_at(bytes, u64::try_from(*offset).unwrap()),
        Op::Truncate(path, size) => open(path).set_len(u64::try_from(*size).unwrap()),
        Op::Symlink { text, path } => symlink(text, below(path)),
        Op::Hardlink { from, to } => fs::hard_link(below(from), below(to)),
        Op::Rename { from, to } => fs::rename(below(from), below(to)),
        // Not in one step, which is not looked at here.
        Op::Exchange { one, other } => fs::rename(below(one), below("/exchanged"))
            .and_then(|()| fs::rename(below(other), below(one)))
            .and_then(|()| fs::rename(below("/exchanged"), below(other))),
        Op::Unlink(path) => fs::remove_file(below(path)),
        Op::Chmod(path, mode) => fs::set_permissions(below(path), fs::Permissions::from_mode(*mode)),
        Op::SetModified(path, seconds) => {
            open(path).set_modified(std::time::UNIX_EPOCH + Duration::from_secs(*seconds))
        }
        Op::Mknod(..) => unreachable!("no recipe makes one"),
    }
    .unwrap_or_else(|error| panic!("{op:?}: {error}"));
}
