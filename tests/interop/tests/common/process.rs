//! Other programs: started, read while they run, waited for with a deadline, and gone when the test is.

use std::io::{self, Read};
use std::net::SocketAddr;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::{Mount, SOON, eventually};

/// A program that runs. Killed when it goes out of scope.
pub(crate) struct Running {
    child: Child,
    what: String,
    stdout: Said,
    stderr: Said,
}

/// What a program said in the end.
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        let what = format!("{command:?}");
        let piped = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().unwrap_or_else(|error| panic!("{what}: {error}"));
        let stdout = Said::by(child.stdout.take().unwrap());
        let stderr = Said::by(child.stderr.take().unwrap());
        Self { child, what, stdout, stderr }
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits for its end.
    pub(crate) fn wait(mut self, limit: Duration) -> Ended {
        let (what, stdout, stderr) = (self.what.clone(), self.stdout.clone(), self.stderr.clone());
        eventually(limit, &format!("{what} ends"), || {
            !self.is_running() && stdout.is_complete() && stderr.is_complete()
        });
        let status = self.child.try_wait().unwrap().expect("it has ended");
        Ended { status, stdout: stdout.text(), stderr: stderr.text() }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
        if thread::panicking() {
            eprintln!("{} said until then:\n{}{}", self.what, self.stdout.text(), self.stderr.text());
        }
    }
}

/// Runs a program that has to succeed; what it wrote to stdout.
pub(crate) fn run(command: &mut Command) -> String {
    let what = format!("{command:?}");
    let ended = Running::start(command).wait(SOON * 2);
    assert!(ended.status.success(), "{what}: {}\n{}{}", ended.status, ended.stdout, ended.stderr);
    ended.stdout
}

/// The program of this package.
pub(crate) struct H2Server {
    pub(crate) address: SocketAddr,
    pub(crate) process: Running,
}

impl H2Server {
    pub(crate) fn command() -> Command {
        Command::new(env!("CARGO_BIN_EXE_h2_server"))
    }

    pub(crate) fn start(mount: &Mount, options: &[&str]) -> Self {
        let mut command = Self::command();
        command.arg("--secret").arg(mount.path()).args(["--listen", "127.0.0.1:0"]).args(options);
        let mut process = Running::start(&mut command);
        let mut address = None;
        eventually(SOON, "h2_server is ready", || {
            assert!(process.is_running(), "h2_server ended: {}", process.stderr.text());
            let said = process.stderr.text();
            let ready = said.lines().find_map(|line| line.split_once("serving on https://"));
            address = ready.map(|(_, address)| address.parse().unwrap());
            address.is_some()
        });
        Self { address: address.unwrap(), process }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("https://{}{path}", self.address)
    }
}

/// What came from a pipe until now, and whether there may be more.
#[derive(Clone)]
struct Said(Arc<Mutex<(Vec<u8>, Pipe)>>);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Pipe {
    Open,
    Ended,
}

impl Said {
    fn by(mut pipe: impl Read + Send + 'static) -> Self {
        let said = Arc::new(Mutex::new((Vec::new(), Pipe::Open)));
        let heard = Arc::clone(&said);
        let read = move || {
            let mut chunk = [0; 4_096];
            loop {
                match pipe.read(&mut chunk) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Ok(0) | Err(_) => break heard.lock().unwrap().1 = Pipe::Ended,
                    Ok(length) => heard.lock().unwrap().0.extend(chunk.iter().take(length)),
                }
            }
        };
        thread::Builder::new().name("listener".into()).spawn(read).map(drop).unwrap();
        Self(said)
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap().0).into_owned()
    }

    fn is_complete(&self) -> bool {
        self.0.lock().unwrap().1 == Pipe::Ended
    }
}
