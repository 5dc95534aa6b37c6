//! `knative-operator ui` in Debian's Chromium: each view, live changes, failures, accessibility,
//! and thousands of clusters. `make test-ui` runs it, and writes pictures to `target/ui`.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::large_futures)] // these are tests

use knative_operator_tests::Result;
use knative_operator_tests::skip::{BROWSER, skip};

mod browser;
mod fake;
mod large;
mod page;
mod phone;
mod site;
mod tabs;
mod views;

/// Runs `test`, unless this is `make test` or the browser is missing.
fn run(test: impl Future<Output = Result<()>>) {
    if std::env::var_os("BROWSER_TESTS").is_none() {
        skip(BROWSER, "make test-ui runs the tests with a browser");
        return;
    }
    if let Err(missing) = browser::is_installed() {
        skip(BROWSER, &missing.clone());
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    if let Err(error) = runtime.block_on(test) {
        panic!("{error:?}");
    }
}
