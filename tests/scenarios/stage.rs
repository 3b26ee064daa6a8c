//! What the commands do: a directory, a reloader on files in it, and what is expected of the two.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustls_reload::{Backend, ClientAuth, Health, Paths, Reloaded, Reloader, Stats, Watcher};

use crate::common;
use crate::content::{ca, serial};
use crate::script::{self, Line, Script};

/// How changes are noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// By the kernel's events.
    Events,
    /// By the kernel's events, with room for two of them.
    FewEvents,
    /// By polling every [`POLL`].
    Poll,
}

/// Why a script ended early.
pub(crate) enum Stop {
    /// This machine cannot run it.
    Skip(String),
    Fail(String),
}

/// A script as it runs.
pub(crate) struct Stage<'a> {
    script: &'a Script,
    mode: Mode,
    pub(crate) dir: PathBuf,
    reloader: Option<Reloader>,
    /// Serial numbers as they were published.
    published: Arc<Mutex<Vec<u64>>>,
    /// Serial numbers that the script names, in its order.
    expected: Vec<u64>,
    also_allowed: Vec<u64>,
    mark: Stats,
    pub(crate) swaps: u32,
    pub(crate) background: Vec<JoinHandle<()>>,
    pub(crate) stop: Arc<AtomicBool>,
    /// How long the slowest change took to be served, and in which line.
    pub(crate) slowest: (Duration, usize),
}

impl Mode {
    pub(crate) const ALL: [Self; 3] = [Self::Events, Self::FewEvents, Self::Poll];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Events => "events",
            Self::FewEvents => "few-events",
            Self::Poll => "poll",
        }
    }

    /// The word after `not` in a script: both event modes are one.
    pub(crate) fn kind(self) -> &'static str {
        match self {
            Self::Events | Self::FewEvents => "events",
            Self::Poll => "poll",
        }
    }

    pub(crate) fn backend(self) -> &'static str {
        match self {
            Self::Events | Self::FewEvents if cfg!(kqueue_shim) => "kqueue",
            Self::Events | Self::FewEvents => "inotify",
            Self::Poll => "poll",
        }
    }

    /// What is added to every bound.
    fn allowance(self) -> Duration {
        match self {
            Self::Events | Self::FewEvents => Duration::ZERO,
            Self::Poll => POLL,
        }
    }
}

impl<'a> Stage<'a> {
    pub(crate) fn new(script: &'a Script, mode: Mode, dir: &Path) -> Self {
        Self {
            script,
            mode,
            dir: dir.to_owned(),
            reloader: None,
            published: Arc::default(),
            expected: Vec::new(),
            also_allowed: Vec::new(),
            mark: Stats::default(),
            swaps: 0,
            background: Vec::new(),
            stop: Arc::default(),
            slowest: (Duration::ZERO, 0),
        }
    }

    /// Runs every line, then looks once more at everything that was published.
    pub(crate) fn run(&mut self) -> Result<(), Stop> {
        for line in &self.script.lines {
            self.command(line).map_err(|stop| self.explained(line, stop))?;
        }
        self.stop.store(true, Ordering::Relaxed);
        let last = self.script.lines.last().ok_or_else(|| Stop::Fail("the script is empty".into()))?;
        self.join().and_then(|()| self.history()).map_err(|stop| self.explained(last, stop))
    }

    fn command(&mut self, line: &Line) -> Result<(), Stop> {
        match line.verb.as_str() {
            "start" => self.start(line),
            "expect" => self.expect(line),
            "mark" => self.mark(),
            "may-serve" => {
                for serial in &line.args {
                    self.also_allowed.push(serial.parse().map_err(|_| format!("{serial} is no number"))?);
                }
                Ok(())
            }
            "pause" => {
                // It makes a state last; what is expected is never proved by it.
                thread::park_timeout(script::duration(&line.args[0])?);
                Ok(())
            }
            "join" => self.join(),
            "chatter" => self.chatter(line),
            "read-loop" => self.read_loop(line),
            "swap" => self.swap(line),
            "write" | "replace" => self.write(line),
            "mount" | "umount" => self.mount(line),
            _ => self.file(line).map_err(|error| match error.kind() {
                io::ErrorKind::Unsupported => Stop::Skip(error.to_string()),
                _ => Stop::Fail(error.to_string()),
            }),
        }
    }

