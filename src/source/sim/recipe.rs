//! The writers of the field, each as the list of its system calls. Long because it is a catalogue: every recipe
//! stands by itself, and is looked for in one place.

use std::sync::Arc;
use std::time::Duration;

use super::steps::{
    File, backup_and_rename_over, editor, exchange, in_place, made_anew, mkdir, put, rename, rename_over,
    rmdir, rsync, symlink, unlink, written_over,
};
use super::{FileSystem, Op, Reuse};
use crate::paths::{Paths, Role};

/// A disk, and a writer that brings it to a newer generation.
#[derive(Clone, Debug)]
pub(crate) struct Recipe {
    pub(crate) name: String,
    pub(crate) paths: Paths,
    pub(crate) start: Vec<Op>,
    pub(crate) ops: Arc<Vec<Op>>,
    pub(crate) nature: Nature,
    /// The generation on the disk when the writer is done.
    pub(crate) last: u32,
}

/// What the writer itself promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nature {
    /// At every instant one generation is there as a whole.
    Atomic,
    /// At every instant one generation is there as a whole, or something is missing.
    Whole,
    /// There are instants with files of two generations, or with half a file.
    Stepwise,
}

/// How fine the time stamps of the disk are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clock {
    /// Each call of the writer has its own.
    Fine,
    /// All that the writer does carries one; what was there before is older.
    OneTickForTheWriter,
    /// The old files carry the same one, too.
    OneTickForAll,
}

impl Recipe {
    /// The disk before the writer starts.
    pub(crate) fn disk(&self, clock: Clock, reuse: Reuse) -> FileSystem {
        let mut fs = FileSystem::new(reuse);
        if clock != Clock::Fine {
            fs.tick = Duration::from_secs(2);
        }
        for op in &self.start {
            fs.now += Duration::from_millis(1);
            op.apply(&mut fs).unwrap_or_else(|errno| panic!("{}: {op:?}: {errno}", self.name));
        }
        if clock != Clock::OneTickForAll {
            fs.now += Duration::from_secs(1000);
        }
        fs
    }
}

/// Every recipe.
pub(crate) fn all() -> Vec<Recipe> {
    let mut recipes = vec![
        kubelet("kubelet, old directory removed", Paths::secret("/m"), &[1, 2], true),
        kubelet("kubelet, old directory kept", Paths::secret("/m"), &[1, 2], false),
        kubelet("kubelet, two rotations", Paths::secret("/m"), &[1, 2, 3], true),
        kubelet(
            "kubelet, paths through ..data",
            Paths::new("/m/..data/tls.crt", "/m/..data/tls.key").with_ca("/m/..data/ca.crt"),
            &[1, 2],
            true,
        ),
        kubelet_adds_ca(),
        kubelet_removes_ca(),
        parent_link("parent link re-pointed", "/cur"),
        parent_link("middle link of three re-pointed", "/etc/tls/cur"),
        directory_exchange(),
        directory_swap(),
        directory_made_anew(),
        toggle(),
        combined_renamed(),
        combined_in_place(),
        remove_and_create_later(),
        mode_repaired_later(),
        ca_renamed_apart(),
        crls_in_mount(),
        crls_of_mount(),
        crls_renamed_in(),
    ];
    for order in [CERT_FIRST, KEY_FIRST] {
        recipes.extend([
            certbot("certbot, rm and ln", order, Relink::RemoveFirst, &[1, 2]),
            certbot("certbot, link renamed over link", order, Relink::RenameOver, &[1, 2]),
            certbot("certbot, two rotations", order, Relink::RenameOver, &[1, 2, 3]),
            flat("rename over", order, &[2], rename_over),
            flat("rename over, two rotations", order, &[2, 3], rename_over),
            flat("hard-linked backup, rename over", order, &[2], backup_and_rename_over),
            flat("rsync", order, &[2], rsync),
            flat("editor", order, &[2], editor),
            flat("in place, two rotations", order, &[2, 3], |at, generation| in_place(at, generation, 1)),
            flat("written over, not cut", order, &[2], written_over),
            flat("each removed and created, two rotations", order, &[2, 3], made_anew),
        ]);
        for chunks in 1..=3 {
            recipes.push(flat(&format!("in place in {chunks}"), order, &[2], move |at, generation| {
                in_place(at, generation, chunks)
            }));
        }
    }
    recipes
}

