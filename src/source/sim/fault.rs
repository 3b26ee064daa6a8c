//! Errors of the disk at every call of a read, and a writer that never rests.
//!
//! The read answers with the right content or with an error that names a configured path; it never panics,
//! and never makes more calls than its attempts allow.

use std::path::Path;

use rustix::io::Errno;

use super::recipe::{self, Clock};
use super::state::{State, content};
use super::{Op, Reuse, SimDisk, Switch};
use crate::paths::{Paths, Role};
use crate::source::{ReadError, Snapshot, read};

const ERRORS: [Errno; 6] = [Errno::NOENT, Errno::ACCESS, Errno::IO, Errno::STALE, Errno::LOOP, Errno::NOTDIR];

/// A read of an undisturbed mount of three files makes fewer calls than this.
const CALLS: usize = 60;

fn mount() -> SimDisk {
    let recipe = recipe::named("kubelet, old directory kept");
    SimDisk::new(recipe.disk(Clock::Fine, Reuse::AtOnce), recipe.ops)
}

fn read_secret(disk: &SimDisk) -> Result<Snapshot, ReadError> {
    read(disk, &Paths::secret("/m")).map_err(|(_, error)| error)
}

/// The number of calls of an undisturbed read.
fn undisturbed() -> usize {
    let disk = mount();
    read_secret(&disk).unwrap();
    disk.calls()
}

#[test]
fn any_error_at_any_call_is_answered_with_the_truth_or_with_a_path() {
    let state = mount().with_fs(|fs| State::of(fs, &Paths::secret("/m")));
    for errno in ERRORS {
        for call in 0..undisturbed() {
            let disk = mount().with_fault(call, errno);
            let answer = read_secret(&disk);
            match &answer {
                Ok(_) => assert!(state.agrees_with(&answer), "{errno:?} at call {call}"),
                Err(error) => assert!(error.path().starts_with("/m"), "{errno:?} at call {call}: {error}"),
            }
            assert!(disk.calls() <= 2 * CALLS, "{errno:?} at call {call}: {} calls", disk.calls());
        }
    }
}

#[test]
fn any_error_at_any_call_on_a_directory_of_crls_is_answered_with_the_truth_or_with_a_path() {
    let recipe = recipe::named("kubelet, directory of CRLs in the mount");
    let disk = || SimDisk::new(recipe.disk(Clock::Fine, Reuse::AtOnce), recipe.ops.clone());
    let read = |disk: &SimDisk| read(disk, &recipe.paths).map_err(|(_, error)| error);
    let state = disk().with_fs(|fs| State::of(fs, &recipe.paths));
    let undisturbed = disk();
    read(&undisturbed).unwrap();
    for errno in ERRORS {
        for call in 0..undisturbed.calls() {
            let disk = disk().with_fault(call, errno);
            let answer = read(&disk);
            match &answer {
                Ok(_) => assert!(state.agrees_with(&answer), "{errno:?} at call {call}"),
                Err(error) => assert!(error.path().starts_with("/m"), "{errno:?} at call {call}: {error}"),
            }
        }
    }
}

#[test]
fn error_that_stays_is_an_error_within_the_attempts() {
    for errno in ERRORS {
        for from in 0..undisturbed() {
            let disk = (from..8 * CALLS).fold(mount(), |disk, call| disk.with_fault(call, errno));
            let answer = read_secret(&disk);
            assert!(answer.is_err(), "{errno:?} from call {from}");
            assert!(disk.calls() <= 8 * CALLS, "{errno:?} from call {from}: {} calls", disk.calls());
        }
    }
}

#[test]
fn optional_ca_that_cannot_be_read_is_never_taken_for_absent() {
    for errno in [Errno::ACCESS, Errno::IO, Errno::STALE, Errno::LOOP] {
        for call in 0..undisturbed() {
            let disk = mount().with_fault(call, errno);
            if let Ok(snapshot) = read_secret(&disk) {
                let ca = snapshot.bytes(Role::Ca);
                assert_eq!(ca, Some(&*content(Role::Ca, 1)), "{errno:?} at call {call}");
            }
        }
    }
}

#[test]
fn forbidden_ca_names_its_path() {
    let disk = mount();
    disk.with_fs(|fs| Op::Chmod("/m/..g1/ca.crt".into(), 0).apply(fs)).unwrap();
    let error = read_secret(&disk).err().unwrap();
    assert!(matches!(error, ReadError::Denied { mode: Some(0), .. }), "{error:?}");
    assert_eq!(error.path(), Path::new("/m/ca.crt"));
}

#[test]
fn ca_in_a_forbidden_directory_is_denied_and_not_absent() {
    let disk = mount();
    let text = "/private/ca.crt".to_owned();
    let ops = [
        Op::Mkdir("/private".into()),
        Op::Open(text.clone()),
        Op::Unlink("/m/ca.crt".into()),
        Op::Symlink { text, path: "/m/ca.crt".into() },
        Op::Chmod("/private".into(), 0o600),
    ];
    disk.with_fs(|fs| ops.iter().try_for_each(|op| op.apply(fs))).unwrap();
    let error = read_secret(&disk).err().unwrap();
    assert!(matches!(error, ReadError::Denied { .. }), "{error:?}");
    assert_eq!(error.path(), Path::new("/m/ca.crt"));
}

#[test]
fn required_file_that_vanishes_is_not_found_or_read_before() {
    let gone = Op::Unlink("/m/..g1/tls.key".into());
    for before_call in 0..undisturbed() {
        let start = recipe::named("kubelet, old directory kept").disk(Clock::Fine, Reuse::AtOnce);
        let switch = Switch { before_call, ops: 1 };
        let disk = SimDisk::new(start, vec![gone.clone()]).with_switches(&[switch]);
        match read_secret(&disk) {
            Ok(snapshot) => assert_eq!(snapshot.bytes(Role::Key), Some(&*content(Role::Key, 1))),
            Err(error) => {
                assert!(matches!(error, ReadError::NotFound { .. }), "at call {before_call}: {error:?}");
                assert_eq!(error.path(), Path::new("/m/tls.key"));
            }
        }
    }
}

#[test]
fn writer_that_never_rests_ends_the_read_with_unsettled() {
    let rewrite = || Op::WriteAt("/m/..g1/tls.crt".into(), 0, b"x".to_vec());
    let start = recipe::named("kubelet, old directory kept").disk(Clock::Fine, Reuse::AtOnce);
    let restless: Vec<_> = (0..8 * CALLS).map(|before_call| Switch { before_call, ops: 1 }).collect();
    let writer: Vec<_> = restless.iter().map(|_| rewrite()).collect();
    let disk = SimDisk::new(start, writer).with_switches(&restless);
    let error = read_secret(&disk).err().unwrap();
    assert!(matches!(error, ReadError::Unsettled { attempts: 8, .. }), "{error:?}");
    assert!(disk.calls() <= 8 * CALLS, "{} calls", disk.calls());
}
