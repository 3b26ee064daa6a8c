//! How one file is brought to a generation, and the short names of the calls.

use super::Op;
use super::state::content;
use crate::paths::Role;

/// A file of one role.
pub(super) struct File<'a> {
    pub(super) role: Role,
    pub(super) path: &'a str,
}

pub(super) fn rename_over(file: &File<'_>, generation: u32) -> Vec<Op> {
    let new = format!("{}.new", file.path);
    let mut ops = put(&new, file.role, generation);
    ops.push(rename(&new, file.path));
    ops
}

pub(super) fn backup_and_rename_over(file: &File<'_>, generation: u32) -> Vec<Op> {
    let mut ops = vec![Op::Hardlink { from: file.path.into(), to: format!("{}.bak", file.path) }];
    ops.extend(rename_over(file, generation));
    ops
}

/// `rsync -t`: a hidden name, the time of the source, a rename.
pub(super) fn rsync(file: &File<'_>, generation: u32) -> Vec<Op> {
    let temporary = file.path.replace("/c.", "/.c.x7Qk2a.");
    let mut ops = vec![Op::Open(temporary.clone())];
    ops.extend(chunks(&content(file.role, generation), 2).map(|chunk| Op::Append(temporary.clone(), chunk)));
    ops.extend([Op::SetModified(temporary.clone(), 900_000_000), rename(&temporary, file.path)]);
    ops
}

pub(super) fn editor(file: &File<'_>, generation: u32) -> Vec<Op> {
    let backup = format!("{}~", file.path);
    let mut ops = vec![rename(file.path, &backup)];
    ops.extend(put(file.path, file.role, generation));
    ops.push(unlink(&backup));
    ops
}

pub(super) fn in_place(file: &File<'_>, generation: u32, count: usize) -> Vec<Op> {
    let mut ops = vec![Op::Open(file.path.into())];
    let bytes = content(file.role, generation);
    ops.extend(chunks(&bytes, count).map(|chunk| Op::Append(file.path.into(), chunk)));
    ops
}

pub(super) fn made_anew(file: &File<'_>, generation: u32) -> Vec<Op> {
    let mut ops = vec![unlink(file.path)];
    ops.extend(put(file.path, file.role, generation));
    ops
}

/// `dd conv=notrunc`: the size never changes.
pub(super) fn written_over(file: &File<'_>, generation: u32) -> Vec<Op> {
    let mut offset = 0;
    let write = |chunk: Vec<u8>| {
        let at = offset;
        offset += chunk.len();
        Op::WriteAt(file.path.into(), at, chunk)
    };
    chunks(&content(file.role, generation), 2).map(write).collect()
}

fn chunks(bytes: &[u8], count: usize) -> impl Iterator<Item = Vec<u8>> {
    bytes.chunks(bytes.len().div_ceil(count)).map(<[u8]>::to_vec)
}

pub(super) fn put(path: &str, role: Role, generation: u32) -> Vec<Op> {
    vec![Op::Open(path.into()), Op::Append(path.into(), content(role, generation))]
}

pub(super) fn mkdir(path: &str) -> Op {
    Op::Mkdir(path.into())
}

pub(super) fn rmdir(path: &str) -> Op {
    Op::Rmdir(path.into())
}

pub(super) fn unlink(path: &str) -> Op {
    Op::Unlink(path.into())
}

pub(super) fn symlink(text: &str, path: &str) -> Op {
    Op::Symlink { text: text.into(), path: path.into() }
}

pub(super) fn rename(from: &str, to: &str) -> Op {
    Op::Rename { from: from.into(), to: to.into() }
}

pub(super) fn exchange(one: &str, other: &str) -> Op {
    Op::Exchange { one: one.into(), other: other.into() }
}
