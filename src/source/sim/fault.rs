//! Errors of the disk at every call of a read.
