//! What the backend tells of, against the kernel, or the stand-in for it.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;

use tempfile::TempDir;

use super::*;

/// A directory with a file `c.crt` in it, and the queues.
struct Fixture {
    dir: TempDir,
    reader: Reader,
    armer: Armer,
}

#[test]
fn directory_tells_of_its_entries_and_not_of_their_bytes() {
    let mut fixture = Fixture::new();
    let dir = fixture.dir();
    fixture.armer.arm(&dir, Depth::Contents).unwrap();
    fs::write(fixture.cert(), "in place").unwrap();
    assert_eq!(fixture.told(), []);
    for _ in 0..3 {
        fixture.rename_over();
        assert_eq!(fixture.told(), [(dir.clone(), Touch::Entries)]);
    }
}

#[test]
fn directory_on_the_way_tells_only_of_itself() {
    let mut fixture = Fixture::new();
    let dir = fixture.dir();
    fixture.armer.arm(&dir, Depth::Itself).unwrap();
    fixture.rename_over();
    assert_eq!(fixture.told(), []);
    // The same descriptor, from now on deeper.
    fixture.armer.arm(&dir, Depth::Entries).unwrap();
    fixture.rename_over();
    assert_eq!(fixture.told(), [(dir.clone(), Touch::Entries)]);
    let away = fixture.dir.path().with_extension("away");
    fs::rename(fixture.dir.path(), &away).unwrap();
    assert_eq!(fixture.told(), [(dir.clone(), Touch::Entries)]);
    fs::remove_dir_all(away).unwrap();
    assert_eq!(fixture.told().last(), Some(&(dir, Touch::Entries)), "gone");
}

#[test]
fn file_tells_of_each_write_in_place() {
    let mut fixture = Fixture::new();
    let cert = fixture.file();
    fixture.armer.arm(&cert, Depth::Contents).unwrap();
    for text in ["longer than before", "short", "short"] {
        fs::write(fixture.cert(), text).unwrap();
        let told = fixture.told();
        assert!(
            !told.is_empty() && told.iter().all(|told| *told == (cert.clone(), Touch::Contents)),
            "{told:?}"
        );
    }
}

#[test]
fn file_that_is_renamed_over_is_let_go_and_its_successor_is_watched_in_its_turn() {
    let mut fixture = Fixture::new();
    for round in 0..3 {
        let cert = fixture.file();
        fixture.armer.arm(&cert, Depth::Contents).unwrap();
        fixture.rename_over();
        assert_eq!(fixture.told(), [(cert, Touch::Entries)], "round {round}");
        assert!(fixture.armer.by_token.is_empty(), "round {round}: nothing stays open");
    }
}

#[test]
fn what_took_the_place_of_what_was_found_is_not_watched() {
    let mut fixture = Fixture::new();
    let cert = fixture.file();
    let refused = |fixture: &mut Fixture| {
        let error = fixture.armer.arm(&cert, Depth::Contents).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(fixture.armer.by_watched.is_empty());
    };
    let path = fixture.cert();
    // Held, so that no other file gets its inode.
    let _old = File::open(&path).unwrap();
    fixture.rename_over();
    refused(&mut fixture);
    fs::remove_file(&path).unwrap();
    refused(&mut fixture);
    fs::create_dir(&path).unwrap();
    refused(&mut fixture);
    fs::remove_dir(&path).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", &path).unwrap();
    refused(&mut fixture);
}

#[test]
fn what_is_released_is_silent_and_its_number_is_not_used_again() {
    let mut fixture = Fixture::new();
    let cert = fixture.file();
    fixture.armer.arm(&cert, Depth::Contents).unwrap();
    let token = fixture.armer.by_watched.get(&cert).copied().unwrap();
    fs::write(fixture.cert(), "unread").unwrap();
    fixture.armer.release(&cert);
    fixture.armer.arm(&cert, Depth::Contents).unwrap();
    assert_eq!(fixture.told(), []);
    assert_ne!(fixture.armer.by_watched.get(&cert), Some(&token));
}

#[test]
fn what_cannot_be_watched_spoils_nothing_that_comes_later() {
    let mut fixture = Fixture::new();
    let cert = fixture.file();
    let (pipe, _other_end) = rustix::pipe::pipe().unwrap();
    assert!(fixture.armer.queue.lock().add(&pipe, Kind::File, WRITES).is_err());
    fixture.armer.arm(&cert, Depth::Contents).unwrap();
}

#[test]
fn waiting_ends_by_an_event_as_well_as_by_the_pipe() {
    let mut fixture = Fixture::new();
    let (wake, mut end) = sys::wake_pipe().unwrap();
    let (cert, path) = (fixture.file(), fixture.cert());
    let (tell, told) = crossbeam_channel::unbounded();
    let mut reader = fixture.reader;
    let waiting = std::thread::Builder::new().spawn(move || {
        while !reader.wait(&wake).unwrap() {
            reader.read().unwrap().into_iter().for_each(|notice| tell.send(notice).unwrap());
        }
    });
    for text in ["armed while the other thread waits", "and again", "and again"] {
        fixture.armer.arm(&cert, Depth::Contents).unwrap();
        fs::write(&path, text).unwrap();
        let notice = told.recv_timeout(Duration::from_secs(5)).unwrap();
        assert!(matches!(notice, Notice::Changed { touch: Touch::Contents, .. }), "{notice:?}");
    }
    end.write_all(b"!").unwrap();
    waiting.unwrap().join().unwrap();
}

#[test]
fn more_events_than_one_read_takes_are_all_told() {
    let mut fixture = Fixture::new();
    let files: Vec<_> = (0..300).map(|number| fixture.dir.path().join(format!("{number}"))).collect();
    for path in &files {
        fs::write(path, "").unwrap();
        fixture.armer.arm(&watched(path, Kind::File), Depth::Contents).unwrap();
    }
    for path in &files {
        fs::write(path, "in place").unwrap();
    }
    let mut told: Vec<_> = fixture.told().into_iter().map(|(watched, _)| watched.path).collect();
    told.sort();
    told.dedup();
    assert_eq!(told.len(), files.len());
}

impl Fixture {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("c.crt"), "first").unwrap();
        let (reader, armer) = open().unwrap();
        Self { dir, reader, armer }
    }

    fn cert(&self) -> std::path::PathBuf {
        self.dir.path().join("c.crt")
    }

    fn dir(&self) -> Watched {
        watched(self.dir.path(), Kind::Directory)
    }

    fn file(&self) -> Watched {
        watched(&self.cert(), Kind::File)
    }

    fn rename_over(&self) {
        let new = self.dir.path().join("new");
        fs::write(&new, "new").unwrap();
        fs::rename(new, self.cert()).unwrap();
    }

    /// What was told since the last time, as the watcher thread takes it; the same thing once in a row.
    fn told(&mut self) -> Vec<(Watched, Touch)> {
        let mut told = Vec::new();
        loop {
            for notice in self.reader.read().unwrap() {
                match notice {
                    Notice::Changed { token, touch, .. } => {
                        told.extend(self.armer.watched(token).map(|watched| (watched.clone(), touch)));
                    }
                    Notice::Gone { token } => {
                        told.extend(
                            self.armer.gone(token).into_iter().map(|watched| (watched, Touch::Entries)),
                        );
                    }
                    Notice::Lost => unreachable!("a kqueue loses nothing"),
                }
            }
            if !self.reader.more {
                told.dedup();
                return told;
            }
        }
    }
}

fn watched(path: &Path, kind: Kind) -> Watched {
    let inode = OsDisk.stat(path).unwrap().identity.inode;
    Watched { kind, path: path.into(), inode }
}
