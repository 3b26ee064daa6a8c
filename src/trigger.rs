//! What made a reloader look at the files.

/// What made a reloader look at the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Trigger {
    /// An event of the kernel.
    Event,
    /// The comparison that is made from time to time: an event was missed, or there are none here.
    Resync,
    /// A call of `reload_now`.
    Manual,
    /// The start.
    Startup,
}

impl Trigger {
    /// All there are.
    pub const ALL: &'static [Self] = &[Self::Event, Self::Resync, Self::Manual, Self::Startup];

    /// A short stable word for metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Event => "event",
            Self::Resync => "resync",
            Self::Manual => "manual",
            Self::Startup => "startup",
        }
    }
}
