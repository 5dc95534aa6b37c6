//! The fixture on other people's machines: with ports in use, without IPv6, without root, with
//! little memory, with a proxy and clusters of the user, with spaces in paths, with a read-only
//! `/tmp`, beside another clone, and after Ctrl+C.
//!
//! Each test has a network and mounts of its own, so it needs root.

#![allow(clippy::unwrap_used, clippy::panic)]

mod foreign;
mod interrupts;
mod limits;
mod machine;
mod occupied;
mod passage;
