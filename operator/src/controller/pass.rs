//! One pass: where, what, apply, look, tell. Each step hands a value to the next.

use std::time::{Duration, Instant};

use knative_operator_shared::api::Knative;
use knative_operator_shared::condition::State;
use knative_operator_shared::rules::{self, Surroundings};
use knative_operator_shared::version::Version;

use super::actor::{Memory, Next};
use super::desired::{Desired, Unreadable};
use super::go_operator::Running;
use super::report::{self, Report, Told};
use super::resolve::Failure;
use super::siblings::Key;
use super::verdict::{self, Installation, Verdict};
use super::{Context, finalize, install, resolve};
use crate::release::{self, NoVersion};

/// How soon it is looked again whether the ClusterProfiles were read.
const LOOK: Duration = Duration::from_millis(50);

/// How long the Go operator may take to stop before a resource's status says that it runs: in an upgrade it stops by itself.
const GO_OPERATOR_STOPS: Duration = Duration::from_secs(5);
/// How soon the status says so again if the Go operator overwrites it.
const REMIND: Duration = Duration::from_secs(30);

/// Makes one pass over `desired`.
pub async fn run(cx: &Context, desired: &Desired, memory: &mut Memory) -> Next {
    let resource = &*desired.resource;
    memory.observe(resource);
    if !cx.go_operator.is_known() {
        return Next::After(LOOK);
    }
    if let Some(running) = cx.go_operator.running() {
        return wait_for_go_operator(cx, resource, memory, &running).await;
    }
    if let Some(unreadable) =
        desired.unreadable.as_ref().filter(|unreadable| !(resource.deleting() && unreadable.has_target))
    {
        return report_unreadable(cx, resource, memory, unreadable).await;
    }
    if resource.common().cluster_profile_ref.is_some() && !cx.profiles.looked() {
        // Right after a start nothing is known, and nothing is told.
        return Next::After(LOOK);
    }
    if resource.deleting() {
        return finalize::run(cx, resource, memory).await;
    }
    let outcome = look(cx, resource, memory).await;
    tell(cx, resource, memory, outcome).await
}

/// Does nothing but say that the Go operator still runs, once in a while: it may overwrite the status.
async fn wait_for_go_operator(cx: &Context, resource: &Knative, memory: &mut Memory, running: &Running) -> Next {
    let stops = GO_OPERATOR_STOPS.saturating_sub(running.since.elapsed());
    let reminds = memory.reminded.map_or(Duration::ZERO, |reminded| REMIND.saturating_sub(reminded.elapsed()));
    let pause = stops.max(reminds);
    if !pause.is_zero() {
        return Next::After(pause);
    }
    let Running { lease, holder, .. } = running;
    let (namespace, name) = lease.split_once('/').unwrap_or_default();
    let message = format!(
        "the Go operator is still running: \"{holder}\" renews Lease {lease}. Nothing is written to clusters until it stops. Delete the \
         Deployment that this Pod belongs to; if it is gone already, delete the Lease: kubectl delete lease {name} -n {namespace}"
    );
    memory.reminded = Some(Instant::now());
    match tell(cx, resource, memory, Outcome::of(Verdict::Blocked("GoOperatorRunning", message), Next::Idle)).await {
        Next::Idle => Next::After(REMIND),
        other => other,
    }
}

/// Says why `resource` can't be read. What is installed for it stays as it is.
async fn report_unreadable(cx: &Context, resource: &Knative, memory: &mut Memory, unreadable: &Unreadable) -> Next {
    memory.observer = None;
    let Unreadable { message, has_target } = unreadable;
    let message = if resource.deleting() && !has_target {
        let (kind, namespace, name) = (resource.component().plural(), resource.namespace(), resource.name());
        format!(
            "{message}. The operator doesn't know which cluster to uninstall from: correct the field, or leave everything where it is: \
             kubectl patch {kind} {name} -n {namespace} --type=merge -p '{{\"metadata\":{{\"finalizers\":null}}}}'"
        )
    } else {
        format!("{message}. What is installed stays as it is until the resource is corrected")
    };
    let next =
        tell(cx, resource, memory, Outcome::of(Verdict::Blocked("Unreadable", message.clone()), Next::Idle)).await;
    if next == Next::Retry && memory.advised.as_ref() != Some(&message) {
        // An API server that doesn't ratchet validation refuses the status of an invalid resource.
        cx.events.warning(resource, "Unreadable", message.clone());
        memory.advised = Some(message);
    }
    next
}

/// What a pass came to.
pub struct Outcome {
    /// How far it came.
    pub verdict: Verdict,
    /// What is installed, if that was looked at.
    pub release: Option<Installed>,
    /// When the next one is made.
    pub next: Next,
}

impl Outcome {
    /// It ended with `verdict`.
    pub fn of(verdict: Verdict, next: Next) -> Self {
        Self { verdict, release: None, next }
    }

    /// The installation as a whole can't go on, because.
    pub fn failed(resource: &Knative, why: impl Into<String>, next: Next) -> Self {
        let component = resource.component();
        Self::of(Verdict::Installation(Installation { failed: Some(why.into()), ..Installation::of(component) }), next)
    }
}

/// What is installed.
pub struct Installed {
    /// Its version.
    pub version: Version,
    /// Where its manifests came from.
    pub manifests: Vec<String>,
}

