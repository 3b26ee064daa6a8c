//! The language: one command a line, checked before anything runs. What a command does stands in `stage.rs`.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// One scenario.
pub(crate) struct Script {
    pub(crate) name: String,
    pub(crate) place: Place,
    /// Modes that it cannot run in, with the reason.
    pub(crate) not: Vec<(String, String)>,
    pub(crate) lines: Vec<Line>,
}

/// Where a script runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// On a thread, beside others.
    Shared,
    /// In a process of its own: it changes something that belongs to the process.
    Process,
    /// In a process with mounts of its own.
    Mounts,
    /// In a process that has to obey permissions, root or not.
    Unprivileged,
}

/// One command: `verb argument … option=value …`.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) number: usize,
    pub(crate) text: String,
    pub(crate) verb: String,
    pub(crate) args: Vec<String>,
    pub(crate) options: BTreeMap<String, String>,
}

/// Verb, fewest and most arguments, options.
const VERBS: &[(&str, usize, usize, &[&str])] = &[
    // How the script runs.
    ("alone", 0, 1, &[]),
    ("not", 2, 99, &[]),
    // The reloader.
    ("start", 0, 2, &["cert", "key", "ca", "secret", "combined", "certbot", "resync"]),
    // The writer.
    ("write", 1, 1, CONTENT),
    ("replace", 1, 1, CONTENT),
    ("swap", 1, 2, &["gen", "samekey", "ca"]),
    ("rename", 2, 2, &[]),
    ("exchange", 2, 2, &[]),
    ("link", 2, 2, &[]),
    ("relink", 2, 2, &[]),
    ("hardlink", 2, 2, &[]),
    ("copy", 2, 2, &[]),
    ("copy-preserving-times", 2, 2, &[]),
    ("unlink", 1, 99, &[]),
    ("remove-tree", 1, 99, &[]),
    ("mkdir", 1, 99, &[]),
    ("fifo", 1, 1, &[]),
    ("chmod", 2, 99, &[]),
    ("touch", 1, 99, &[]),
    ("touch-times", 1, 1, &["like"]),
    ("chdir", 1, 1, &[]),
    ("mount", 1, 99, RAW),
    ("umount", 1, 99, RAW),
    // Others.
    ("chatter", 1, 1, &["every", "for"]),
    ("read-loop", 1, 99, &["every", "for"]),
    ("join", 0, 0, &[]),
    ("pause", 1, 1, &[]),
    // What has to come of it.
    ("mark", 0, 0, &[]),
    ("may-serve", 1, 99, &[]),
    ("expect", 0, 1, EXPECT),
];

const CONTENT: &[&str] =
    &["cert", "key", "samekey", "ca", "text", "nul", "cut", "pad", "chunks", "pause", "mode"];

const EXPECT: &[&str] = &[
    "serial",
    "generation",
    "ca",
    "health",
    "says",
    "failures",
    "recoveries",
    "reloads",
    "reloads<",
    "within",
    "for",
];

/// Everything is an argument, equal signs included.
const RAW: &[&str] = &["*"];

impl Script {
    /// Parses a file; an error names file and line.
    pub(crate) fn parse(path: &Path, text: &str) -> Result<Self, String> {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let mut script = Self { name, place: Place::Shared, not: Vec::new(), lines: Vec::new() };
        if !text.starts_with("# ") {
            return Err(format!(
                "{}:1: the first line has to say what happens, and which bug it guards",
                path.display()
            ));
        }
        for (index, text) in text.lines().enumerate() {
            let number = index + 1;
            script
                .line(number, text)
                .map_err(|error| format!("{}:{number}: {error}: {text}", path.display()))?;
        }
        Ok(script)
    }

    fn line(&mut self, number: usize, text: &str) -> Result<(), String> {
        let code = text.split('#').next().unwrap_or_default().trim();
        // The longest names are not for reading.
        let code = code.replace("<250>", &"n".repeat(250));
        let mut words = code.split_whitespace();
        let Some(verb) = words.next() else {
            return Ok(());
        };
        let (_, fewest, most, known) = VERBS
            .iter()
            .find(|(known, ..)| *known == verb)
            .ok_or_else(|| format!("no such command: {verb}"))?;
        let (mut args, mut options) = (Vec::new(), BTreeMap::new());
        for word in words {
            match word.split_once('=') {
                Some((key, value)) if known != &RAW => {
                    if !known.contains(&key) {
                        return Err(format!("{verb} has no option {key}"));
                    }
                    options.insert(key.to_owned(), value.to_owned());
                }
                _ => args.push(word.to_owned()),
            }
        }
        if !(*fewest..=*most).contains(&args.len()) {
            return Err(format!("{verb} takes {fewest} to {most} arguments"));
        }
        match verb {
            "alone" => {
                self.place = match args.first().map(String::as_str) {
                    None => Place::Process,
                    Some("mounts") => Place::Mounts,
                    Some("unprivileged") => Place::Unprivileged,
                    Some(other) => return Err(format!("no such place: {other}")),
                }
            }
            "not" => self.not.push((args.remove(0), args.join(" "))),
            _ => {
                let line = Line { number, text: text.trim().into(), verb: verb.into(), args, options };
                self.lines.push(line);
            }
        }
        Ok(())
    }
}

impl Line {
    pub(crate) fn option(&self, key: &str) -> Option<&str> {
        self.options.get(key).map(String::as_str)
    }

    pub(crate) fn number(&self, key: &str) -> Result<Option<u64>, String> {
        let parse = |text: &str| text.parse().map_err(|_| format!("{key}={text} is no number"));
        self.option(key).map(parse).transpose()
    }

    pub(crate) fn duration(&self, key: &str) -> Result<Option<Duration>, String> {
        self.option(key).map(duration).transpose()
    }

    pub(crate) fn has(&self, word: &str) -> bool {
        self.args.iter().any(|arg| arg == word)
    }
}

/// `250ms` or `2s`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text} is no duration, such as 250ms or 2s");
    let (number, unit) = match text.strip_suffix("ms") {
        Some(number) => (number, 1),
        None => (text.strip_suffix('s').ok_or_else(wrong)?, 1000),
    };
    Ok(Duration::from_millis(number.parse::<u64>().map_err(|_| wrong())? * unit))
}
