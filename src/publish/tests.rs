//! What a reader may see while a publish runs, and after one that was cut off at any step.
#![expect(clippy::disallowed_methods, reason = "small files that the test itself wrote")]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::time::{Duration, SystemTime};

use super::*;

type Files<'a> = &'a [(&'a str, &'a [u8])];

const FIRST: Files<'_> = &[("tls.crt", b"chain 1"), ("tls.key", b"key 1"), ("ca.crt", b"ca 1")];
const SECOND: Files<'_> = &[("tls.crt", b"chain 2"), ("tls.key", b"key 2"), ("ocsp.der", b"staple")];

#[test]
fn layout_is_the_kubelets() {
    let tmp = tempfile::tempdir().unwrap();
    let secret = SecretDir::open(tmp.path().join("m")).unwrap();
    let now = SystemTime::UNIX_EPOCH + Duration::new(1_709_210_096, 7);
    secret.publish_at(FIRST, now, &mut |_| Ok(())).unwrap();

    let link = |name: &str| fs::read_link(secret.path().join(name)).unwrap();
    assert_eq!(link("..data"), Path::new("..2024_02_29_12_34_56.000000007"));
    for (name, _) in FIRST {
        assert_eq!(link(name), Path::new("..data").join(name));
    }
    assert_eq!(
        listing(secret.path()),
        ["..2024_02_29_12_34_56.000000007", "..data", "ca.crt", "tls.crt", "tls.key"]
    );
    assert_eq!(mode(&secret.path().join("..data/")), 0o755);
    assert_eq!(mode(&secret.path().join("tls.key")), 0o600);
    assert_eq!(seen(secret.path()), set(FIRST));
}

#[test]
fn names_that_went_away_take_their_links_and_the_old_directory_along() {
    let tmp = tempfile::tempdir().unwrap();
    fs::write(tmp.path().join("notes.txt"), "by hand").unwrap();
    let secret = SecretDir::open(tmp.path()).unwrap();
    secret.publish(FIRST).unwrap();
    let old = fs::read_link(tmp.path().join("..data")).unwrap();
    secret.publish(SECOND).unwrap();
    let new = fs::read_link(tmp.path().join("..data")).unwrap();
    assert_ne!(old, new);
    let new = new.to_str().unwrap();
    assert_eq!(listing(tmp.path()), [new, "..data", "notes.txt", "ocsp.der", "tls.crt", "tls.key"]);
}

/// The property: whatever the step, a reader that follows the links finds the old set or the new one, and
/// the next publish leaves nothing of the crashed one.
#[test]
fn crash_after_any_step_shows_a_whole_set() {
    for (before, next) in [(None, FIRST), (Some(FIRST), SECOND), (Some(SECOND), &[][..])] {
        let old = before.map_or_else(BTreeMap::new, set);
        let mut crashes = 0;
        loop {
            let tmp = tempfile::tempdir().unwrap();
            let secret = SecretDir::open(tmp.path()).unwrap();
            if let Some(before) = before {
                secret.publish(before).unwrap();
            }
            let mut step = 0;
            let mut swapped = false;
            let outcome = secret.publish_at(next, SystemTime::now(), &mut |doing| {
                swapped |= doing == "swap the link";
                let expected = if swapped { set(next) } else { old.clone() };
                assert_eq!(seen(tmp.path()), expected, "after step {step}: {doing}");
                step += 1;
                if step > crashes { Err(crash()) } else { Ok(()) }
            });
            if outcome.is_ok() {
                break;
            }
            crashes += 1;

            // The machine comes back and the writer tries again, with the same files or with others.
            let again = if crashes % 2 == 0 { next } else { FIRST };
            secret.publish(again).unwrap();
            assert_eq!(seen(tmp.path()), set(again));
            assert_eq!(listing(tmp.path()).len(), again.len() + 2, "leftovers after step {step}");
        }
        assert!(crashes >= 8, "only {crashes} steps");
    }
}

