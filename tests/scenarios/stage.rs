//! What the commands do: a directory, a reloader on files in it, and what is expected of the two.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustls_reload::issue::{Ca, Issued};
use rustls_reload::{Backend, ClientAuth, Health, Paths, Reloaded, Reloader, Stats, Watcher};

use crate::common::{self, Pki};
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
    dir: PathBuf,
    reloader: Option<Reloader>,
    /// Serial numbers as they were published.
    published: Arc<Mutex<Vec<u64>>>,
    /// Serial numbers that the script names, in its order.
    expected: Vec<u64>,
    also_allowed: Vec<u64>,
    mark: Stats,
    swaps: u32,
    background: Vec<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
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
            _ => self.file(line).map_err(|error| Stop::Fail(error.to_string())),
        }
    }

    /// Everything that is one call on the disk or two.
    fn file(&self, line: &Line) -> io::Result<()> {
        let first = || self.path(&line.args[0]);
        let second = || self.path(&line.args[1]);
        let all = || line.args.iter().map(|arg| self.path(arg));
        match line.verb.as_str() {
            "rename" => fs::rename(first(), second()),
            "exchange" => exchange(&first(), &second()),
            "link" => std::os::unix::fs::symlink(&line.args[0], second()),
            "relink" => {
                let new = second().with_file_name(".relink");
                std::os::unix::fs::symlink(&line.args[0], &new)?;
                fs::rename(new, second())
            }
            "hardlink" => fs::hard_link(first(), second()),
            "copy" => fs::copy(first(), second()).map(drop),
            "copy-preserving-times" => {
                let modified = fs::metadata(first())?.modified()?;
                fs::copy(first(), second())?;
                File::options().write(true).open(second())?.set_modified(modified)
            }
            "unlink" => all().try_for_each(fs::remove_file),
            "remove-tree" => all().try_for_each(fs::remove_dir_all),
            "mkdir" => all().try_for_each(fs::create_dir_all),
            "fifo" => run(Command::new("mkfifo").arg(first())).map_err(io::Error::other),
            "chmod" => {
                let mode = u32::from_str_radix(&line.args[0], 8).map_err(io::Error::other)?;
                all().skip(1).try_for_each(|path| fs::set_permissions(path, fs::Permissions::from_mode(mode)))
            }
            "touch" => all().try_for_each(|path| {
                let times = fs::FileTimes::new();
                let now = times.set_modified(fs::metadata(&self.dir)?.modified()?);
                File::open(path)?.set_times(now)
            }),
            "touch-times" => {
                let modified = match line.option("like") {
                    Some(other) => fs::metadata(self.path(other))?.modified()?,
                    None => std::time::UNIX_EPOCH + Duration::from_secs(1_000_000_000),
                };
                File::open(first())?.set_modified(modified)
            }
            "chdir" => std::env::set_current_dir(first()),
            other => Err(io::Error::other(format!("{other} is not implemented"))),
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
                let wanted = ca(line.number(key)?.unwrap_or_default());
                let current = reloader.current();
                let trust = current.as_ref().and_then(|now| now.bundle().trust());
                let subjects = trust.map(|trust| trust.subjects().to_vec()).unwrap_or_default();
                let found = trust.is_some_and(|trust| trust.roots().roots.iter().any(|root| wanted.is(root)));
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
    fn history(&mut self) -> Result<(), Stop> {
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

    fn path(&self, path: &str) -> PathBuf {
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

/// The writer.
impl Stage<'_> {
    fn write(&self, line: &Line) -> Result<(), Stop> {
        let path = self.path(&line.args[0]);
        let content = content(line)?;
        let replace = line.verb == "replace";
        let target = if replace { path.with_extension("new") } else { path.clone() };
        let chunks = line.number("chunks")?.unwrap_or(1).max(1);
        let pause = line.duration("pause")?.unwrap_or_default();
        let mode = line.option("mode").map_or(Ok(0o644), |mode| u32::from_str_radix(mode, 8));
        let mode = mode.map_err(|error| error.to_string())?;
        let put = || {
            let mut options = File::options();
            let mut file = options.write(true).create(true).truncate(true).mode(mode).open(&target)?;
            let size = content.len().div_ceil(usize::try_from(chunks).map_err(io::Error::other)?).max(1);
            for (index, chunk) in content.chunks(size).enumerate() {
                if index > 0 {
                    thread::park_timeout(pause);
                }
                file.write_all(chunk)?;
            }
            drop(file);
            if replace { fs::rename(&target, &path) } else { Ok(()) }
        };
        put().map_err(|error: io::Error| Stop::Fail(error.to_string()))
    }

    /// A new dated directory and `..data` renamed over, as the kubelet does it.
    fn swap(&mut self, line: &Line) -> Result<(), Stop> {
        let mount = self.path(&line.args[0]);
        let generation = line.number("gen")?.ok_or_else(|| "swap needs gen=".to_owned())?;
        let issued = issued(generation, line.number("samekey")?);
        let mut files = vec![("tls.crt", issued.chain_pem()), ("tls.key", issued.key_pem().to_string())];
        if let Some(number) = line.number("ca")? {
            files.push(("ca.crt", ca(number).ca.cert_pem().to_owned()));
        }
        self.swaps += 1;
        let dated = format!("..2026_11_30_{:03}", self.swaps);
        let put = || {
            let old = fs::read_link(mount.join("..data")).ok();
            fs::create_dir_all(mount.join(&dated))?;
            for (name, text) in &files {
                fs::write(mount.join(&dated).join(name), text)?;
            }
            std::os::unix::fs::symlink(&dated, mount.join("..data_tmp"))?;
            fs::rename(mount.join("..data_tmp"), mount.join("..data"))?;
            for (name, _) in &files {
                let link = mount.join(name);
                if fs::symlink_metadata(&link).is_err() {
                    std::os::unix::fs::symlink(Path::new("..data").join(name), link)?;
                }
            }
            match old {
                Some(old) if !line.has("keep-old") => fs::remove_dir_all(mount.join(old)),
                _ => Ok(()),
            }
        };
        put().map_err(|error: io::Error| Stop::Fail(error.to_string()))
    }

    fn mount(&self, line: &Line) -> Result<(), Stop> {
        let mut command = Command::new(&line.verb);
        // What a machine does not allow or not know is no mistake of the library.
        run(command.args(&line.args).current_dir(&self.dir)).map_err(Stop::Skip)
    }

    /// Makes noise beside everything else: in a directory by other names, at a file by its time stamp.
    fn chatter(&mut self, line: &Line) -> Result<(), Stop> {
        let path = self.path(&line.args[0]);
        let every = line.duration("every")?.unwrap_or(Duration::from_millis(3));
        let is_dir = path.is_dir();
        let mut round = 0_u64;
        self.beside(line, move || {
            round += 1;
            if is_dir {
                let noise = path.join(format!("noise-{}", round % 7));
                fs::write(&noise, round.to_string())?;
                fs::rename(&noise, path.join("noise"))?;
                fs::remove_file(path.join("noise"))?;
            } else {
                fs::set_permissions(&path, fs::Permissions::from_mode(0o600 + (round % 2) as u32 * 0o44))?;
            }
            thread::park_timeout(every);
            Ok(())
        })
    }

    fn read_loop(&mut self, line: &Line) -> Result<(), Stop> {
        let paths: Vec<_> = line.args.iter().map(|arg| self.path(arg)).collect();
        self.beside(line, move || {
            for path in &paths {
                fs::read(path)?;
            }
            thread::park_timeout(Duration::from_millis(1));
            Ok(())
        })
    }

    /// Does something again and again on a thread of its own, for as long as the line says.
    fn beside(
        &mut self,
        line: &Line,
        mut work: impl FnMut() -> io::Result<()> + Send + 'static,
    ) -> Result<(), Stop> {
        let duration = line.duration("for")?.ok_or_else(|| format!("{} needs for=", line.verb))?;
        let (end, stop) = (Instant::now() + duration, Arc::clone(&self.stop));
        let run = move || {
            while Instant::now() < end && !stop.load(Ordering::Relaxed) {
                // A directory that is swapped away meanwhile is part of the noise.
                work().ok();
            }
        };
        let thread = thread::Builder::new().name(line.verb.clone()).spawn(run);
        self.background.push(thread.map_err(|error| error.to_string())?);
        Ok(())
    }

    fn join(&mut self) -> Result<(), Stop> {
        for thread in self.background.drain(..) {
            thread.join().map_err(|_| "a thread of the script panicked".to_owned())?;
        }
        Ok(())
    }
}

/// A CA that can be recognised among trust anchors.
struct Authority {
    ca: Ca,
}

impl Authority {
    fn is(&self, root: &rustls::pki_types::TrustAnchor<'_>) -> bool {
        let der = self.ca.cert_der().as_ref();
        let key = root.subject_public_key_info.as_ref();
        der.windows(key.len()).any(|window| window == key)
    }
}

/// The bytes that a line asks for: certificate, key, CA, text, in this order.
fn content(line: &Line) -> Result<Vec<u8>, String> {
    let samekey = line.number("samekey")?;
    let mut content = Vec::new();
    if let Some(serial) = line.number("cert")? {
        content.extend(issued(serial, samekey).chain_pem().into_bytes());
    }
    if let Some(serial) = line.number("key")? {
        content.extend(issued(serial, samekey).key_pem().as_bytes());
    }
    if let Some(number) = line.number("ca")? {
        content.extend(ca(number).ca.cert_pem().as_bytes());
    }
    content.extend(line.option("text").unwrap_or_default().as_bytes());
    let length = |key| Ok::<_, String>(line.number(key)?.map(|number| usize::try_from(number).unwrap()));
    content.resize(content.len() + length("nul")?.unwrap_or(0), 0);
    if let Some(length) = length("cut")? {
        content.truncate(length);
    }
    if let Some(length) = length("pad")? {
        content.resize(length.max(content.len()), b'\n');
    }
    Ok(content)
}

/// The pair with this serial number; made once, by all scripts together.
fn issued(serial: u64, samekey: Option<u64>) -> Arc<Issued> {
    type Made = HashMap<(u64, Option<u64>), Arc<Issued>>;
    static PKI: OnceLock<Pki> = OnceLock::new();
    static MADE: OnceLock<Mutex<Made>> = OnceLock::new();
    let made = || MADE.get_or_init(Mutex::default).lock().unwrap();
    let samekey = samekey.filter(|key| *key != serial);
    if let Some(issued) = made().get(&(serial, samekey)) {
        return Arc::clone(issued);
    }
    let key_of = samekey.map(|key| issued(key, None));
    let leaf = PKI.get_or_init(Pki::new).root().server(&["localhost"]).serial(serial);
    let leaf = match &key_of {
        Some(other) => leaf.key(other.key()),
        None => leaf,
    };
    let new = Arc::new(leaf.issue().unwrap());
    Arc::clone(made().entry((serial, samekey)).or_insert(new))
}

/// The CA with this number; made once, by all scripts together.
fn ca(number: u64) -> Arc<Authority> {
    static MADE: OnceLock<Mutex<HashMap<u64, Arc<Authority>>>> = OnceLock::new();
    let mut made = MADE.get_or_init(Mutex::default).lock().unwrap();
    let new = || Arc::new(Authority { ca: Ca::new(&format!("CA {number}")).unwrap() });
    Arc::clone(made.entry(number).or_insert_with(new))
}

fn serial(generation: &rustls_reload::Generation) -> u64 {
    u64::from_str_radix(generation.bundle().leaf().serial(), 16).unwrap()
}

fn health_word(health: &Health) -> &'static str {
    match health {
        Health::Ready => "ready",
        Health::WatchDegraded { .. } => "degraded",
        Health::Stale { .. } => "stale",
        Health::NotValidNow { .. } => "not-valid-now",
        Health::Absent { .. } => "absent",
        Health::WatcherLost => "watcher-lost",
        Health::Stuck { .. } => "stuck",
        Health::Stopped => "stopped",
        _ => "unknown",
    }
}

/// Runs a command; what it said if it fails.
fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; "))
}

#[cfg(target_os = "linux")]
fn exchange(one: &Path, other: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    Ok(renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE)?)
}

#[cfg(not(target_os = "linux"))]
fn exchange(_: &Path, _: &Path) -> io::Result<()> {
    Err(io::Error::other("names can be exchanged on Linux alone"))
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
