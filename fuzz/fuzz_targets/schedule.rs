//! Whatever happens and whenever: no touch waits beyond the ceiling, nothing spins, a failure is reported once.
#![no_main]

use rustls_reload_fuzz::schedule_model::{Action, World};

libfuzzer_sys::fuzz_target!(|input: (u8, Vec<Action>)| {
    let (period, actions) = input;
    let mut world = World::new(period);
    actions.iter().for_each(|action| world.act(action));
});
