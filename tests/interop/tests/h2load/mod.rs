//! h2load as it is run here, and its summary, read to the last number.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code")]

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use crate::common::process::Running;

pub(crate) struct H2load {
    process: Running,
    log: PathBuf,
    _dir: TempDir,
}

impl H2load {
    pub(crate) fn start(options: &[&str], url: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let mut command = Command::new("h2load");
        command.args(options).arg("--log-file").arg(&log).arg(url);
        Self { process: Running::start(&mut command), log, _dir: dir }
    }

    /// Waits for its end, and reads what it has found.
    pub(crate) fn end(self, limit: Duration) -> Report {
        let ended = self.process.wait(limit);
        assert!(ended.status.success(), "{}\n{}{}", ended.status, ended.stdout, ended.stderr);
        assert!(ended.stdout.contains("Application protocol: h2"), "{}", ended.stdout);
        #[expect(clippy::disallowed_methods, reason = "a line a request, and we say how many")]
        let log = std::fs::read_to_string(self.log).unwrap();
        Report::read(&ended.stdout, &log)
    }
}

/// What h2load has counted, and each request that it has logged.
pub(crate) struct Report {
    pub(crate) line: String,
    total: u64,
    started: u64,
    done: u64,
    succeeded: u64,
    failed: u64,
    errored: u64,
    timeout: u64,
    /// 2xx, 3xx, 4xx, 5xx.
    codes: [u64; 4],
    pub(crate) requests: Vec<Logged>,
}

/// When a request began and ended, since 1970.
pub(crate) struct Logged {
    pub(crate) begun: Duration,
    pub(crate) ended: Duration,
    status: String,
}

impl Report {
    fn read(summary: &str, log: &str) -> Self {
        let line = |start: &str| {
            let found = summary.lines().find_map(|line| line.strip_prefix(start));
            found.unwrap_or_else(|| panic!("no line {start:?} in\n{summary}"))
        };
        let requests = line("requests: ");
        let codes = line("status codes: ");
        let [total, started, done, succeeded, failed, errored, timeout] =
            numbers(requests, ["total", "started", "done", "succeeded", "failed", "errored", "timeout"]);
        Self {
            line: format!("{requests}; {codes}; finished in {}", line("finished in ")),
            total,
            started,
            done,
            succeeded,
            failed,
            errored,
            timeout,
            codes: numbers(codes, ["2xx", "3xx", "4xx", "5xx"]),
            requests: log.lines().map(Logged::read).collect(),
        }
    }

    /// So many requests were made, and each was answered with 200 and to its end.
    pub(crate) fn lost_nothing(&self, total: u64) {
        let counted = [self.total, self.started, self.done, self.succeeded];
        assert_eq!(counted, [total; 4], "total, started, done, succeeded: {}", self.line);
        assert_eq!(
            [self.failed, self.errored, self.timeout],
            [0; 3],
            "failed, errored, timeout: {}",
            self.line
        );
        assert_eq!(self.codes, [total, 0, 0, 0], "{}", self.line);
        assert_eq!(u64::try_from(self.requests.len()).unwrap(), total, "each is in the log");
        assert!(self.requests.iter().all(|request| request.status == "200"), "a stream was reset");
    }
}

impl Logged {
    /// Begin in microseconds since 1970, status (-1: none), microseconds to the end.
    fn read(line: &str) -> Self {
        let fields: Vec<_> = line.split('\t').collect();
        let [begun, status, took] = fields[..] else { panic!("not a line of h2load's log: {line}") };
        let begun = Duration::from_micros(begun.parse().unwrap());
        let ended = begun + Duration::from_micros(took.parse().unwrap());
        Self { begun, ended, status: status.to_owned() }
    }
}

/// Reads `12 total, 12 started, …`, with these words in this order and nothing else.
fn numbers<const N: usize>(line: &str, words: [&str; N]) -> [u64; N] {
    let parts: Vec<_> = line.split(", ").collect();
    assert_eq!(parts.len(), N, "{line}");
    let mut numbers = [0; N];
    for ((number, part), word) in numbers.iter_mut().zip(parts).zip(words) {
        let (value, found) = part.split_once(' ').expect("a number and a word");
        assert_eq!(found, word, "{line}");
        *number = value.parse().unwrap();
    }
    numbers
}
