//! One reconcile: select the version, resolve the cluster, install, publish the status.

use std::time::{Duration, Instant};

use knative_operator_rules as rules;
use knative_operator_rules::RuleContext;
use knative_operator_shared::api::Knative;
use knative_operator_shared::version::Version;
use knative_operator_shared::way::Way;
use tracing::{Instrument, debug_span};

use super::conditions::ReconcileResult;
use super::context::Context;
use super::desired::{Desired, Unreadable};
use super::outcome::{Outcome, Requeue};
use super::resolve::ResolveFailure;
use super::selection::{VersionChoice, select_version};
use super::state::ReconcilerState;
use super::{finalize, install, moved, resolve, status};
use crate::startup::go_operator::Running;

/// Reason of `InstallSucceeded` of a resource for the hub itself, if nothing is installed there.
const LOCAL_DISABLED: &str = "LocalInstallationDisabled";
/// Interval of checks until the ClusterProfiles are listed.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Time for the Go operator to stop before a status reports it: in an upgrade it stops by itself.
const GO_OPERATOR_STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval of status writes that report a running Go operator, which may overwrite them.
const REPORT_INTERVAL: Duration = Duration::from_secs(30);

/// Reconciles `desired` once.
pub async fn reconcile(cx: &Context, desired: &Desired, state: &mut ReconcilerState) -> Requeue {
    let resource = &*desired.resource;
    state.keeps_status = desired.unreadable.as_ref().is_some_and(|unreadable| !unreadable.has_target);
    state.observe_generation(resource);
    state.allowed_generation = None;
    if !cx.go_operator.is_known() {
        return Requeue::After(CHECK_INTERVAL);
    }
    if let Some(running) = cx.go_operator.running() {
        return wait_for_go_operator(cx, resource, state, &running).await;
    }
    // Also of a cluster that can't be reached.
    keep_release(cx, resource, state);
    if let Some(unreadable) =
        desired.unreadable.as_ref().filter(|unreadable| !(resource.is_terminating() && unreadable.has_target))
    {
        return report_unreadable(cx, resource, state, unreadable).await;
    }
    if resource.common().cluster_profile_ref.is_none() && !cx.installs_locally {
        return ignore_local(cx, resource, state).await;
    }
    if resource.common().cluster_profile_ref.is_some() && !cx.profiles.are_listed() {
        // Right after the start the ClusterProfiles are unknown: keep the status.
        return Requeue::After(CHECK_INTERVAL);
    }
    if resource.is_terminating() {
        return finalize::finalize(cx, desired, state).instrument(debug_span!("finalize")).await;
    }
    let outcome = install_selected(cx, resource, state).await;
    let requeue = status::publish_outcome(cx, resource, state, outcome).await;
    // The version that it has now.
    keep_release(cx, resource, state);
    requeue
}

/// Keeps the release of the installed version, for an operator whose bundle lacks it.
fn keep_release(cx: &Context, resource: &Knative, state: &ReconcilerState) {
    let status = state.status(resource);
    let version = status.version.as_deref().and_then(|version| version.parse().ok());
    if let Some(version) = version {
        let is_new = resource.installed_version().as_ref() != Some(&version);
        cx.library.keep(resource, &version, is_new);
    }
}

