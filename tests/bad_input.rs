//! What is not a good pair is refused at start, in words that help, and changes nothing at run time.

#![expect(clippy::unwrap_used, reason = "test code outside of test functions")]

mod common;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use common::{Files, Pair, Pki, SOON, eventually, rename_over, serial, serves};
use rustls_reload::Reloader;

/// Makes one kind of bad input of good files, and says what the error has to convey.
struct Case {
    name: &'static str,
    spoil: fn(&Files, &Pair, &Pair),
    /// The file that the message has to begin with.
    culprit: Culprit,
    words: &'static [&'static str],
}

#[derive(Clone, Copy)]
enum Culprit {
    Cert,
    Key,
}

const CASES: &[Case] = &[
    Case {
        name: "missing certificate",
        spoil: |files, _, _| fs::remove_file(files.cert()).unwrap(),
        culprit: Culprit::Cert,
        words: &["not found", "no `c.crt` in"],
    },
    Case {
        name: "directory",
        spoil: |files, _, _| replace(&files.cert(), |path| fs::create_dir(path).unwrap()),
        culprit: Culprit::Cert,
        words: &["this is a directory", "expected a regular file"],
    },
    Case {
        name: "FIFO",
        spoil: |files, _, _| replace(&files.cert(), make_fifo),
        culprit: Culprit::Cert,
        words: &["this is a FIFO"],
    },
    Case {
        name: "/dev/zero",
        spoil: |files, _, _| replace(&files.key(), |path| symlink("/dev/zero", path).unwrap()),
        culprit: Culprit::Key,
        words: &["this is a device"],
    },
    Case {
        name: "one gigabyte",
        spoil: |files, _, _| {
            replace(&files.cert(), |path| fs::File::create(path).unwrap().set_len(1 << 30).unwrap());
        },
        culprit: Culprit::Cert,
        words: &["1073741824 bytes, more than the 1048576"],
    },
    Case {
        name: "link in a circle",
        spoil: |files, _, _| replace(&files.cert(), |path| symlink("c.crt", path).unwrap()),
        culprit: Culprit::Cert,
        words: &["symbolic links", "circle"],
    },
    Case {
        name: "empty file",
        spoil: |files, _, _| fs::write(files.cert(), "").unwrap(),
        culprit: Culprit::Cert,
        words: &["empty"],
    },
    Case {
        name: "truncated file",
        spoil: |files, good, _| fs::write(files.cert(), &good.chain[..300]).unwrap(),
        culprit: Culprit::Cert,
        words: &["line 1", "END"],
    },
    Case {
        name: "mismatched pair",
        spoil: |files, _, other| fs::write(files.key(), &other.key).unwrap(),
        culprit: Culprit::Key,
        words: &["c.crt", "does not"],
    },
    Case {
        name: "swapped paths",
        spoil: |files, good, _| {
            fs::write(files.cert(), &good.key).unwrap();
            fs::write(files.key(), &good.chain).unwrap();
        },
        culprit: Culprit::Cert,
        words: &["no certificate", "private key", "swapped"],
    },
];

#[test]
fn start_refuses_and_says_why() {
    let pki = Pki::new();
    let (good, other) = (pki.pair(1), pki.pair(2));
    for case in CASES {
        let files = Files::with(&good);
        (case.spoil)(&files, &good, &other);
        let error = Reloader::builder(files.paths()).start().expect_err(case.name).to_string();
        let path = match case.culprit {
            Culprit::Cert => files.cert(),
            Culprit::Key => files.key(),
        };
        assert!(error.starts_with(&format!("{}: ", path.display())), "{}: {error}", case.name);
        for word in case.words {
            assert!(error.contains(word), "{}: {word:?} is missing: {error}", case.name);
        }
    }
}

#[test]
fn running_server_keeps_its_pair_and_takes_the_next_good_write() {
    let pki = Pki::new();
    let (first, other, next) = (pki.pair(1), pki.pair(2), pki.pair(3));
    for case in CASES {
        let files = Files::with(&first);
        let reloader = Reloader::builder(files.paths()).start().unwrap();
        (case.spoil)(&files, &first, &other);
        eventually(SOON, case.name, || reloader.stats().failures == 1);
        assert_eq!(serial(&reloader), 1, "{}", case.name);
        for (path, text) in [(files.cert(), &next.chain), (files.key(), &next.key)] {
            if path.is_dir() {
                fs::remove_dir(&path).unwrap();
            }
            rename_over(&path, text);
        }
        serves(&reloader, 3);
        assert_eq!(reloader.stats().recoveries, 1, "{}", case.name);
    }
}

fn replace(path: &Path, put: impl FnOnce(&Path)) {
    fs::remove_file(path).unwrap();
    put(path);
}

fn make_fifo(path: &Path) {
    rustix::fs::mknodat(
        rustix::fs::CWD,
        path,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .unwrap();
}
