//! What the targets share: models that are written without a look at the code, and the search for secrets.

#[cfg(fuzzing)]
pub mod files;
pub mod pem_model;
#[cfg(fuzzing)]
pub mod plan_model;
#[cfg(fuzzing)]
pub mod schedule_model;
pub mod secret;