/// Only reports, from time to time, that the Go operator is still running: it may overwrite the
/// status.
async fn wait_for_go_operator(
    cx: &Context,
    resource: &Knative,
    state: &mut ReconcilerState,
    running: &Running,
) -> Requeue {
    let until_stopped = GO_OPERATOR_STOP_TIMEOUT.saturating_sub(running.since.elapsed());
    let reported_at = state.go_operator_reported_at;
    let until_next_report = reported_at.map_or(Duration::ZERO, |at| REPORT_INTERVAL.saturating_sub(at.elapsed()));
    let pause = until_stopped.max(until_next_report);
    if !pause.is_zero() {
        return Requeue::After(pause);
    }
    let Running { lease, holder, .. } = running;
    let (namespace, name) = lease.split_once('/').unwrap_or_default();
    let message = format!(
        "the Go operator is still running: \"{holder}\" renews Lease {lease}. The operator writes nothing to clusters until it stops. Delete the \
         Deployment that this Pod belongs to; if it is gone already, delete the Lease: kubectl delete lease {name} -n {namespace}"
    );
    state.go_operator_reported_at = Some(Instant::now());
    match status::publish_outcome(
        cx,
        resource,
        state,
        Outcome::new(ReconcileResult::Blocked("GoOperatorRunning", message), Requeue::AwaitChange),
    )
    .await
    {
        Requeue::AwaitChange => Requeue::After(REPORT_INTERVAL),
        other => other,
    }
}

/// Reports why `resource` is invalid. Its installation stays unchanged.
async fn report_unreadable(
    cx: &Context,
    resource: &Knative,
    state: &mut ReconcilerState,
    unreadable: &Unreadable,
) -> Requeue {
    state.observer = None;
    let Unreadable { message, has_target } = unreadable;
    let message = if resource.is_terminating() && !has_target {
        let (kind, namespace, name) = (resource.component().plural(), resource.namespace(), resource.name());
        format!(
            "{message}. The operator doesn't know from which cluster to uninstall. Correct the field, or leave the installation where it is: \
             kubectl patch {kind} {name} -n {namespace} --type=merge -p '{{\"metadata\":{{\"finalizers\":null}}}}'"
        )
    } else {
        format!("{message}. The installation stays unchanged until you correct the resource")
    };
    let requeue = status::publish_outcome(
        cx,
        resource,
        state,
        Outcome::new(ReconcileResult::Blocked("Unreadable", message.clone()), Requeue::AwaitChange),
    )
    .await;
    if requeue == Requeue::Retry && state.warnings.subject.as_ref() != Some(&message) {
        // API servers without validation ratcheting refuse the status of an invalid resource.
        cx.events.warning(resource, "Unreadable", message.clone());
        state.warnings.subject = Some(message);
    }
    requeue
}

/// Reports that nothing is installed on the hub itself. An installation there stays unchanged.
async fn ignore_local(cx: &Context, resource: &Knative, state: &mut ReconcilerState) -> Requeue {
    state.observer = None;
    let message = if resource.is_terminating() {
        "the operator is installed without permissions for this cluster itself, so it can't uninstall. Upgrade the chart with \
         knative_operator.localInstallation=true"
    } else {
        "spec.clusterProfileRef is missing, and the operator is installed without permissions for this cluster itself. Upgrade the \
         chart with knative_operator.localInstallation=true; to uninstall, delete the resource before you set it to false again"
    };
    let outcome = Outcome::new(ReconcileResult::Blocked(LOCAL_DISABLED, message.to_owned()), Requeue::AwaitChange);
    status::publish_outcome(cx, resource, state, outcome).await
}

async fn install_selected(cx: &Context, resource: &Knative, state: &mut ReconcilerState) -> Outcome {
    match select_version(cx, resource).await {
        Ok(choice) => Box::pin(install_target(cx, resource, state, choice)).await,
        // The installed version stays, and is repaired.
        Err(error) => {
            let why = error.to_string();
            // Own manifests are those of the version that may not follow.
            let installed = resource.installed_version().filter(|_| resource.common().manifests.is_empty());
            let Some(version) = installed else {
                return Outcome::new(ReconcileResult::Ineligible(why, None), Requeue::AwaitChange);
            };
            let installed = VersionChoice::Version(Way::to(version.clone()));
            let outcome = Box::pin(install_target(cx, resource, state, installed)).await;
            let asked = resource.common().version.as_deref();
            // The record on the cluster had the one that the spec means.
            let is_meant = |found: &Version| *found != version && found.satisfies(asked);
            if outcome.release.as_ref().is_some_and(|release| is_meant(&release.version)) {
                return outcome;
            }
            let Outcome { result, release, requeue } = outcome;
            // A step on the way to the one that the spec means, which is finished.
            let release = release.filter(|release| release.version != version);
            Outcome { release, ..Outcome::new(ReconcileResult::Ineligible(why, Some(Box::new(result))), requeue) }
        }
    }
}