/// The first version opened `..data_tmp` like a directory and emptied the set it led to.
#[test]
fn leftover_links_are_removed_without_a_look_at_what_they_lead_to() {
    let tmp = tempfile::tempdir().unwrap();
    let secret = SecretDir::open(tmp.path()).unwrap();
    secret.publish(FIRST).unwrap();
    let live = fs::read_link(tmp.path().join("..data")).unwrap();
    symlink(&live, tmp.path().join("..data_tmp")).unwrap();
    symlink(&live, tmp.path().join("..2001_01_01_01_01_01.1")).unwrap();
    assert_eq!(secret.publish(FIRST).unwrap(), Published::Unchanged);
    assert_eq!(seen(tmp.path()), set(FIRST));
    assert_eq!(listing(tmp.path()).len(), FIRST.len() + 2);
}

/// A crash of the machine loses what was not synced, in any order; so the order of the syncs is the proof.
#[test]
fn everything_is_on_disk_before_what_depends_on_it() {
    let tmp = tempfile::tempdir().unwrap();
    let secret = SecretDir::open(tmp.path()).unwrap();
    secret.publish(&[("tls.crt", b"old")]).unwrap();
    let mut steps = Vec::new();
    let record = &mut |doing| {
        steps.push(doing);
        Ok(())
    };
    secret.publish_at(&[("tls.crt", b"new")], SystemTime::now(), record).unwrap();
    assert_eq!(
        steps,
        [
            "make a new dated directory",
            "set the mode of the new directory",
            "create the file",
            "write the file",
            "set the mode of the file",
            "sync the file",
            "sync the new directory",
            "make the link",
            "make the link",
            "sync the directory",
            "swap the link",
            "sync the directory",
            "sync the directory",
            "remove the old file",
            "remove the old directory",
        ]
    );
}

#[test]
fn leftovers_go_only_after_the_rename_is_on_disk() {
    let tmp = tempfile::tempdir().unwrap();
    let secret = SecretDir::open(tmp.path()).unwrap();
    secret.publish(FIRST).unwrap();
    let cut_off = secret.publish_at(SECOND, SystemTime::now(), &mut |doing| {
        if doing == "swap the link" { Err(crash()) } else { Ok(()) }
    });
    assert!(cut_off.is_err());

    let mut steps = Vec::new();
    let record = &mut |doing| {
        steps.push(doing);
        Ok(())
    };
    let done = secret.publish_at(SECOND, SystemTime::now(), record).unwrap();
    assert_eq!(done, Published::Unchanged);
    assert_eq!(steps.first(), Some(&"sync the directory"));
    assert!(steps.contains(&"remove the old directory"), "{steps:?}");
    assert!(!tmp.path().join("ca.crt").is_symlink(), "the link that went away");
}

#[test]
fn same_files_move_nothing_but_another_mode_or_byte_does() {
    let tmp = tempfile::tempdir().unwrap();
    let secret = SecretDir::open(tmp.path()).unwrap();
    secret.publish(FIRST).unwrap();
    let link = fs::read_link(tmp.path().join("..data")).unwrap();
    assert_eq!(secret.publish(FIRST).unwrap(), Published::Unchanged);
    assert_eq!(fs::read_link(tmp.path().join("..data")).unwrap(), link);

    let fewer = &FIRST[..2];
    assert!(secret.publish(fewer).unwrap().swapped_at().is_some());
    let same_length: Files<'_> = &[("tls.crt", b"chain 1"), ("tls.key", b"key 9")];
    assert!(secret.publish(same_length).unwrap().swapped_at().is_some());
    let secret = secret.with_mode(0o640);
    assert!(secret.publish(same_length).unwrap().swapped_at().is_some());
    assert_eq!(mode(&tmp.path().join("tls.key")), 0o640);
}

#[test]
fn names_of_the_writer_and_of_other_directories_are_refused() {
    let tmp = tempfile::tempdir().unwrap();
    let secret = SecretDir::open(tmp.path()).unwrap();
    for name in ["", ".", "..", "..data", "..x", "a/b", "/etc/passwd", "a\0b"] {
        let error = secret.publish(&[(name, b"x")]).unwrap_err();
        assert!(matches!(error, PublishError::Name { .. }), "{name:?}: {error}");
    }
    let error = secret.publish(&[("a", b"1"), ("b", b"2"), ("a", b"3")]).unwrap_err();
    assert!(matches!(error, PublishError::Name { .. }), "{error}");
    assert!(listing(tmp.path()).is_empty());
}

