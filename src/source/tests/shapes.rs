//! Whatever stands at the end of a path: the read does not wait for it, does not read it without end, and
//! says what it is.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::{mount_secret, read_here};
use crate::paths::{Paths, Role};
use crate::source::{FileKind, ReadError};

/// A directory with a good key; the certificate is what the test makes of it.
struct Pair {
    dir: TempDir,
    cert: PathBuf,
    key: PathBuf,
}

impl Pair {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (cert, key) = (dir.path().join("c.crt"), dir.path().join("c.key"));
        fs::write(&key, "key").unwrap();
        Self { dir, cert, key }
    }

    fn paths(&self) -> Paths {
        Paths::new(&self.cert, &self.key)
    }

    fn error(&self) -> ReadError {
        let error = read_here(&self.paths()).err().unwrap();
        assert_eq!(error.path(), self.cert);
        error
    }

    fn kind(&self) -> FileKind {
        match self.error() {
            ReadError::NotAFile { kind, .. } => kind,
            error => panic!("{error:?}"),
        }
    }
}

#[test]
fn fifo_is_refused_without_waiting_for_its_writer() {
    let pair = Pair::new();
    let made = std::process::Command::new("mkfifo").arg(&pair.cert).status().unwrap();
    assert!(made.success());
    assert_eq!(pair.kind(), FileKind::Fifo);
}

#[test]
fn socket_is_refused() {
    let pair = Pair::new();
    let _listener = UnixListener::bind(&pair.cert).unwrap();
    assert_eq!(pair.kind(), FileKind::Socket);
}

#[test]
fn directory_is_refused() {
    let pair = Pair::new();
    fs::create_dir(&pair.cert).unwrap();
    assert_eq!(pair.kind(), FileKind::Directory);
}

#[test]
fn endless_device_behind_a_link_is_refused() {
    let pair = Pair::new();
    symlink("/dev/zero", &pair.cert).unwrap();
    assert_eq!(pair.kind(), FileKind::Device);
}

#[test]
fn sparse_gibibyte_is_refused_unread() {
    let pair = Pair::new();
    fs::File::create(&pair.cert).unwrap().set_len(1 << 30).unwrap();
    assert!(matches!(pair.error(), ReadError::TooLarge { size: 0x4000_0000, cap: 0x10_0000, .. }));
}

#[test]
fn caps_are_one_mebibyte_and_for_trust_sixteen() {
    let pair = Pair::new();
    let ca = pair.dir.path().join("ca.crt");
    let sized = |path: &Path, size| fs::File::create(path).unwrap().set_len(size).unwrap();
    sized(&pair.cert, 1 << 20);
    sized(&ca, 16 << 20);
    let snapshot = read_here(&pair.paths().with_ca(&ca)).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(snapshot.bytes(Role::Ca).map(<[u8]>::len), Some(16 << 20));
    sized(&ca, (16 << 20) + 1);
    let error = read_here(&pair.paths().with_ca(&ca)).err();
    assert!(matches!(error, Some(ReadError::TooLarge { .. })), "{error:?}");
}

/// What it means that a file is empty is said by the parser.
#[test]
fn empty_file_is_read_as_empty() {
    let pair = Pair::new();
    fs::write(&pair.cert, "").unwrap();
    let snapshot = read_here(&pair.paths()).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(snapshot.bytes(Role::Cert), Some(&b""[..]));
    assert_eq!(snapshot.bytes(Role::Key), Some(&b"key"[..]));
}

#[test]
fn links_in_a_circle_are_a_link_loop() {
    let pair = Pair::new();
    symlink("c.crt", pair.dir.path().join("other")).unwrap();
    symlink("other", &pair.cert).unwrap();
    assert!(matches!(pair.error(), ReadError::LinkLoop { .. }), "{:?}", pair.error());
}