/// The recipe of that name.
pub(crate) fn named(name: &str) -> Recipe {
    all().into_iter().find(|recipe| recipe.name == name).unwrap()
}

/// `AtomicWriter` of the kubelet: a dated directory, and `..data` renamed over.
fn kubelet(name: &str, paths: Paths, generations: &[u32], removes_old: bool) -> Recipe {
    let mut start = vec![mkdir("/m")];
    start.extend(dated(generations[0], &SECRET));
    start.extend([
        symlink(&dated_name(generations[0]), "/m/..data"),
        symlink("..data/tls.crt", "/m/tls.crt"),
        symlink("..data/tls.key", "/m/tls.key"),
        symlink("..data/ca.crt", "/m/ca.crt"),
    ]);
    let mut ops = Vec::new();
    for pair in generations.windows(2) {
        ops.extend(dated(pair[1], &SECRET));
        ops.extend(swap_data(pair[1]));
        if removes_old {
            ops.extend(dated_removed(pair[0], &SECRET));
        }
    }
    recipe(name, paths, start, ops, Nature::Atomic, *generations.last().unwrap())
}

/// The link of a new key of the Secret is made after the swap: for an instant the CA is still missing.
fn kubelet_adds_ca() -> Recipe {
    let mut start = vec![mkdir("/m")];
    start.extend(dated(1, &SECRET[..2]));
    start.extend([
        symlink("..g1", "/m/..data"),
        symlink("..data/tls.crt", "/m/tls.crt"),
        symlink("..data/tls.key", "/m/tls.key"),
    ]);
    let mut ops = dated(2, &SECRET);
    ops.extend(swap_data(2));
    ops.push(symlink("..data/ca.crt", "/m/ca.crt"));
    ops.extend(dated_removed(1, &SECRET[..2]));
    recipe("kubelet, ca.crt added", Paths::secret("/m"), start, ops, Nature::Atomic, 2)
}

fn kubelet_removes_ca() -> Recipe {
    let with_ca = kubelet("", Paths::secret("/m"), &[1, 2], false);
    let mut ops = dated(2, &SECRET[..2]);
    ops.extend(swap_data(2));
    ops.push(unlink("/m/ca.crt"));
    ops.extend(dated_removed(1, &SECRET));
    recipe("kubelet, ca.crt removed", Paths::secret("/m"), with_ca.start, ops, Nature::Atomic, 2)
}

/// `cur -> v1` is replaced by `cur -> v2`; the paths may pass more links before and behind it.
fn parent_link(name: &str, dir: &str) -> Recipe {
    let mut start = vec![mkdir("/v1"), mkdir("/v2"), mkdir("/etc"), mkdir("/opt"), symlink("v1", "/cur")];
    start.extend([symlink("../opt", "/etc/tls"), symlink("../cur", "/opt/cur")]);
    start.extend(pair_in("/v1", 1));
    let mut ops = pair_in("/v2", 2);
    ops.extend([symlink("v2", "/cur.new"), rename("/cur.new", "/cur")]);
    recipe(name, pair_at(dir), start, ops, Nature::Atomic, 2)
}

fn directory_exchange() -> Recipe {
    let mut start = vec![mkdir("/d"), mkdir("/n")];
    start.extend(pair_in("/d", 1));
    let mut ops = pair_in("/n", 2);
    ops.push(exchange("/d", "/n"));
    ops.extend([unlink("/n/c.crt"), unlink("/n/c.key"), rmdir("/n")]);
    recipe("directories exchanged", pair_at("/d"), start, ops, Nature::Atomic, 2)
}

fn directory_swap() -> Recipe {
    let mut start = vec![mkdir("/d"), mkdir("/n")];
    start.extend(pair_in("/d", 1));
    let mut ops = pair_in("/n", 2);
    ops.extend([rename("/d", "/o"), rename("/n", "/d")]);
    recipe("directory renamed away, another in", pair_at("/d"), start, ops, Nature::Whole, 2)
}

fn directory_made_anew() -> Recipe {
    let mut start = vec![mkdir("/d")];
    start.extend(pair_in("/d", 1));
    let mut ops = vec![unlink("/d/c.crt"), unlink("/d/c.key"), rmdir("/d"), mkdir("/d")];
    ops.extend(pair_in("/d", 2));
    recipe("directory deleted and made again", pair_at("/d"), start, ops, Nature::Stepwise, 2)
}

