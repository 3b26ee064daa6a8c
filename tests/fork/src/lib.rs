//! Nothing: the test is in `tests/fork.rs`.