#[test]
fn what_others_put_there_is_not_replaced() {
    let tmp = tempfile::tempdir().unwrap();
    let secret = SecretDir::open(tmp.path()).unwrap();
    let refused = |what: &str| {
        let error = secret.publish(FIRST).unwrap_err();
        assert!(matches!(error, PublishError::Occupied { .. }), "{what}: {error}");
        assert!(error.to_string().starts_with(tmp.path().to_str().unwrap()), "{error}");
    };
    fs::write(tmp.path().join("tls.key"), "by hand").unwrap();
    refused("a file");
    fs::remove_file(tmp.path().join("tls.key")).unwrap();
    symlink("elsewhere", tmp.path().join("tls.key")).unwrap();
    refused("another link");
    fs::remove_file(tmp.path().join("tls.key")).unwrap();
    fs::create_dir(tmp.path().join("..data")).unwrap();
    refused("a directory in place of ..data");
    assert_eq!(listing(tmp.path()), ["..data"]);
}

#[test]
fn second_writer_is_refused_while_one_is_at_work() {
    let tmp = tempfile::tempdir().unwrap();
    let secret = SecretDir::open(tmp.path()).unwrap();
    let other = SecretDir::open(tmp.path()).unwrap();
    let mut refused = 0;
    let meanwhile = &mut |_| {
        for writer in [&secret, &other] {
            refused += u32::from(matches!(writer.publish(SECOND), Err(PublishError::Busy { .. })));
        }
        Ok(())
    };
    secret.publish_at(&[], SystemTime::now(), meanwhile).unwrap();
    assert!(refused >= 8, "{refused}");
    other.publish(SECOND).unwrap();
}

#[test]
fn failure_after_the_swap_says_that_the_new_files_are_in_place() {
    let tmp = tempfile::tempdir().unwrap();
    let secret = SecretDir::open(tmp.path()).unwrap();
    secret.publish(FIRST).unwrap();
    let mut swapped = false;
    let error = secret
        .publish_at(SECOND, SystemTime::now(), &mut |doing| {
            if swapped {
                return Err(crash());
            }
            swapped = doing == "swap the link";
            Ok(())
        })
        .unwrap_err();
    assert!(matches!(error, PublishError::Unsettled { .. }), "{error}");
    assert_eq!(seen(tmp.path()), set(SECOND));
}

#[test]
fn taken_dated_name_is_passed_over() {
    let tmp = tempfile::tempdir().unwrap();
    let secret = SecretDir::open(tmp.path()).unwrap();
    let frozen = SystemTime::UNIX_EPOCH;
    for (files, name) in
        [(FIRST, "..1970_01_01_00_00_00.000000000"), (SECOND, "..1970_01_01_00_00_00.000000001")]
    {
        secret.publish_at(files, frozen, &mut |_| Ok(())).unwrap();
        assert_eq!(fs::read_link(tmp.path().join("..data")).unwrap(), Path::new(name));
    }
}

#[test]
fn missing_directory_is_created_and_a_file_in_its_place_is_an_error() {
    let tmp = tempfile::tempdir().unwrap();
    SecretDir::open(tmp.path().join("new")).unwrap().publish(FIRST).unwrap();
    SecretDir::open(tmp.path().join("new")).unwrap().publish(FIRST).unwrap();
    fs::write(tmp.path().join("file"), "").unwrap();
    for name in ["file", "no/parent"] {
        let error = SecretDir::open(tmp.path().join(name)).unwrap_err();
        assert!(matches!(error, PublishError::Io { .. }), "{error}");
    }
}

/// What a reader finds that opens every name by its path.
fn seen(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    listing(dir)
        .into_iter()
        .filter(|name| !name.starts_with(".."))
        .filter_map(|name| Some((name.clone(), fs::read(dir.join(name)).ok()?)))
        .collect()
}

fn set(files: Files<'_>) -> BTreeMap<String, Vec<u8>> {
    files.iter().map(|(name, bytes)| ((*name).to_owned(), bytes.to_vec())).collect()
}

fn listing(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

fn crash() -> PublishError {
    PublishError::io(Path::new("test"), "go on", io::Error::other("crash"))
}
