//! Moves bytes between two sides, both ways at once, until both have said that they are done.
//!
//! One thread, one `poll(2)`, one buffer of fixed size a direction. Knows nothing of who the sides are.

use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// One of two connections. Nothing of it blocks: what cannot be done now fails with
/// [`ErrorKind::WouldBlock`].
pub(crate) trait Side: AsFd {
    /// 0 is an end that the peer announced.
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize>;

    /// Takes bytes, which TLS may hold until [`flush`](Self::flush).
    fn write(&mut self, buf: &[u8]) -> io::Result<usize>;

    /// Sends what TLS holds.
    fn flush(&mut self) -> io::Result<()>;

    /// Whether TLS holds something.
    fn wants_write(&self) -> bool;

    /// Announces the end of what is written; reading goes on. TLS holds the announcement until
    /// [`flush`](Self::flush).
    fn end(&mut self) -> io::Result<()>;

    /// Whether somebody in this process may have ended the connection.
    fn may_be_cut(&self) -> bool {
        false
    }
}

/// Relays until both directions are at their end, or one side broke off, or nothing moved for `idle`.
///
/// A side that breaks off (a reset, or TLS that ends without saying so) ends the relay as soon as the other one
/// has what came before. One that only stops reading does not end what it still sends.
///
/// # Errors
///
/// Why a side broke off; [`ErrorKind::TimedOut`] if nothing moved.
pub(crate) fn run(
    client: &mut impl Side,
    upstream: &mut impl Side,
    idle: Option<Duration>,
) -> io::Result<()> {
    let (mut up, mut down) = (Flow::default(), Flow::default());
    let mut limit = idle.map(|idle| Instant::now() + idle);
    // Such an end is announced for ever, so the client is not asked again while nothing is wanted of it.
    let mut hung_up = false;
    loop {
        // Writes come first: TLS may take bytes in while it writes, and the kernel does not announce these any
        // more. What is read last has read until there was nothing, or has no room.
        let mut moved = up.drain(upstream);
        moved |= down.drain(client);
        if up.is_done() && down.is_done() {
            return Ok(());
        }
        if let Some(error) = up.failure(upstream).or_else(|| down.failure(client)) {
            return Err(error);
        }
        moved |= up.fill(client);
        moved |= down.fill(upstream);
        if moved {
            limit = idle.map(|idle| Instant::now() + idle);
            continue;
        }

        up.buffer.rest();
        down.buffer.rest();
        let of_client = wanted(&up, &down, client);
        let of_upstream = wanted(&down, &up, upstream);
        let looks_for_end = of_client.is_empty() && !hung_up;
        let mut fds = Vec::with_capacity(2);
        // The client is looked at even if nothing is wanted of it: somebody may cut it. The upstream is not: after
        // both sides of it have ended, it would be ready for ever.
        if !of_client.is_empty() || looks_for_end {
            fds.push(PollFd::new(client, of_client));
        }
        if !of_upstream.is_empty() {
            fds.push(PollFd::new(upstream, of_upstream));
        }
        if !wait(&mut fds, limit)? {
            return Err(ErrorKind::TimedOut.into());
        }
        if looks_for_end {
            let events = fds.first().map_or(PollFlags::empty(), PollFd::revents);
            hung_up = events.contains(PollFlags::HUP);
            if events.contains(PollFlags::ERR) || hung_up && client.may_be_cut() {
                return Err(ErrorKind::ConnectionReset.into());
            }
        }
    }
}

/// Waits until `side` is ready; false if that did not happen before `deadline`.
pub(crate) fn wait_for(side: &impl AsFd, wanted: PollFlags, deadline: Instant) -> io::Result<bool> {
    wait(&mut [PollFd::new(side, wanted)], Some(deadline))
}

/// What flows in one direction.
#[derive(Default)]
struct Flow {
    buffer: Buffer,
    source: Source,
    sink: Sink,
}

/// Where the bytes come from.
#[derive(Default)]
enum Source {
    #[default]
    Open,
    /// It said that no more comes.
    Ended,
    /// It broke off.
    Failed(io::Error),
}

/// Where the bytes go.
#[derive(Default, PartialEq, Eq)]
enum Sink {
    #[default]
    Open,
    /// The end is announced, and perhaps not sent yet.
    Ending,
    /// Everything was sent.
    Done,
    /// It takes no more.
    Gone,
}

