//! What revokes: directories of CRLs that change while they are watched.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods, reason = "test code")]

mod common;

use std::fs;

use common::{Files, Pki, SOON, eventually};
use rustls_reload::Reloader;
use rustls_reload::issue::Ca;
use rustls_reload::publish::SecretDir;

fn crls(reloader: &Reloader) -> usize {
    let generation = reloader.current().unwrap();
    generation.bundle().trust().unwrap().crls().len()
}

fn revokes(reloader: &Reloader, expected: usize) {
    eventually(SOON, &format!("{expected} lists are in force; health: {}", reloader.health()), || {
        crls(reloader) == expected
    });
}

#[test]
fn any_crl_that_comes_goes_or_is_written_in_a_directory_is_noticed() {
    let files = Files::with(&Pki::new().pair(1));
    let dir = files.dir.path().join("crls");
    fs::create_dir(&dir).unwrap();
    let (one, other) = (Ca::new("one").unwrap(), Ca::new("other").unwrap());
    let put = |name: &str, text: &str| {
        fs::write(dir.join(".new"), text).unwrap();
        fs::rename(dir.join(".new"), dir.join(name)).unwrap();
    };
    put("one.crl", one.crl(&[]).issue().unwrap().pem());
    let reloader = Reloader::builder(files.paths().with_crl(&dir)).start().unwrap();
    assert_eq!(crls(&reloader), 1);
    put("other.crl", other.crl(&[]).issue().unwrap().pem());
    revokes(&reloader, 2);
    fs::remove_file(dir.join("other.crl")).unwrap();
    revokes(&reloader, 1);
    let before = reloader.current().unwrap().number();
    fs::write(dir.join("one.crl"), one.crl(&[7]).issue().unwrap().pem()).unwrap();
    reloader.wait_for(before + 1, SOON).expect("written in place");
    put("half.crl", "-----BEGIN X509 CRL-----\n");
    eventually(SOON, "the bad file is named", || reloader.health().to_string().contains("/half.crl: "));
    assert_eq!(crls(&reloader), 1, "what was in force stays");
    fs::remove_file(dir.join("half.crl")).unwrap();
    eventually(SOON, "ready again", || reloader.health().is_ready());
    assert_eq!(reloader.stats().missed_events, 0);
}

#[test]
fn mount_as_directory_of_crls_is_followed() {
    let files = Files::with(&Pki::new().pair(1));
    let mount = SecretDir::open(files.dir.path().join("mount")).unwrap();
    let lists = ["one", "other"].map(|name| Ca::new(name).unwrap().crl(&[]).issue().unwrap());
    let publish = |lists: &[(&str, &str)]| {
        let lists: Vec<_> = lists.iter().map(|(name, text)| (*name, text.as_bytes())).collect();
        mount.publish(&lists).unwrap();
    };
    let [one, other] = lists.each_ref().map(|list| list.pem());
    publish(&[("one.crl", one)]);
    let paths = files.paths().with_crl(files.dir.path().join("mount"));
    let reloader = Reloader::builder(paths).start().unwrap();
    publish(&[("one.crl", one), ("other.crl", other)]);
    revokes(&reloader, 2);
    publish(&[("other.crl", other)]);
    revokes(&reloader, 1);
    assert_eq!(reloader.stats().missed_events, 0);
}
