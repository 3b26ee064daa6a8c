//! The program, as a process that is talked to.

use std::fs;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use crate::common::{Mount, eventually};
use crate::peers::start;

/// The program, running, with what it said until now.
pub(crate) struct Gateway {
    process: Child,
    said: Arc<Mutex<Vec<String>>>,
}

impl Gateway {
    /// With client certificates, an admin port, and what else is wanted.
    pub(crate) fn mutual(files: &Mount, upstream: &str, more: &[&str]) -> Self {
        let dir = files.path();
        let args = ["--listen", "127.0.0.1:0", "--secret", dir.to_str().unwrap(), "--connect", upstream];
        let args = [&args[..], &["--client-auth", "required", "--admin", "127.0.0.1:0"], more].concat();
        Self::start(&args)
    }

    pub(crate) fn start(args: &[&str]) -> Self {
        Self::spawn(Command::new(binary()).args(args))
    }

    pub(crate) fn start_by(around: &str, of_that: &[&str], args: &[&str]) -> Self {
        Self::spawn(Command::new(around).args(of_that).arg(binary()).args(args))
    }

    /// Running as soon as it listens.
    pub(crate) fn spawn(command: &mut Command) -> Self {
        let mut process = command.env_remove("RUST_LOG").stderr(Stdio::piped()).spawn().unwrap();
        let said: Arc<Mutex<Vec<String>>> = Arc::default();
        let (lines, kept) = (BufReader::new(process.stderr.take().unwrap()).lines(), Arc::clone(&said));
        start(move || lines.map_while(Result::ok).for_each(|line| kept.lock().unwrap().push(line)));
        let gateway = Self { process, said };
        gateway.says("listening on");
        gateway
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.lines_with("listening on ")[0].rsplit(' ').next().unwrap().parse().unwrap()
    }

    pub(crate) fn lines_with(&self, text: &str) -> Vec<String> {
        self.said.lock().unwrap().iter().filter(|line| line.contains(text)).cloned().collect()
    }

    /// Waits for a line with `text`.
    pub(crate) fn says(&self, text: &str) {
        let deadline = Instant::now() + LIMIT;
        while self.lines_with(text).is_empty() {
            assert!(
                Instant::now() < deadline,
                "not said: {text}\nsaid:\n{}",
                self.said.lock().unwrap().join("\n")
            );
            thread::park_timeout(Duration::from_millis(2));
        }
    }

    /// The whole answer of the admin port.
    pub(crate) fn get(&self, path: &str) -> String {
        let address = self.lines_with("admin port on")[0].rsplit('/').next().unwrap().to_owned();
        let mut connection = TcpStream::connect(address).unwrap();
        write!(connection, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        io::read_to_string(connection).unwrap()
    }

    /// The sum of all series that begin so.
    pub(crate) fn metric(&self, series: &str) -> u64 {
        let page = self.get("/metrics");
        let lines: Vec<_> = page.lines().filter(|line| line.starts_with(series)).collect();
        assert!(!lines.is_empty(), "no series {series}:\n{page}");
        lines.iter().map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
    }

    /// How many connections are open; none has no series.
    pub(crate) fn open(&self) -> usize {
        let page = self.get("/metrics");
        let lines =
            page.lines().filter(|line| line.starts_with("tls_connections{") && line.contains("\"clients\""));
        lines.map(|line| line.rsplit(' ').next().unwrap().parse::<usize>().unwrap()).sum()
    }

    pub(crate) fn serves_generation(&self, identity: &str, number: u64) {
        let series = format!("tls_reload_generation{{identity=\"{identity}\"}}");
        eventually(LIMIT, &format!("generation {number} of {identity}"), || self.metric(&series) >= number);
    }

    /// KiB in memory.
    pub(crate) fn resident(&self) -> u64 {
        self.status("VmRSS:")
    }

    /// How often its threads went to sleep.
    pub(crate) fn switches(&self) -> u64 {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.process.id())).unwrap();
        let count = |task: io::Result<fs::DirEntry>| field(&task.unwrap().path(), "voluntary_ctxt_switches:");
        tasks.map(count).sum()
    }

    /// Of processor time, 100 a second.
    pub(crate) fn ticks(&self) -> u64 {
        let stat = read(&PathBuf::from(format!("/proc/{}/stat", self.process.id())));
        let fields: Vec<_> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    }

    pub(crate) fn status(&self, name: &str) -> u64 {
        field(&PathBuf::from(format!("/proc/{}", self.process.id())), name)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        rustix::process::kill_process(Pid::from_child(&self.process), signal).unwrap();
    }

    pub(crate) fn exit(&mut self) -> ExitStatus {
        let mut status = None;
        eventually(LIMIT, "it ends", || {
            status = self.process.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

/// A process whose output nobody reads. It does not outlive the test.
pub(crate) struct Unheard(pub(crate) Child);

impl Drop for Unheard {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// The example, as `cargo test` builds it beside this test.
pub(crate) fn binary() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let example = test.parent().unwrap().with_file_name("examples").join("gateway");
    assert!(example.is_file(), "{}: not built: cargo build --example gateway", example.display());
    example
}

pub(crate) fn field(process: &Path, name: &str) -> u64 {
    let status = read(&process.join("status"));
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

pub(crate) fn read(path: &Path) -> String {
    io::read_to_string(fs::File::open(path).unwrap()).unwrap()
}

/// For what is sure to happen. Some of it takes the ten seconds that a handshake may take.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);
