//! The pinned read on the disk of this machine.

mod cost;
mod shapes;

use std::path::Path;

use super::{OsDisk, ReadError, Snapshot, read};
use crate::paths::Paths;

fn read_here(paths: &Paths) -> Result<Snapshot, ReadError> {
    read(&OsDisk, paths).map_err(|(_, error)| error)
}

/// What a mounted Secret looks like, with `ca.crt`.
fn mount_secret(dir: &Path) {
    let dated = dir.join("..2026_11_30_10_00_00.123456789");
    std::fs::create_dir(&dated).unwrap();
    std::os::unix::fs::symlink(dated.file_name().unwrap(), dir.join("..data")).unwrap();
    for name in ["tls.crt", "tls.key", "ca.crt"] {
        std::fs::write(dated.join(name), name).unwrap();
        std::os::unix::fs::symlink(Path::new("..data").join(name), dir.join(name)).unwrap();
    }
}
