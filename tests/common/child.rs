//! This test binary once more, as a process that may be stopped, limited or flooded.

use std::env;
use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;

/// A child and what it says, line by line.
pub(crate) struct Talking {
    pub(crate) process: Child,
    lines: Receiver<(Instant, String)>,
    heard: Vec<String>,
}

/// Whether this is the child that is to play `role`.
pub(crate) fn plays(role: &str) -> bool {
    env::var_os(ROLE).is_some_and(|told| told == role)
}

/// The command that runs the test of this name once more, as `role`; `around` is what it is run by.
pub(crate) fn command(around: &[&str], test: &str, role: &str) -> Command {
    let binary = env::current_exe().unwrap();
    let mut words = around.iter().map(OsStr::new).chain([binary.as_os_str()]);
    let mut command = Command::new(words.next().unwrap());
    command.args(words).args([test, "--exact", "--nocapture"]).env(ROLE, role);
    command
}

impl Talking {
    pub(crate) fn spawn(mut command: Command) -> Self {
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (sender, lines) = crossbeam_channel::unbounded();
        let output = BufReader::new(process.stdout.take().unwrap());
        let read = move || {
            for line in output.lines().map_while(Result::ok) {
                if sender.send((Instant::now(), line)).is_err() {
                    return;
                }
            }
        };
        thread::Builder::new().name("listener".into()).spawn(read).map(drop).unwrap();
        Self { process, lines, heard: Vec::new() }
    }

    /// Waits for a line that contains `text`; when it came.
    pub(crate) fn hears(&mut self, limit: Duration, text: &str) -> Instant {
        let deadline = Instant::now() + limit;
        while let Ok((at, line)) = self.lines.recv_deadline(deadline) {
            let found = line.contains(text);
            self.heard.push(line);
            if found {
                return at;
            }
        }
        panic!("not heard within {limit:?}: {text}\nheard:\n{}", self.heard.join("\n"));
    }

    /// Whether a line with `text` was said until now.
    pub(crate) fn has_heard(&mut self, text: &str) -> bool {
        self.heard.extend(self.lines.try_iter().map(|(_, line)| line));
        self.heard.iter().any(|line| line.contains(text))
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.process);
        rustix::process::kill_process(pid, signal).unwrap();
    }
}

impl Drop for Talking {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

const ROLE: &str = "RUSTLS_RELOAD_TEST_ROLE";