    fn start(&mut self, line: &Line) -> Result<(), Stop> {
        let place = |path: &str| if line.has("as-written") { PathBuf::from(path) } else { self.path(path) };
        let path = |key: &str| line.option(key).map(place);
        let mut paths = match (path("secret"), path("certbot"), path("combined")) {
            (Some(dir), ..) => Paths::secret(dir),
            (_, Some(dir), _) => Paths::certbot(dir),
            (.., Some(file)) => Paths::combined(file),
            _ => {
                let cert = path("cert").ok_or_else(|| "start needs files".to_owned())?;
                Paths::new(cert, path("key").ok_or_else(|| "start needs key=".to_owned())?)
            }
        };
        if let Some(ca) = path("ca") {
            paths = paths.with_ca(ca);
        }
        let watcher = match self.mode {
            Mode::Events => Watcher::start(Backend::Auto),
            Mode::FewEvents => Watcher::start_with_room(Backend::Auto, 2),
            Mode::Poll => Watcher::start(Backend::Poll),
        };
        let watcher = watcher.map_err(|error| error.to_string())?;
        let published = Arc::clone(&self.published);
        let mut builder = Reloader::builder(paths)
            .watcher(&watcher)
            .identity(&self.script.name)
            .poll_interval(POLL)
            .on_swap(move |swap| {
                published.lock().unwrap().push(serial(swap.generation()));
            });
        if line.option("ca").is_some() {
            builder = builder.client_auth(ClientAuth::Required);
        }
        if line.has("allow-absent") {
            builder = builder.allow_absent();
        }
        if let Some(resync) = line.duration("resync")? {
            builder = builder.resync_interval(resync);
        }
        let reloader = builder.start().map_err(|error| format!("does not start: {error}"))?;
        if let Some(first) = self.reloader.insert(reloader).current() {
            self.published.lock().unwrap().insert(0, serial(&first));
            self.expected.push(serial(&first));
        }
        Ok(())
    }

    /// From here on reloads and changes are counted. Everything that happened before has been looked at.
    fn mark(&mut self) -> Result<(), Stop> {
        let reloader = self.reloader()?;
        // That it may fail is part of some scripts.
        reloader.reload_now().ok();
        self.mark = reloader.stats();
        Ok(())
    }

    fn expect(&mut self, line: &Line) -> Result<(), Stop> {
        if line.has("no-change") {
            return self.expect_no_change(line.duration("for")?.unwrap_or_default());
        }
        if let Some(serial) = line.number("serial")? {
            self.expected.push(serial);
        }
        let begun = Instant::now();
        let within = line.duration("within")?.unwrap_or(WITHIN) + self.mode.allowance();
        loop {
            let mut missing = Vec::new();
            for (key, value) in &line.options {
                if let Some(found) = self.differs(line, key, value)? {
                    missing.push(format!("{key} is {found}, not {value}"));
                }
            }
            let took = begun.elapsed();
            if missing.is_empty() {
                if took > within {
                    return Err(Stop::Fail(format!(
                        "holds, but only after {took:.1?}, not within {within:?}"
                    )));
                }
                if line.options.contains_key("serial") || line.options.contains_key("ca") {
                    self.slowest = self.slowest.max((took, line.number));
                }
                return Ok(());
            }
            // Late is another mistake than never.
            if took > within + LATE {
                return Err(Stop::Fail(format!("not within {:.1?}: {}", within + LATE, missing.join(", "))));
            }
            thread::park_timeout(Duration::from_millis(2));
        }
    }

    /// What is found, if it is not as expected.
    fn differs(&self, line: &Line, key: &str, value: &str) -> Result<Option<String>, Stop> {
        let reloader = self.reloader()?;
        let stats = reloader.stats();
        let number = |found: u64| {
            let wanted = line.number(key)?.unwrap_or_default();
            Ok::<_, String>((found != wanted).then(|| found.to_string()))
        };
        let reloads = stats.loads.saturating_sub(self.mark.loads);
        Ok(match key {
            "serial" => number(reloader.current().map_or(0, |now| serial(&now)))?,
            "generation" => number(reloader.store().number())?,
            "failures" => number(stats.failures)?,
            "recoveries" => number(stats.recoveries)?,
            "reloads" => number(reloads)?,
            "reloads<" => {
                let most = line.number(key)?.unwrap_or_default();
                (reloads > most).then(|| reloads.to_string())
            }
            "ca" => {
                let number = line.number(key)?.unwrap_or_default();
                let current = reloader.current();
                let trust = current.as_ref().and_then(|now| now.bundle().trust());
                let subjects = trust.map(|trust| trust.subjects().to_vec()).unwrap_or_default();
                let found = match (number, trust) {
                    (0, trust) => trust.is_none(),
                    (_, Some(trust)) => {
                        trust.anchors() == 1 && trust.roots().roots.iter().all(|root| ca(number).is(root))
                    }
                    _ => false,
                };
                (!found).then(|| format!("{subjects:?}"))
            }
            "health" => {
                let found = health_word(&reloader.health());
                (found != value).then(|| found.to_owned())
            }
            "says" => {
                let health = reloader.health().to_string();
                (!health.contains(value)).then_some(health)
            }
            _ => None,
        })
    }