/// A link to one of two directories, there and back and there: each look at it may be right, and the sum
/// of them wrong.
pub(crate) fn toggle() -> Recipe {
    let mut start = vec![mkdir("/v1"), mkdir("/v2"), symlink("v1", "/cur"), symlink("v2", "/other")];
    start.extend(pair_in("/v1", 1));
    start.extend(pair_in("/v2", 2));
    let ops = vec![exchange("/cur", "/other"); 3];
    recipe("parent link toggled three times", pair_at("/cur"), start, ops, Nature::Atomic, 2)
}

/// A link for each file, each there and back and there; the way back in the other order. Not one of [`all`].
pub(crate) fn separate_toggles() -> Recipe {
    let mut start: Vec<Op> = ["/v1", "/v2", "/d"].map(mkdir).into();
    start.extend(pair_in("/v1", 1));
    start.extend(pair_in("/v2", 2));
    for name in ["c.crt", "c.key"] {
        start.push(symlink(&format!("../v1/{name}"), &format!("/d/{name}")));
        start.push(symlink(&format!("../v2/{name}"), &format!("/d/other.{name}")));
    }
    let cert = || exchange("/d/c.crt", "/d/other.c.crt");
    let key = || exchange("/d/c.key", "/d/other.c.key");
    let ops = vec![cert(), key(), key(), cert(), cert(), key()];
    recipe("two links toggled three times", pair_at("/d"), start, ops, Nature::Stepwise, 2)
}

fn combined_renamed() -> Recipe {
    let start = put("/c.pem", Role::Cert, 1);
    let mut ops = put("/n", Role::Cert, 2);
    ops.push(rename("/n", "/c.pem"));
    recipe("combined file, rename over", Paths::combined("/c.pem"), start, ops, Nature::Atomic, 2)
}

fn combined_in_place() -> Recipe {
    let start = put("/c.pem", Role::Cert, 1);
    let ops = in_place(&File { role: Role::Cert, path: "/c.pem" }, 2, 3);
    recipe("combined file, in place in 3", Paths::combined("/c.pem"), start, ops, Nature::Stepwise, 2)
}

fn remove_and_create_later() -> Recipe {
    let mut start = vec![mkdir("/d")];
    start.extend(pair_in("/d", 1));
    let mut ops = vec![unlink("/d/c.crt"), unlink("/d/c.key")];
    ops.extend(pair_in("/d", 2));
    recipe("removed, created later", pair_at("/d"), start, ops, Nature::Stepwise, 2)
}

/// `umask 777; cp; chmod`, for a directory and for a file.
fn mode_repaired_later() -> Recipe {
    let mut start = vec![mkdir("/d")];
    start.extend(pair_in("/d", 1));
    let chmod = |path: &str, mode| Op::Chmod(path.into(), mode);
    let mut ops = vec![chmod("/d", 0o600)];
    ops.extend([chmod("/d", 0o755), chmod("/d/c.key", 0o200), chmod("/d", 0o600), chmod("/d", 0o755)]);
    ops.extend(pair_in("/d", 2));
    ops.push(chmod("/d/c.key", 0o640));
    recipe("permissions repaired later", pair_at("/d"), start, ops, Nature::Stepwise, 2)
}

/// Certificate, key and CA, one rename each.
fn ca_renamed_apart() -> Recipe {
    let files = [Role::Cert, Role::Key, Role::Ca].map(|role| (role, format!("/d/{role:?}")));
    let mut start = vec![mkdir("/d")];
    let mut ops = Vec::new();
    for (role, path) in &files {
        start.extend(put(path, *role, 1));
        ops.extend(rename_over(&File { role: *role, path }, 2));
    }
    let paths = Paths::new("/d/Cert", "/d/Key").with_ca("/d/Ca");
    recipe("certificate, key and CA renamed over", paths, start, ops, Nature::Stepwise, 2)
}