async fn look(cx: &Context, resource: &Knative, memory: &mut Memory) -> Outcome {
    match target(cx, resource) {
        Ok(target) => aim(cx, resource, memory, target).await,
        // What is installed stays, and is kept right.
        Err(why) => {
            let installed = resource.status().and_then(|s| s.version.as_deref()?.parse().ok());
            let Some(version) = installed else { return Outcome::of(Verdict::Ineligible(why, None), Next::Idle) };
            let Outcome { verdict, next, .. } = aim(cx, resource, memory, Target::Version(version)).await;
            Outcome::of(Verdict::Ineligible(why, Some(Box::new(verdict))), next)
        }
    }
}

/// Installs `target`, if the cluster is to be had.
async fn aim(cx: &Context, resource: &Knative, memory: &mut Memory, target: Target) -> Outcome {
    let suspect = memory.suspect || memory.observer.as_ref().is_some_and(|(_, o)| o.seen.take_trouble());
    // The pass after this one rebuilds the connection, which may take a while.
    if !memory.rebuilding
        && let Some(stale) = resolve::stale(cx, resource).await
    {
        (memory.observer, memory.rebuilding) = (None, true);
        return Outcome::of(Verdict::Unresolved(stale), Next::After(Duration::ZERO));
    }
    memory.rebuilding = false;
    let cluster = match resolve::cluster(cx, resource, suspect).await {
        Ok(cluster) => cluster,
        Err(failure) => return unresolved(memory, failure),
    };
    memory.suspect = false;
    let turn = cx.turns.take(&cx.metrics).await;
    if let Some(why) = obstacle(cx, resource) {
        return Outcome::failed(resource, why, Next::Idle);
    }
    match target {
        Target::Version(version) => {
            let outcome = install::run(cx, resource, memory, &cluster, version).await;
            // What went wrong may be the cluster itself: the next pass asks whether it answers before it tries again.
            memory.suspect = outcome.next == Next::Retry
                || matches!(&outcome.verdict, Verdict::Installation(i) if !i.refused.is_empty());
            drop(turn);
            let lost = matches!(&outcome.verdict, Verdict::Installation(i) if i.lost);
            match lost.then_some(resolve::cluster(cx, resource, true)) {
                // That is what is so, and not what became of the objects.
                Some(asked) => asked.await.map_or_else(|failure| unresolved(memory, failure), |_| outcome),
                None => outcome,
            }
        }
        Target::Missing(why, next) => Outcome::failed(resource, why, next),
    }
}

/// The cluster is not to be had. When it is back, everything is looked at anew.
fn unresolved(memory: &mut Memory, failure: Failure) -> Outcome {
    memory.observer = None;
    memory.suspect = true;
    let next = failure.next();
    Outcome::of(Verdict::Unresolved(failure.unresolved), next)
}

/// What stands in the way of installing `resource` at all, until it or another resource changes.
fn obstacle(cx: &Context, resource: &Knative) -> Option<String> {
    // The second line of defence, behind the webhook. What is installed is kept right, whatever rules came later.
    if resource.status().is_none_or(|s| s.version.is_none()) {
        let faults = rules::faults(resource, &Surroundings::default());
        let faults: Vec<String> = faults.iter().filter(|p| p.is_error()).map(ToString::to_string).collect();
        if !faults.is_empty() {
            return Some(faults.join("; "));
        }
    }
    if let Some(elder) = cx.siblings.elder(resource) {
        let Key { component, namespace, name } = elder;
        return Some(format!(
            "{component} {namespace}/{name} is older and installed on the same cluster; delete one of the two"
        ));
    }
    None
}

/// What there is to install.
enum Target {
    /// This version.
    Version(Version),
    /// Nothing: the version that is asked for can't be had.
    Missing(String, Next),
}

/// The version to install; the error says why it may not follow the installed one.
fn target(cx: &Context, resource: &Knative) -> Result<Target, String> {
    match release::version(&cx.library.bundle, resource) {
        Ok(version) => Ok(Target::Version(version)),
        Err(NoVersion::Ineligible(why)) => Err(why.to_string()),
        Err(NoVersion::Unavailable(why)) => Ok(Target::Missing(why.to_string(), Next::Idle)),
        Err(NoVersion::Bundle(why)) => Ok(Target::Missing(why.to_string(), Next::Retry)),
    }
}

/// Tells what a pass came to; when the next one is made.
pub async fn tell(cx: &Context, resource: &Knative, memory: &mut Memory, outcome: Outcome) -> Next {
    let states = verdict::states(verdict::stored(&memory.status(resource).conditions), &outcome.verdict);
    // The version is what was installed last: it is told once every object was accepted.
    let done = states[2] == State::True;
    let release = outcome.release.filter(|_| done);
    let report = Report {
        version: release.as_ref().map(|r| r.version.to_string()),
        manifests: release.map(|r| r.manifests),
        states,
    };
    match (report::publish(cx, resource, memory, &report).await, outcome.next) {
        (Told::Yes, next)
        | (Told::Later(_), next @ Next::Retry)
        | (Told::Later(_) | Told::Quiet(_), next @ Next::Done) => next,
        (Told::Later(pause) | Told::Quiet(pause), Next::After(other)) => Next::After(pause.min(other)),
        (Told::Later(pause) | Told::Quiet(pause), Next::Idle) | (Told::Quiet(pause), Next::Retry) => Next::After(pause),
        (Told::No, _) => Next::Retry,
    }
}
