//! Log lines on standard error, by a thread of their own: whoever logs never waits for whoever reads. The threads of
//! the reloader log too, and a pipe that nobody drains must not keep them from withdrawing trust.

use std::io::{self, Write as _};
use std::thread::Builder;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use log::{LevelFilter, Log, Metadata, Record};

use crate::clock;

/// Starts logging, at `level` unless `RUST_LOG` names another one.
pub(crate) fn start(level: LevelFilter) {
    let wanted = std::env::var("RUST_LOG").ok().and_then(|text| text.parse().ok());
    let (lines, queue) = bounded(QUEUE);
    let writer = Builder::new().name("log".to_owned()).spawn(move || write(&queue));
    if writer.is_ok() && log::set_logger(Box::leak(Box::new(Stderr { lines }))).is_ok() {
        log::set_max_level(wanted.unwrap_or(level));
    }
}

struct Stderr {
    lines: Sender<Line>,
}

enum Line {
    Text(String),
    /// Everything before it is written.
    Flush(Sender<()>),
}

impl Log for Stderr {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            let (at, level) = (clock::rfc3339(clock::now()), record.level());
            let line = format!("{at} {level:5} {}: {}\n", record.target(), record.args());
            // With a queue that is full, the line is lost rather than time.
            self.lines.try_send(Line::Text(line)).ok();
        }
    }

    fn flush(&self) {
        let (done, written) = bounded(1);
        if self.lines.send_timeout(Line::Flush(done), PATIENCE).is_ok() {
            written.recv_timeout(PATIENCE).ok();
        }
    }
}

fn write(queue: &Receiver<Line>) {
    for line in queue {
        match line {
            // One write a line. A log that nobody reads any more is no reason to end.
            Line::Text(text) => drop(io::stderr().lock().write_all(text.as_bytes())),
            Line::Flush(done) => drop(done.send(())),
        }
    }
}

/// Lines that wait to be written.
const QUEUE: usize = 1024;

/// For what is left at the end.
const PATIENCE: Duration = Duration::from_millis(500);
