//! The thread `tls-reload`: one loop for all identities of a watcher.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, select};

use super::slot::Slot;
use super::tracker::Loaded;
use crate::load::LoadError;
use crate::watch::{SlotId, Touch, Touched, Watch};

/// What handles ask of the thread.
pub(super) enum Command {
    Add(Box<Slot>),
    Remove(SlotId),
    Reload(SlotId, Sender<Result<Loaded, LoadError>>),
    Stop,
}

/// The loop and what it owns.
pub(super) struct Worker {
    pub(super) watch: Arc<Watch>,
    pub(super) commands: Receiver<Command>,
    pub(super) touches: Receiver<Touched>,
    pub(super) busy: Arc<Busy>,
    slots: HashMap<SlotId, Slot>,
    due: BTreeSet<(Instant, SlotId)>,
}

impl Worker {
    pub(super) fn new(
        watch: Arc<Watch>,
        commands: Receiver<Command>,
        touches: Receiver<Touched>,
        busy: Arc<Busy>,
    ) -> Self {
        Self { watch, commands, touches, busy, slots: HashMap::new(), due: BTreeSet::new() }
    }

    /// Runs until it is told to stop.
    pub(super) fn run(mut self) {
        loop {
            let wait =
                self.due.first().map_or(FOREVER, |(at, _)| at.saturating_duration_since(Instant::now()));
            let mut goes_on = true;
            self.busy.end();
            select! {
                recv(self.commands) -> command => {
                    self.busy.begin();
                    goes_on = command.is_ok_and(|command| self.command(command));
                }
                recv(self.touches) -> touched => {
                    self.busy.begin();
                    if let Ok(touched) = touched {
                        self.touched(touched);
                    }
                }
                default(wait) => self.busy.begin(),
            }
            if !goes_on {
                return;
            }
            self.catch_up();
        }
    }

    /// Tells slots of what waits now, each once, then does what is due. What comes meanwhile has to wait: a
    /// file that never rests must not keep commands and other slots from their turn.
    fn catch_up(&mut self) {
        let mut batch: BTreeMap<SlotId, (Touch, Instant)> = BTreeMap::new();
        let mut everything = self.watch.take_overrun().then(Instant::now);
        for touched in self.touches.try_iter().take(self.touches.len()) {
            match touched {
                Touched::Everything { at } => everything = Some(at),
                Touched::Slot { slot, touch, at } => {
                    let (strongest, latest) = batch.entry(slot).or_insert((touch, at));
                    *strongest = touch.max(*strongest);
                    *latest = at;
                }
            }
        }
        match everything {
            Some(at) => self.touched(Touched::Everything { at }),
            None => {
                for (slot, (touch, at)) in batch {
                    self.touched(Touched::Slot { slot, touch, at });
                }
            }
        }
        let now = Instant::now();
        while let Some(&(at, id)) = self.due.first().filter(|(at, _)| *at <= now) {
            self.due.remove(&(at, id));
            self.with_slot(id, |slot, watch| slot.run(watch));
        }
    }

    /// Whether to go on.
    fn command(&mut self, command: Command) -> bool {
        match command {
            Command::Add(slot) => {
                let id = slot.shared.id;
                self.slots.insert(id, *slot);
                self.with_slot(id, |slot, watch| slot.watched(watch));
            }
            Command::Remove(id) => {
                self.watch.remove(id);
                if let Some(slot) = self.slots.remove(&id) {
                    self.due.remove(&(slot.deadline(), id));
                }
            }
            Command::Reload(id, reply) => {
                // Without an answer, the asker learns that the slot is gone.
                self.with_slot(id, |slot, watch| reply.send(slot.reload(watch)).ok());
            }
            Command::Stop => return false,
        }
        true
    }

    fn touched(&mut self, touched: Touched) {
        match touched {
            Touched::Slot { slot, touch, at } => {
                self.with_slot(slot, |slot, watch| slot.touched(watch, touch, at));
            }
            Touched::Everything { at } => {
                for id in self.slots.keys().copied().collect::<Vec<_>>() {
                    self.with_slot(id, |slot, watch| slot.look(watch, at));
                }
            }
        }
    }

    /// Runs something for a slot, and notes when it is due next.
    fn with_slot<T>(&mut self, id: SlotId, run: impl FnOnce(&mut Slot, &Watch) -> T) {
        let Some(slot) = self.slots.get_mut(&id) else {
            return;
        };
        self.due.remove(&(slot.deadline(), id));
        run(slot, &self.watch);
        self.due.insert((slot.deadline(), id));
    }
}

/// Since when the thread is at work, readable without waking it.
#[derive(Debug)]
pub(super) struct Busy {
    epoch: Instant,
    /// Milliseconds since the epoch, plus one; 0 while it waits.
    since: AtomicU64,
}

impl Busy {
    pub(super) fn new() -> Self {
        Self { epoch: Instant::now(), since: AtomicU64::new(0) }
    }

    /// For how long it has been at work at `now`, without a pause.
    pub(super) fn duration(&self, now: Instant) -> Duration {
        let elapsed = now.saturating_duration_since(self.epoch);
        match self.since.load(Ordering::Relaxed) {
            0 => Duration::ZERO,
            since => elapsed.saturating_sub(Duration::from_millis(since - 1)),
        }
    }

    pub(super) fn begin(&self) {
        let millis = u64::try_from(self.epoch.elapsed().as_millis()).unwrap_or(u64::MAX - 1);
        self.since.store(millis + 1, Ordering::Relaxed);
    }

    pub(super) fn end(&self) {
        self.since.store(0, Ordering::Relaxed);
    }
}

/// Nothing is due: wait for a word.
const FOREVER: Duration = Duration::from_secs(3600);