/// A directory of CRLs within a mounted volume: another one, with one file more, when the volume is swapped.
fn crls_in_mount() -> Recipe {
    let pair = &SECRET[..2];
    let inside = |generation, names: &[&str]| {
        let dir = format!("/m/{}/crl", dated_name(generation));
        let mut ops = vec![mkdir(&dir)];
        ops.extend(names.iter().flat_map(|name| put(&format!("{dir}/{name}"), Role::Crl, generation)));
        ops
    };
    let mut start = vec![mkdir("/m")];
    start.extend(dated(1, pair));
    start.extend(inside(1, &["a"]));
    start.extend([
        symlink("..g1", "/m/..data"),
        symlink("..data/tls.crt", "/m/tls.crt"),
        symlink("..data/tls.key", "/m/tls.key"),
        symlink("..data/crl", "/m/crl"),
    ]);
    let mut ops = dated(2, pair);
    ops.extend(inside(2, &["a", "b"]));
    ops.extend(swap_data(2));
    ops.extend([unlink("/m/..g1/crl/a"), rmdir("/m/..g1/crl")]);
    ops.extend(dated_removed(1, pair));
    let paths = Paths::new("/m/tls.crt", "/m/tls.key").with_crl("/m/crl");
    recipe("kubelet, directory of CRLs in the mount", paths, start, ops, Nature::Atomic, 2)
}

/// A mounted volume of CRLs: swapped after the pair, and the link of a new one is made after the swap.
fn crls_of_mount() -> Recipe {
    let pair = &SECRET[..2];
    let one = &[(Role::Crl, "a")];
    let two = &[(Role::Crl, "a"), (Role::Crl, "b")];
    let mut start = vec![mkdir("/m"), mkdir("/m/.pair")];
    start.extend(pair.iter().flat_map(|(role, name)| put(&format!("/m/.pair/{name}"), *role, 1)));
    start.extend(dated(1, one));
    start.extend([symlink("..g1", "/m/..data"), symlink("..data/a", "/m/a"), mkdir("/m/lost+found")]);
    let mut ops = dated(2, two);
    for (role, name) in pair {
        ops.extend(rename_over(&File { role: *role, path: &format!("/m/.pair/{name}") }, 2));
    }
    ops.extend(swap_data(2));
    ops.push(symlink("..data/b", "/m/b"));
    ops.extend(dated_removed(1, one));
    let paths = Paths::new("/m/.pair/tls.crt", "/m/.pair/tls.key").with_crl("/m");
    recipe("kubelet, the mount is the directory of CRLs", paths, start, ops, Nature::Stepwise, 2)
}

/// The pair and a CRL renamed over, a new CRL renamed in, and an old one removed.
fn crls_renamed_in() -> Recipe {
    let renamed = |role, path: &str, generation| {
        let mut ops = put("/c/.new", role, generation);
        ops.push(rename("/c/.new", path));
        ops
    };
    let mut start = vec![mkdir("/c"), mkdir("/d")];
    start.extend(pair_in("/d", 1));
    start.extend(["/c/a", "/c/c"].iter().flat_map(|path| put(path, Role::Crl, 1)));
    let mut ops = renamed(Role::Cert, "/d/c.crt", 2);
    ops.extend(renamed(Role::Key, "/d/c.key", 2));
    ops.extend(renamed(Role::Crl, "/c/a", 2));
    ops.extend(renamed(Role::Crl, "/c/b", 2));
    ops.push(unlink("/c/c"));
    recipe("CRLs renamed into a directory", pair_at("/d").with_crl("/c"), start, ops, Nature::Stepwise, 2)
}

