//! What the library logs, kept for looking at, and printed where that is asked for.

use std::io::{self, Write as _};
use std::sync::Mutex;
use std::thread;

use log::{Level, LevelFilter, Log, Metadata, Record};

/// Keeps every line from `level` on, for the whole process; prints it as well if asked to.
pub(crate) fn keep(level: LevelFilter, print: Print) {
    static LOGGER: Logger = Logger { print: Mutex::new(None) };
    *LOGGER.print.lock().unwrap() = Some(print);
    if log::set_logger(&LOGGER).is_ok() {
        log::set_max_level(level);
    }
}

/// Where lines go besides being kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Print {
    Nowhere,
    Stdout,
    Stderr,
}

/// The warnings until now that contain `text`.
pub(crate) fn warnings(text: &str) -> Vec<String> {
    let kept = KEPT.lock().unwrap();
    let warnings = kept.iter().filter(|(level, line)| *level <= Level::Warn && line.contains(text));
    warnings.map(|(_, line)| line.clone()).collect()
}

struct Logger {
    print: Mutex<Option<Print>>,
}

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("rustls_reload")
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let thread = thread::current();
        let name = thread.name().unwrap_or_default();
        let line = format!("{name} {} {}: {}", record.level(), record.target(), record.args());
        // Past the harness, which keeps what a test prints to itself.
        let print = *self.print.lock().unwrap();
        match print {
            Some(Print::Stdout) => writeln!(io::stdout(), "{line}").ok(),
            Some(Print::Stderr) => writeln!(io::stderr(), "{line}").ok(),
            _ => None,
        };
        if record.level() <= Level::Warn {
            KEPT.lock().unwrap().push((record.level(), line));
        }
    }

    fn flush(&self) {}
}

static KEPT: Mutex<Vec<(Level, String)>> = Mutex::new(Vec::new());
