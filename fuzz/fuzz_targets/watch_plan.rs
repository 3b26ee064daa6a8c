//! After any sequence of actions, the plan is what a plain list says.
#![no_main]

use rustls_reload::fuzzing::Plan;
use rustls_reload_fuzz::plan_model::{Action, Model};

libfuzzer_sys::fuzz_target!(|input: (bool, Vec<Action>)| {
    let (files_too, actions) = input;
    let (mut plan, mut model) = (Plan::new(files_too), Model::new(files_too));
    for action in &actions {
        model.act(&mut plan, action);
        model.check(&plan);
    }
    model.remove_all(&mut plan);
});
