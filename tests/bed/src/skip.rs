//! Tests that can't run everywhere. All reasons are here. With `REQUIRE_ALL=1`, as in CI, a test
//! that is skipped for another reason fails.

use std::io::Write;

use crate::tools;

/// What a test needs that a machine may lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Another machine or kernel, or a build or run that is too long for each change; why.
    Elsewhere(&'static str),
    /// What each machine can have: its absence is a failure with `REQUIRE_ALL`.
    Everywhere,
}

/// Hours under load: `make chaos` with `SOAK_MINUTES` or `STEADY_SECONDS`.
pub const HOURS: Needs = Needs::Elsewhere("it takes minutes to hours by its nature");
/// Knative on real nodes, Prometheus, Open Cluster Management: `make test-real`,
/// `make test-monitoring`, `make test-managers`.
pub const LONG_BUILD: Needs = Needs::Elsewhere("the programs that it runs take ten minutes to build");
/// Defects of the Go operator, whose version is fixed: `make test-go-suite`.
pub const GO_OPERATOR: Needs = Needs::Elsewhere("what the Go operator does is not what changes here");
/// A browser: `make test-ui`.
pub const BROWSER: Needs = Needs::Elsewhere("it needs a browser of the distribution");
/// The files of a release: `make release`.
pub const RELEASE: Needs = Needs::Elsewhere("make release runs it with the release that it built");
/// Root, or namespaces of the kernel.
pub const KERNEL: Needs = Needs::Elsewhere("it needs root, or namespaces that the kernel refuses");
/// A real node: `make test-real`, `make cluster REAL=yes`.
pub const REAL_NODE: Needs = Needs::Elsewhere("real nodes need a kernel, root and programs that a machine may lack");
/// An emulator for another architecture.
pub const EMULATOR: Needs = Needs::Elsewhere("it needs an emulator of another machine");
/// Control planes of other minor versions: `make test-kubernetes-upgrade`.
pub const OTHER_KUBERNETES: Needs = Needs::Elsewhere("other control planes take minutes to build");
/// The binaries of the last release: `make test-upgrade`.
pub const LAST_RELEASE: Needs = Needs::Elsewhere("the binaries of the last release take minutes to build");
/// End-to-end tests in `tests/package/long-tests.txt`, which names those of the same behavior in
/// `make test`: `make test-long`, and the nightly workflow. `tests/package/run-tests.sh` reports
/// them.
pub const LONG_RUN: Needs = Needs::Elsewhere("it takes minutes: make test-long");
/// cargo-deny, which checks licenses, bans and sources: `make lint` skips it where it isn't
/// installed (Makefile), and the job `advisories` of the workflows builds it.
pub const CARGO_DENY: Needs = Needs::Elsewhere("it takes minutes to build: make advisories builds and runs it");

/// Reports that a test, or a part of it, is skipped because `reason`: on stderr, also of a test
/// that passes, and in `target/skipped.txt`.
///
/// # Panics
///
/// With `REQUIRE_ALL=1`, panics if the test could run on each machine.
pub fn skip(needs: Needs, reason: &str) {
    let why = match needs {
        Needs::Elsewhere(why) => format!(" ({why})"),
        Needs::Everywhere => String::new(),
    };
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    let line = format!("skipped: {test}: {reason}{why}\n");
    // Not `eprintln!`, whose output a passing test hides.
    let _ = std::io::stderr().write_all(line.as_bytes());
    tools::append("skipped.txt", &line);
    let required = std::env::var_os("REQUIRE_ALL").is_some_and(|all| !all.is_empty());
    assert!(!required || needs != Needs::Everywhere, "REQUIRE_ALL: {line}");
}
