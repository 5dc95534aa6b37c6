//! The test matrix: each cell brings an installation into a state, lets an event happen, and checks
//! that no Pod of Knative restarted that needn't, that nothing is left or lost, and that the status
//! says what is so.
//!
//! `LIFECYCLE_MATRIX=all` runs all cells, which takes 15 minutes; `LIFECYCLE_MATRIX=Reinstalled`
//! runs those of an event.

mod parts;
mod site;

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use futures::FutureExt;
use knative_operator_tests::process;

use crate::support::run;
use site::Site;

/// What an installation is doing when the event happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Installing,
    Ready,
    Upgrading,
    Uninstalling,
    /// A KnativeFleet upgrades it.
    RollingOut,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    /// The operator is killed and started again.
    Killed,
    /// Its bundle gets a newer minor version.
    Upgraded,
    /// Its bundle loses the version that is installed.
    RolledBack,
    WebhookAway,
    /// The record on the spoke is deleted, without its dependents.
    AnchorDeleted,
    SpokeAway,
    /// The archive of releases is deleted, and the operator restarted.
    ArchiveDeleted,
    /// A backup tool creates the resources again, without status, while no operator runs.
    Recreated,
    DeploymentDeleted,
    /// The namespace of the installation is deleted on the spoke.
    NamespaceDeleted,
    /// The spoke is replaced by an empty cluster with the same address.
    SpokeReplaced,
    /// The hub's etcd is restored to the time of the event, after what follows is over.
    HubRestored,
    /// The chart is uninstalled with live resources, and installed again.
    Reinstalled,
}

const STATES: [State; 5] = [State::Installing, State::Ready, State::Upgrading, State::Uninstalling, State::RollingOut];
const EVENTS: [Event; 13] = [
    Event::Killed,
    Event::Upgraded,
    Event::RolledBack,
    Event::WebhookAway,
    Event::AnchorDeleted,
    Event::SpokeAway,
    Event::ArchiveDeleted,
    Event::Recreated,
    Event::DeploymentDeleted,
    Event::NamespaceDeleted,
    Event::SpokeReplaced,
    Event::HubRestored,
    Event::Reinstalled,
];
/// The cells that always run.
const HEART: [(State, Event); 3] = [
    (State::Installing, Event::SpokeAway),
    (State::Upgrading, Event::RolledBack),
    (State::Uninstalling, Event::Recreated),
];

/// Versions before an upgrade and after it. They differ in labels only: no Pod needs a restart.
const OLD: &str = "1.1.0";
const NEW: &str = "1.2.0";
/// A version that nobody asks for.
const NEXT: &str = "1.3.0";
/// What a spec asks for: a newer patch would be installed, a newer minor version must not be.
const ASKED: [&str; 2] = ["1.1", "1.2"];
/// Versions of the bundle besides those of the small release: at first, and with other operators.
const AT_FIRST: &[&str] = &[NEW];
const UPGRADED: &[&str] = &[NEW, NEXT];
const ROLLED_BACK: &[&str] = &[];
/// Start of the names of archived releases.
const RELEASE: &str = "knative-operator-release-knative-serving-";
/// The Deployment that an event deletes.
const DELETED: &str = "controller";

/// Uid and generation of Deployments and Pods.
type Running = BTreeMap<String, (String, i64)>;

fn cells() -> Vec<(State, Event)> {
    let wanted = std::env::var("LIFECYCLE_MATRIX").unwrap_or_default();
    let is_wanted = |event: Event| wanted == "all" || wanted == format!("{event:?}");
    let cells = STATES.into_iter().flat_map(|state| EVENTS.map(|event| (state, event)));
    cells.filter(|cell| is_wanted(cell.1) || wanted.is_empty() && HEART.contains(cell)).collect()
}

/// The result of a cell.
struct Outcome {
    cell: (State, Event),
    failure: Option<String>,
    took: Duration,
}

/// The results, by state and event.
fn table(outcomes: &[Outcome]) -> String {
    let row = |name: String, cells: [String; EVENTS.len()]| {
        let cells: String = cells.iter().map(|cell| format!(" {cell:>17}")).collect();
        format!("{name:<12}{cells}\n")
    };
    let result = |cell: (State, Event)| match outcomes.iter().find(|outcome| outcome.cell == cell) {
        Some(Outcome { failure: None, took, .. }) => format!("ok {:.0} s", took.as_secs_f64()),
        Some(_) => "FAILED".to_owned(),
        None => "-".to_owned(),
    };
    let rows = STATES.map(|state| row(format!("{state:?}"), EVENTS.map(|event| result((state, event)))));
    row(String::new(), EVENTS.map(|event| format!("{event:?}"))) + &rows.concat()
}

#[test]
fn events_at_bad_times_restart_leave_and_lose_nothing() {
    run(async {
        let folder = tempfile::tempdir()?;
        let mut site = Site::start(folder.path()).await?;
        let mut outcomes = Vec::new();
        for cell in cells() {
            let started = Instant::now();
            let checked = AssertUnwindSafe(Box::pin(site.cell(cell.0, cell.1))).catch_unwind().await;
            let checked = checked.unwrap_or_else(|panic| {
                Err(panic.downcast_ref::<String>().map_or("it panicked", String::as_str).into())
            });
            let (failure, took) = (checked.err().map(|error| error.to_string()), started.elapsed());
            if let Some(why) = &failure {
                eprintln!("{cell:?}: {why}");
                site.recover().await?;
            }
            // The next cell has logs of its own.
            let logs = process::last_words();
            if failure.is_some() {
                eprintln!("{logs}");
            }
            outcomes.push(Outcome { cell, failure, took });
        }
        eprintln!("{}", table(&outcomes));
        let failures = outcomes.iter().filter_map(|o| Some(format!("{:?}: {}", o.cell, o.failure.as_ref()?)));
        let failures: Vec<String> = failures.collect();
        if failures.is_empty() { Ok(()) } else { Err(failures.join("\n\n").into()) }
    });
}