    /// Nothing is published, neither by itself nor when asked for.
    fn expect_no_change(&mut self, duration: Duration) -> Result<(), Stop> {
        let reloader = self.reloader()?.clone();
        let (generation, begun) = (reloader.store().number(), Instant::now());
        while begun.elapsed() < duration && reloader.store().number() == generation {
            thread::park_timeout(Duration::from_millis(2));
        }
        let own = match reloader.reload_now() {
            Ok(Reloaded::Swapped) => return Err(Stop::Fail("a forced reload found something new".into())),
            Ok(_) => 1,
            Err(_) => 0,
        };
        self.mark.loads += own;
        if reloader.store().number() != generation {
            let number = reloader.store().number();
            return Err(Stop::Fail(format!("generation {number} was published, {generation} was to stay")));
        }
        Ok(())
    }

    /// Ends the reloader. Nothing may have been published but what the script names, and in its order.
    fn history(&self) -> Result<(), Stop> {
        let Some(reloader) = &self.reloader else {
            return Err(Stop::Fail("nothing was started".into()));
        };
        // Answered after everything before it; it may publish what is on the disk by now.
        reloader.reload_now().ok();
        reloader.shutdown();
        let mut published = self.published.lock().unwrap().clone();
        published.dedup();
        let mut expected = self.expected.clone();
        expected.dedup();
        let mut missing = expected.iter().peekable();
        let surplus = published.iter().find(|serial| {
            missing.next_if(|next| next == serial).is_none() && !self.also_allowed.contains(serial)
        });
        if surplus.is_none() && missing.peek().is_none() {
            return Ok(());
        }
        Err(Stop::Fail(format!("the serial numbers published are {published:?}, not {expected:?}")))
    }

    fn reloader(&self) -> Result<&Reloader, String> {
        self.reloader.as_ref().ok_or_else(|| "nothing was started yet".to_owned())
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.dir.join(path)
    }

    /// Adds everything that helps to see why.
    fn explained(&self, line: &Line, stop: Stop) -> Stop {
        let Stop::Fail(why) = stop else {
            return stop;
        };
        let mut text = format!(
            "tests/scenarios/{}.txt:{} ({}): {}\n  {why}\n",
            self.script.name,
            line.number,
            self.mode.name(),
            line.text
        );
        if let Some(reloader) = &self.reloader {
            let served = reloader.current().map(|now| serial(&now));
            let published = self.published.lock().unwrap();
            let (health, stats) = (reloader.health(), reloader.stats());
            // Writing to a string does not fail.
            write!(text, "  serving {served:?}, published {published:?}; health: {health}\n  {stats:?}\n")
                .unwrap();
        }
        list(&self.dir, &self.dir, &mut text);
        Stop::Fail(text)
    }
}

fn health_word(health: &Health) -> &'static str {
    match health {
        Health::Ready => "ready",
        Health::WatchDegraded { .. } => "degraded",
        Health::Stale { .. } => "stale",
        Health::ExpiringSoon { .. } => "expiring-soon",
        Health::NotYetValid { .. } => "not-yet-valid",
        Health::Expired { .. } => "expired",
        Health::Absent { .. } => "absent",
        Health::WatcherLost => "watcher-lost",
        Health::Stuck { .. } => "stuck",
        Health::Stopped => "stopped",
        _ => "unknown",
    }
}

/// Every name below `dir`, with where links lead and how large files are.
fn list(top: &Path, dir: &Path, text: &mut String) {
    let mut paths: Vec<_> =
        fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        let name = path.strip_prefix(top).unwrap_or(&path).display();
        let Ok(status) = fs::symlink_metadata(&path) else { continue };
        if let Ok(target) = fs::read_link(&path) {
            writeln!(text, "    {name} -> {}", target.display()).unwrap();
        } else if status.is_dir() {
            writeln!(text, "    {name}/").unwrap();
            list(top, &path, text);
        } else {
            let (length, mode) = (status.len(), status.permissions().mode() & 0o7777);
            writeln!(text, "    {name} {length} bytes, mode {mode:o}").unwrap();
        }
    }
}

impl From<String> for Stop {
    fn from(why: String) -> Self {
        Self::Fail(why)
    }
}

/// How often files are polled in [`Mode::Poll`].
const POLL: Duration = Duration::from_millis(100);

/// How soon something has to happen, if a script does not say otherwise.
const WITHIN: Duration = Duration::from_secs(1);

/// For how long after its bound something is waited for, to tell late from never.
const LATE: Duration = common::SOON;
