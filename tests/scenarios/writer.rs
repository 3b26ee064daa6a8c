//! The other side: what the commands do to the disk, and the noise beside them.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use crate::content::{ca, content, issued};
use crate::script::Line;
use crate::stage::{Stage, Stop};

impl Stage<'_> {
    /// Everything that is one call on the disk or two.
    pub(crate) fn file(&self, line: &Line) -> io::Result<()> {
        let first = || self.path(&line.args[0]);
        let second = || self.path(&line.args[1]);
        let all = || line.args.iter().map(|arg| self.path(arg));
        match line.verb.as_str() {
            "rename" => fs::rename(first(), second()),
            "exchange" => exchange(&first(), &second()),
            "link" => symlink(self.target(&line.args[0]), second()),
            "relink" => {
                let new = second().with_file_name(".relink");
                symlink(self.target(&line.args[0]), &new)?;
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

    /// Where a link is to lead: as it is written, with `@` for the directory of the script.
    fn target(&self, text: &str) -> PathBuf {
        match text.strip_prefix("@/") {
            Some(below) => self.dir.join(below),
            None => PathBuf::from(text),
        }
    }

    pub(crate) fn write(&self, line: &Line) -> Result<(), Stop> {
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
    pub(crate) fn swap(&mut self, line: &Line) -> Result<(), Stop> {
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
            symlink(&dated, mount.join("..data_tmp"))?;
            fs::rename(mount.join("..data_tmp"), mount.join("..data"))?;
            for (name, _) in &files {
                let link = mount.join(name);
                if fs::symlink_metadata(&link).is_err() {
                    symlink(Path::new("..data").join(name), link)?;
                }
            }
            match old {
                Some(old) if !line.has("keep-old") => fs::remove_dir_all(mount.join(old)),
                _ => Ok(()),
            }
        };
        put().map_err(|error: io::Error| Stop::Fail(error.to_string()))
    }

    pub(crate) fn mount(&self, line: &Line) -> Result<(), Stop> {
        let mut command = Command::new(&line.verb);
        // What a machine does not allow or not know is no mistake of the library.
        run(command.args(&line.args).current_dir(&self.dir)).map_err(Stop::Skip)
    }

    /// Makes noise beside everything else: in a directory by other names, at a file by its time stamp.
    pub(crate) fn chatter(&mut self, line: &Line) -> Result<(), Stop> {
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

    pub(crate) fn read_loop(&mut self, line: &Line) -> Result<(), Stop> {
        let paths: Vec<_> = line.args.iter().map(|arg| self.path(arg)).collect();
        let every = line.duration("every")?.unwrap_or(Duration::from_millis(1));
        self.beside(line, move || {
            for path in &paths {
                fs::read(path)?;
            }
            thread::park_timeout(every);
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

    pub(crate) fn join(&mut self) -> Result<(), Stop> {
        for thread in self.background.drain(..) {
            thread.join().map_err(|_| "a thread of the script panicked".to_owned())?;
        }
        Ok(())
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
    Err(io::Error::new(io::ErrorKind::Unsupported, "names cannot be exchanged here"))
}
