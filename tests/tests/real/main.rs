//! Knative on real nodes: Pods of the operator, of Knative and of Knative Services in containers,
//! and HTTP requests that they answer.
//!
//! Needs root and minutes, so only `life::hub_installs_knative_on_a_real_spoke` is part of `make
//! test`; `make test-real` sets `REAL_NODES=yes`.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::large_futures)] // these are tests

mod air_gap;
mod beside;
mod canary;
mod compare;
#[path = "../e2e/document.rs"]
#[allow(dead_code, clippy::unused_async)] // these tests use a part of it
mod document;
mod eventing;
mod faults;
mod fleet;
mod gates;
mod healthy;
mod life;
mod policies;
mod preflight;
mod support;
mod traffic;