/// `path_resolution(7)`: 40 links are followed.
#[test]
fn as_many_links_are_followed_as_the_kernel_follows() {
    let pair = Pair::new();
    fs::write(pair.dir.path().join("0"), "cert").unwrap();
    for number in 1..=40 {
        symlink((number - 1).to_string(), pair.dir.path().join(number.to_string())).unwrap();
    }
    symlink("39", &pair.cert).unwrap();
    assert!(read_here(&pair.paths()).is_ok());
    fs::remove_file(&pair.cert).unwrap();
    symlink("40", &pair.cert).unwrap();
    assert!(matches!(pair.error(), ReadError::LinkLoop { .. }), "{:?}", pair.error());
}

#[test]
fn dangling_link_names_the_directory_and_what_is_missing_there() {
    let pair = Pair::new();
    fs::create_dir(pair.dir.path().join("archive")).unwrap();
    symlink("archive/fullchain7.pem", &pair.cert).unwrap();
    let archive = pair.dir.path().canonicalize().unwrap().join("archive");
    match pair.error() {
        ReadError::NotFound { dir, missing, .. } => {
            assert_eq!((dir, missing), (archive, "fullchain7.pem".into()))
        }
        error => panic!("{error:?}"),
    }
}

#[test]
fn path_through_a_file_is_not_found() {
    let pair = Pair::new();
    let paths = Paths::new(pair.key.join("tls.crt"), &pair.key);
    let error = read_here(&paths).err();
    assert!(matches!(error, Some(ReadError::NotFound { .. })), "{error:?}");
}

#[test]
fn file_of_another_user_is_denied_with_its_mode() {
    if rustix::process::geteuid().is_root() {
        println!("skipped: root is denied nothing");
        return;
    }
    let pair = Pair::new();
    fs::write(&pair.cert, "cert").unwrap();
    fs::set_permissions(&pair.cert, fs::Permissions::from_mode(0o040)).unwrap();
    assert!(matches!(pair.error(), ReadError::Denied { mode: Some(0o040), .. }), "{:?}", pair.error());
}

#[test]
fn dots_in_paths_and_in_links_lead_where_the_kernel_goes() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    for name in ["live", "live/x", "archive", "archive/x"] {
        fs::create_dir(at(name)).unwrap();
    }
    fs::write(at("archive/x/fullchain1.pem"), "cert").unwrap();
    fs::write(at("archive/x/privkey1.pem"), "key").unwrap();
    symlink("../../archive/x/fullchain1.pem", at("live/x/fullchain.pem")).unwrap();
    symlink("./.././../archive/./x/../x/privkey1.pem", at("live/x/privkey.pem")).unwrap();
    let snapshot =
        read_here(&Paths::certbot(at("archive/../live/./x"))).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(snapshot.bytes(Role::Cert), Some(&b"cert"[..]));
    assert_eq!(snapshot.bytes(Role::Key), Some(&b"key"[..]));
}

#[test]
fn one_file_under_two_names_is_the_same_file() {
    let pair = Pair::new();
    let same_file = || {
        let snapshot = read_here(&pair.paths()).unwrap_or_else(|error| panic!("{error}"));
        snapshot.same_file(Role::Cert, Role::Key)
    };
    fs::hard_link(&pair.key, &pair.cert).unwrap();
    assert!(same_file());
    fs::remove_file(&pair.cert).unwrap();
    symlink("c.key", &pair.cert).unwrap();
    assert!(same_file());
    fs::remove_file(&pair.cert).unwrap();
    fs::copy(&pair.key, &pair.cert).unwrap();
    assert!(!same_file());
}

#[test]
fn ca_of_a_mount_may_be_missing_but_not_be_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    mount_secret(dir.path());
    let paths = Paths::secret(dir.path());
    let ca = dir.path().join("..data/ca.crt");
    fs::remove_file(&ca).unwrap();
    let snapshot = read_here(&paths).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(snapshot.bytes(Role::Ca), None);
    let required = read_here(&paths.clone().require_ca()).err();
    assert!(matches!(required, Some(ReadError::NotFound { .. })), "{required:?}");
    fs::create_dir(&ca).unwrap();
    assert!(matches!(read_here(&paths).err(), Some(ReadError::NotAFile { .. })));
}

/// A directory of CRLs beside a good pair.
struct Crls {
    pair: Pair,
    dir: PathBuf,
}

