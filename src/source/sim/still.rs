//! A disk that stands still is read as it is, whatever is on it: never "kept changing".

use proptest::collection::vec;
use proptest::prelude::*;

use super::state::State;
use super::{FileSystem, Op, Reuse, SimDisk};
use crate::paths::Paths;
use crate::source::{FileKind, read};

const NAMES: [&str; 3] = ["a", "b", "c"];

fn path() -> impl Strategy<Value = String> {
    vec(prop::sample::select(&NAMES[..]), 1..4).prop_map(|names| format!("/{}", names.join("/")))
}

/// Only leading `..`: a directory that is passed as `dir/..` and forbids it is not noticed by the walk.
fn link_text() -> impl Strategy<Value = String> {
    let name = prop::sample::select(&["a", "b", "c", "."][..]);
    (prop::sample::select(&["", "/", "..", "../..", "../../"][..]), vec(name, 0..4)).prop_map(
        |(start, names)| {
            let rest = names.join("/");
            match start {
                "" if rest.is_empty() => ".".to_owned(),
                ".." | "../.." if !rest.is_empty() => format!("{start}/{rest}"),
                start => format!("{start}{rest}"),
            }
        },
    )
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => path().prop_map(Op::Mkdir),
        4 => path().prop_map(|path| Op::Append(path, b"pem".to_vec())),
        4 => path().prop_map(Op::Open),
        4 => (link_text(), path()).prop_map(|(text, path)| Op::Symlink { text, path }),
        1 => path().prop_map(|path| Op::Mknod(path, FileKind::Fifo)),
        1 => (path(), prop::sample::select(&[0, 0o600, 0o711][..])).prop_map(|(path, mode)| Op::Chmod(path, mode)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn any_still_disk_is_read_as_it_is(ops in vec(op(), 1..16), cert in path(), key in path(), ca in path()) {
        let mut fs = FileSystem::new(Reuse::Never);
        for op in &ops {
            let _not_every_call_is_possible = op.apply(&mut fs);
        }
        let paths = Paths::new(cert, key).with_ca(ca);
        let state = State::of(&fs, &paths);
        let answer = read(&SimDisk::new(fs, Vec::new()), &paths).map_err(|(_, error)| error);
        let error = answer.as_ref().err().map(ToString::to_string);
        prop_assert!(state.agrees_with(&answer), "{state:?} but {error:?}");
    }
}