impl Flow {
    /// Writes until there is nothing left, or `side` takes no more just now. Whether anything moved.
    fn drain(&mut self, side: &mut impl Side) -> bool {
        let mut moved = false;
        match self.send(side, &mut moved) {
            Ok(()) => {}
            Err(error) if is_for_now(&error) => {}
            Err(_) => {
                self.sink = Sink::Gone;
                self.buffer = Buffer::default();
                moved = true;
            }
        }
        moved
    }

    fn send(&mut self, side: &mut impl Side, moved: &mut bool) -> io::Result<()> {
        while !self.is_done() {
            // Before more is given to it: TLS takes more than it can send.
            if side.wants_write() {
                side.flush()?;
                *moved = true;
            }
            if !self.buffer.is_empty() {
                let length = side.write(self.buffer.bytes())?;
                if length == 0 {
                    return Err(ErrorKind::WriteZero.into());
                }
                self.buffer.consume(length);
            } else if !matches!(self.source, Source::Ended) {
                break;
            } else if self.sink == Sink::Open {
                side.end()?;
                self.sink = Sink::Ending;
            } else {
                self.sink = Sink::Done;
            }
            *moved = true;
        }
        Ok(())
    }

    /// Reads until there is nothing, or no room. Whether anything moved.
    fn fill(&mut self, side: &mut impl Side) -> bool {
        let mut moved = false;
        while self.takes_more() {
            match side.read(self.buffer.room()) {
                Ok(0) => self.source = Source::Ended,
                Ok(length) => self.buffer.filled(length),
                Err(error) if is_for_now(&error) => break,
                Err(error) => self.source = Source::Failed(error),
            }
            moved = true;
        }
        moved
    }

    fn takes_more(&self) -> bool {
        matches!(self.source, Source::Open) && self.sink == Sink::Open && self.buffer.has_room()
    }

    fn is_done(&self) -> bool {
        matches!(self.sink, Sink::Done | Sink::Gone)
    }

    /// Why the source broke off, once `sink` has what came before.
    fn failure(&mut self, sink: &impl Side) -> Option<io::Error> {
        let is_sent = self.sink == Sink::Gone || self.buffer.is_empty() && !sink.wants_write();
        match &self.source {
            Source::Failed(_) if is_sent => match std::mem::take(&mut self.source) {
                Source::Failed(error) => Some(error),
                Source::Open | Source::Ended => None,
            },
            _ => None,
        }
    }
}

/// What `side` has to be ready for, to go on with what comes from it and with what goes to it.
fn wanted(from: &Flow, to: &Flow, side: &impl Side) -> PollFlags {
    let mut wanted = PollFlags::empty();
    if from.takes_more() {
        wanted |= PollFlags::IN;
    }
    if !to.is_done() && (!to.buffer.is_empty() || side.wants_write()) {
        wanted |= PollFlags::OUT;
    }
    wanted
}

/// Bytes on their way: filled from behind, and from the front again once all of them are gone. Has memory only
/// while it has bytes: most connections wait most of the time.
#[derive(Default)]
struct Buffer {
    memory: Vec<u8>,
    start: usize,
    end: usize,
}

impl Buffer {
    fn is_empty(&self) -> bool {
        self.start == self.end
    }

    fn has_room(&self) -> bool {
        self.end < ROOM
    }

    fn bytes(&self) -> &[u8] {
        self.memory.get(self.start..self.end).unwrap_or_default()
    }

    fn room(&mut self) -> &mut [u8] {
        self.memory.resize(ROOM, 0);
        self.memory.get_mut(self.end..).unwrap_or_default()
    }

    fn filled(&mut self, length: usize) {
        self.end += length;
    }

    fn consume(&mut self, length: usize) {
        self.start += length;
        if self.is_empty() {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Gives the memory back, if it is empty.
    fn rest(&mut self) {
        if self.is_empty() {
            *self = Self::default();
        }
    }
}

fn is_for_now(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

fn wait(fds: &mut [PollFd<'_>], until: Option<Instant>) -> io::Result<bool> {
    loop {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let timeout = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(fds, timeout.as_ref()) {
            Ok(ready) => return Ok(ready > 0),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Of one direction: what TLS has in one record.
const ROOM: usize = 16 * 1024;