impl Crls {
    fn new() -> Self {
        let pair = Pair::new();
        fs::write(&pair.cert, "cert").unwrap();
        let dir = pair.dir.path().join("crls");
        fs::create_dir(&dir).unwrap();
        Self { pair, dir }
    }

    fn put(&self, name: &str) -> PathBuf {
        let path = self.dir.join(name);
        fs::write(&path, name).unwrap();
        path
    }

    fn read(&self) -> Result<Vec<(PathBuf, String)>, ReadError> {
        let snapshot = read_here(&self.pair.paths().with_crl(&self.dir))?;
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        Ok(snapshot.all(Role::Crl).map(|(path, bytes)| (path.to_owned(), text(bytes))).collect())
    }
}

#[test]
fn every_visible_file_of_a_directory_is_read_in_order() {
    let crls = Crls::new();
    for name in ["b.crl", "a.crl", ".hidden", "..data_tmp", "c~"] {
        crls.put(name);
    }
    fs::create_dir(crls.dir.join("lost+found")).unwrap();
    symlink("../c.crt", crls.dir.join("link")).unwrap();
    symlink("lost+found", crls.dir.join("link-to-directory")).unwrap();
    let read = crls.read().unwrap();
    let expected = [("a.crl", "a.crl"), ("b.crl", "b.crl"), ("c~", "c~"), ("link", "cert")];
    let expected = expected.map(|(name, text)| (crls.dir.join(name), text.to_owned()));
    assert_eq!(read, expected);
}

#[test]
fn directory_of_a_mount_is_followed_through_its_links() {
    let crls = Crls::new();
    mount_secret(&crls.dir);
    let names: Vec<_> = crls.read().unwrap().into_iter().map(|(_, text)| text).collect();
    assert_eq!(names, ["ca.crt", "tls.crt", "tls.key"]);
    let paths = crls.pair.paths().with_crl(crls.dir.join("..data"));
    assert_eq!(read_here(&paths).unwrap().all(Role::Crl).count(), 3);
}

#[test]
fn bad_entry_of_a_directory_is_named() {
    let crls = Crls::new();
    let error = || crls.read().unwrap_err();
    assert_eq!(error(), ReadError::NoFiles { path: crls.dir.clone() });
    fs::create_dir(crls.dir.join("sub")).unwrap();
    crls.put(".hidden");
    assert_eq!(error(), ReadError::NoFiles { path: crls.dir.clone() });
    crls.put("a");
    let dangling = crls.dir.join("dangling");
    symlink("nowhere", &dangling).unwrap();
    assert!(matches!(error(), ReadError::NotFound { .. }));
    assert_eq!(error().path(), dangling);
    fs::remove_file(&dangling).unwrap();
    let socket = crls.dir.join("socket");
    let _listener = UnixListener::bind(&socket).unwrap();
    assert_eq!(error(), ReadError::NotAFile { path: socket, kind: FileKind::Socket });
}

#[test]
fn directory_with_too_many_names_is_refused_and_not_read_in_part() {
    let crls = Crls::new();
    for name in 0..1023 {
        fs::write(crls.dir.join(format!(".{name}")), "").unwrap();
    }
    crls.put("a");
    assert_eq!(crls.read().unwrap().len(), 1);
    crls.put("b");
    assert_eq!(crls.read().unwrap_err(), ReadError::TooManyNames { path: crls.dir.clone(), cap: 1024 });
}

#[test]
fn files_of_a_directory_are_capped_together() {
    let crls = Crls::new();
    for name in ["a", "b", "c", "d", "e"] {
        // Sparse: it costs no disk.
        fs::File::create(crls.dir.join(name)).unwrap().set_len(13 << 20).unwrap();
    }
    let error = crls.read().unwrap_err();
    let expected = ReadError::TooLargeTogether { path: crls.dir.join("e"), size: 65 << 20, cap: 64 << 20 };
    assert_eq!(error, expected);
}

#[test]
fn directory_is_refused_where_a_file_is_wanted() {
    let crls = Crls::new();
    let paths = crls.pair.paths().with_ca(&crls.dir);
    let error = read_here(&paths).err().unwrap();
    assert_eq!(error, ReadError::NotAFile { path: crls.dir, kind: FileKind::Directory });
}