/// Installs the version of `choice` on the cluster, if it can be reached.
async fn install_target(
    cx: &Context,
    resource: &Knative,
    state: &mut ReconcilerState,
    choice: VersionChoice,
) -> Outcome {
    let suspect = state.suspect || state.observer.as_ref().is_some_and(|(_, o)| o.observed.take_watch_failure());
    // The next reconcile rebuilds the connection, which may take a while.
    if !state.rebuilding
        && let Some(stale) = resolve::stale_connection(cx, resource).await
    {
        (state.observer, state.rebuilding) = (None, true);
        return Outcome::new(ReconcileResult::Unresolved(stale), Requeue::After(Duration::ZERO));
    }
    state.rebuilding = false;
    let cluster = match resolve::resolve_target(cx, resource, suspect).instrument(debug_span!("resolve")).await {
        Ok(cluster) => cluster,
        Err(failure) => return unresolved(state, failure),
    };
    state.suspect = false;
    if let Some(unresolved) = moved::unidentified(resource, &cluster) {
        (state.observer, state.suspect) = (None, true);
        return Outcome::new(ReconcileResult::Unresolved(unresolved), Requeue::Retry);
    }
    if let Some(outcome) = moved::start_over(cx, resource, state, &cluster).await {
        return outcome;
    }
    state.cluster_uid.clone_from(&cluster.uid);
    let permit = cx
        .reconcile_permits
        .acquire(resource.namespace(), resource.common().cluster_profile_ref.as_ref(), &cx.metrics)
        .await;
    if let Some(why) = obstacle(resource) {
        return Outcome::failed(resource, why, Requeue::AwaitChange);
    }
    match choice {
        VersionChoice::Version(way) => {
            let span = debug_span!("install", version = %way.next);
            let outcome = Box::pin(install::install(cx, resource, state, &cluster, way).instrument(span)).await;
            // The cluster may be the cause of the failure: check it before the next attempt.
            state.suspect = outcome.requeue == Requeue::Retry
                || matches!(&outcome.result, ReconcileResult::Installation(i) if !i.refused.is_empty());
            drop(permit);
            let is_unreachable = matches!(&outcome.result, ReconcileResult::Installation(i) if i.unreachable);
            if is_unreachable && let Err(failure) = resolve::resolve_target(cx, resource, true).await {
                // The unreachable cluster is the cause, not the objects.
                return unresolved(state, failure);
            }
            outcome
        }
        VersionChoice::Unavailable(why, requeue) => Outcome::failed(resource, why, requeue),
    }
}

/// The cluster is unreachable. Once it is back, everything is observed again.
fn unresolved(state: &mut ReconcilerState, failure: ResolveFailure) -> Outcome {
    state.observer = None;
    state.suspect = true;
    let requeue = failure.requeue();
    Outcome::new(ReconcileResult::Unresolved(failure.unresolved), requeue)
}

/// Why `resource` can't be installed, until it or another resource changes.
fn obstacle(resource: &Knative) -> Option<String> {
    // Checks the rules again, for resources that were stored without the webhook. An existing
    // installation is kept, regardless of newer rules.
    if resource.status().is_none_or(|s| s.version.is_none()) {
        let violations = rules::validate(resource, &RuleContext::default());
        let violations: Vec<String> = violations.iter().filter(|p| p.is_error()).map(ToString::to_string).collect();
        if !violations.is_empty() {
            return Some(violations.join("; "));
        }
    }
    None
}