/// One of many CRLs is replaced, another comes, while the reader reads the rest. Not one of [`all`]: the pair stays.
pub(crate) fn crls_exchanged() -> Recipe {
    let mut start = vec![mkdir("/c"), mkdir("/d"), mkdir("/n")];
    start.extend(pair_in("/d", 1));
    start.extend(["/c/a", "/c/b"].iter().flat_map(|path| put(path, Role::Crl, 1)));
    start.extend(put("/n/c", Role::Crl, 2));
    let ops = vec![rename("/n/c", "/c/c"), rename("/c/c", "/c/b"), unlink("/c/a"), rename("/c/b", "/c/.b")];
    recipe("CRLs come and go", pair_at("/d").with_crl("/c"), start, ops, Nature::Stepwise, 2)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Relink {
    RemoveFirst,
    RenameOver,
}

/// `live/x/fullchain.pem -> ../../archive/x/fullchain1.pem`, and the key likewise.
fn certbot(name: &str, order: Order, relink: Relink, generations: &[u32]) -> Recipe {
    let base = |role| if role == Role::Cert { "fullchain" } else { "privkey" };
    let live = |role| format!("/le/live/{}.pem", base(role));
    let text = |role, generation| format!("../archive/{}{generation}.pem", base(role));
    let archive = |role, generation| format!("/le/archive/{}{generation}.pem", base(role));
    let mut start = vec![mkdir("/le"), mkdir("/le/live"), mkdir("/le/archive")];
    for role in order.roles {
        start.extend(put(&archive(role, generations[0]), role, generations[0]));
        start.push(symlink(&text(role, generations[0]), &live(role)));
    }
    let mut ops = Vec::new();
    for &generation in &generations[1..] {
        for role in order.roles {
            ops.extend(put(&archive(role, generation), role, generation));
        }
        for role in order.roles {
            match relink {
                Relink::RemoveFirst => {
                    ops.extend([unlink(&live(role)), symlink(&text(role, generation), &live(role))]);
                }
                Relink::RenameOver => {
                    ops.extend([symlink(&text(role, generation), "/le/tmp"), rename("/le/tmp", &live(role))]);
                }
            }
        }
    }
    let name = format!("{name}, {}", order.name);
    recipe(&name, Paths::certbot("/le/live"), start, ops, Nature::Stepwise, *generations.last().unwrap())
}

/// Certificate and key side by side, each brought to each of `generations` by `write`.
fn flat(name: &str, order: Order, generations: &[u32], write: impl Fn(&File<'_>, u32) -> Vec<Op>) -> Recipe {
    let path = |role| if role == Role::Cert { "/d/c.crt" } else { "/d/c.key" };
    let mut start = vec![mkdir("/d")];
    start.extend(pair_in("/d", 1));
    let turns = generations.iter().flat_map(|&generation| order.roles.map(|role| (role, generation)));
    let ops = turns.flat_map(|(role, generation)| write(&File { role, path: path(role) }, generation));
    let last = *generations.last().unwrap();
    let name = format!("{name}, {}", order.name);
    recipe(&name, pair_at("/d"), start, ops.collect(), Nature::Stepwise, last)
}

#[derive(Clone, Copy)]
struct Order {
    name: &'static str,
    roles: [Role; 2],
}

const CERT_FIRST: Order = Order { name: "certificate first", roles: [Role::Cert, Role::Key] };
const KEY_FIRST: Order = Order { name: "key first", roles: [Role::Key, Role::Cert] };

const SECRET: [(Role, &str); 3] = [(Role::Cert, "tls.crt"), (Role::Key, "tls.key"), (Role::Ca, "ca.crt")];

fn dated_name(generation: u32) -> String {
    format!("..g{generation}")
}

fn dated(generation: u32, files: &[(Role, &str)]) -> Vec<Op> {
    let dir = format!("/m/{}", dated_name(generation));
    let mut ops = vec![mkdir(&dir)];
    ops.extend(files.iter().flat_map(|(role, name)| put(&format!("{dir}/{name}"), *role, generation)));
    ops
}

fn dated_removed(generation: u32, files: &[(Role, &str)]) -> Vec<Op> {
    let dir = format!("/m/{}", dated_name(generation));
    let mut ops: Vec<Op> = files.iter().map(|(_, name)| unlink(&format!("{dir}/{name}"))).collect();
    ops.push(rmdir(&dir));
    ops
}

fn swap_data(generation: u32) -> [Op; 2] {
    [symlink(&dated_name(generation), "/m/..data_tmp"), rename("/m/..data_tmp", "/m/..data")]
}

fn pair_at(dir: &str) -> Paths {
    Paths::new(format!("{dir}/c.crt"), format!("{dir}/c.key"))
}

fn pair_in(dir: &str, generation: u32) -> Vec<Op> {
    let mut ops = put(&format!("{dir}/c.crt"), Role::Cert, generation);
    ops.extend(put(&format!("{dir}/c.key"), Role::Key, generation));
    ops
}

fn recipe(name: &str, paths: Paths, start: Vec<Op>, ops: Vec<Op>, nature: Nature, last: u32) -> Recipe {
    Recipe { name: name.into(), paths, start, ops: ops.into(), nature, last }
}
