//! Whatever happens to the files of a key, nothing of it gets into a log, an error or `Debug` output.

#![expect(clippy::unwrap_used, reason = "test code outside of test functions")]

#[path = "common/cases.rs"]
mod files;
#[path = "common/secrets.rs"]
mod secrets;

use std::collections::HashSet;
use std::error::Error;
use std::fmt::Debug;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex};
use std::thread;

use files::{Case, Files, cases, read};
use log::{LevelFilter, Log, Metadata, Record};
use rustls_reload::issue::Ca;
use rustls_reload::{Backend, Paths, Reloader, Watcher};
use secrets::Secrets;

/// The library is told to say everything, at start and at run time, over every case and over every key file cut
/// at each 16th byte; then all that was said is searched for all that must not be.
#[test]
fn nothing_of_a_key_is_logged_or_shown() {
    log::set_logger(&Capture).unwrap();
    log::set_max_level(LevelFilter::Trace);
    let (jobs, next) = (jobs(), AtomicUsize::new(0));
    let watcher = Watcher::start(Backend::Auto).unwrap();
    // A start that fails is a second of waiting: a file may be half written.
    thread::scope(|scope| {
        for _ in 0..256 {
            scope.spawn(|| {
                while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    job.run(&watcher);
                }
            });
        }
    });
    let said: Vec<String> = SAID.lock().unwrap().drain().collect();
    let said = said.join("\n");
    for expected in ["not loaded", "now serving", "not valid base64", "SeveralKeys", "ServerConfig"] {
        assert!(said.contains(expected), "{expected:?} was never said");
    }
    secrets().check("what was said", &said);
}

/// Of every file with a key in it.
fn secrets() -> Secrets {
    let mut secrets = Secrets::default();
    for case in cases().iter().filter(|case| case.role.contains("key") || has_key(&case.bytes)) {
        secrets.add(&case.bytes);
    }
    for name in
        ["pki/leaf.key", "pki/leaf2.key", "pki/rsa.key", "pki/oldclient.key", "pki/version-1-leaf.key"]
    {
        secrets.add(&read(name));
    }
    for certificate in
        cases().iter().flat_map(Case::results).flatten().flat_map(|bundle| bundle.chain().to_vec())
    {
        secrets.forget(&certificate);
    }
    secrets
}

fn has_key(text: &[u8]) -> bool {
    text.windows(11).any(|window| window == b"PRIVATE KEY")
}

/// What one thread does at a time.
enum Job {
    /// Starts with these files.
    Start(Files),
    /// Starts with good ones, gets these, one after the other, and good ones again.
    Run(Vec<Files>),
}

fn jobs() -> Vec<Job> {
    let mut jobs = Vec::new();
    for case in cases() {
        jobs.extend(case.files().into_iter().map(Job::Start));
        jobs.extend(case.files().into_iter().map(|files| Job::Run(vec![files])));
        for files in case.files().into_iter().filter(|_| has_key(&case.bytes)) {
            jobs.extend(cuts(&files).map(|(head, _)| Job::Start(head)));
            jobs.push(Job::Run(cuts(&files).flat_map(|(head, tail)| [head, tail]).collect()));
        }
    }
    jobs
}

/// The file that holds the key, cut at each 16th byte: what is before, and what is behind.
fn cuts(files: &Files) -> impl Iterator<Item = (Files, Files)> {
    let whole = files.key.as_ref().unwrap_or(&files.cert);
    (0..whole.len()).step_by(16).map(move |at| {
        let (head, tail) = whole.split_at(at);
        (files.with_key_file(head), files.with_key_file(tail))
    })
}

impl Files {
    fn with_key_file(&self, bytes: &[u8]) -> Self {
        let cert = if self.key.is_some() { self.cert.clone() } else { bytes.to_owned() };
        let key = self.key.as_ref().map(|_| bytes.to_owned());
        Self { cert, key, ca: self.ca.clone(), crl: self.crl.clone() }
    }

    /// Good ones in the same places.
    fn good(&self) -> Self {
        let (cert, key) = (read("pki/leaf.pem"), read("pki/leaf.key"));
        let crl = || Ca::new("hygiene").unwrap().crl(&[1]).issue().unwrap().pem().into();
        let (ca, crl) = (self.ca.as_ref().map(|_| read("pki/root.pem")), self.crl.as_ref().map(|_| crl()));
        match self.key {
            Some(_) => Self { cert, key: Some(key), ca, crl },
            None => Self { cert: [cert, key].concat(), key: None, ca, crl },
        }
    }

    fn write(&self, dir: &Path) -> Paths {
        let put = |name, bytes: &[u8]| {
            fs::write(dir.join(name), bytes).unwrap();
            dir.join(name)
        };
        let cert = put("c.crt", &self.cert);
        let mut paths = match &self.key {
            Some(key) => Paths::new(cert, put("c.key", key)),
            None => Paths::combined(cert),
        };
        if let Some(ca) = &self.ca {
            paths = paths.with_ca(put("ca.crt", ca));
        }
        if let Some(crl) = &self.crl {
            paths = paths.with_crl(put("ca.crl", crl));
        }
        paths
    }
}

impl Job {
    fn run(&self, watcher: &Watcher) {
        let dir = tempfile::tempdir().unwrap();
        match self {
            Self::Start(files) => match Reloader::builder(files.write(dir.path())).watcher(watcher).start() {
                Ok(reloader) => show(&reloader),
                Err(error) => say_error(&error),
            },
            Self::Run(all) => {
                let Some(good) = all.first().map(Files::good) else { return };
                let reloader = Reloader::builder(good.write(dir.path())).on_event(say);
                let reloader = reloader.watcher(watcher).start().unwrap();
                for files in all.iter().chain([&good]) {
                    files.write(dir.path());
                    if let Err(error) = reloader.reload_now() {
                        say_error(&error);
                    }
                    show(&reloader);
                }
            }
        }
    }
}

/// All that a program can print of a reloader.
fn show(reloader: &Reloader) {
    say(reloader);
    say(&reloader.health());
    keep(reloader.health().to_string());
    say(&reloader.stats());
    let generation = reloader.current().unwrap();
    say(&generation);
    say(generation.bundle());
    say(generation.bundle().certified_key());
    say(&generation.bundle().trust());
    say(&generation.server_config());
    say(reloader.store());
    say(&reloader.resolver());
}

/// `Debug`, in both forms.
fn say(value: &impl Debug) {
    keep(format!("{value:?}\n{value:#?}"));
}

/// An error and all that caused it.
fn say_error(error: &(impl Error + 'static)) {
    say(error);
    let error: &dyn Error = error;
    for error in std::iter::successors(Some(error), |error| (*error).source()) {
        keep(format!("{error}\n{error:?}"));
    }
}

fn keep(text: String) {
    SAID.lock().unwrap().insert(text);
}

/// Each text once: most are the same.
static SAID: LazyLock<Mutex<HashSet<String>>> = LazyLock::new(Mutex::default);

struct Capture;

impl Log for Capture {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        keep(format!("{} {}: {}", record.level(), record.target(), record.args()));
    }

    fn flush(&self) {}
}
