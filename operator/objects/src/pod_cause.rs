//! Why a Pod does not make its workload available, from its status as kubelets write it (1.33 to
//! 1.37), and from the events about it. Pure.

use jiff::Timestamp;

use super::cause::{Cause, CauseKind, Extra, LAST_STEP, Needs};
use super::foreign_text::{last_words, name as bounded_name, pull_error, runtime_error, scheduler_text, tidy};
use super::identity::Id;
use super::pod::{ContainerStatus, Pod, PodEvent, State, Terminated};

/// Seconds that a Pod may need for each step before it counts as a cause.
const GRACE: i64 = 10;
/// Seconds that a container may run before it is Ready: gateways wait for their controller.
const READY_GRACE: i64 = 30;
/// Seconds for which a container that was restarted counts as crashing: the maximum back-off.
const CRASH_PERIOD: i64 = 300;
/// Exit codes of containers that somebody stopped: kubelet, after a probe of liveness.
const STOPPED: [i64; 3] = [0, 137, 143];

/// Why the workload `id` is not available, from its Pods among `pods`: from those of its newest
/// template. `None` if they don't tell.
pub fn of_workload<'p>(id: &Id, pods: &'p [Pod], now: Timestamp) -> Option<(Cause, &'p Pod)> {
    let own: Vec<&Pod> = pods.iter().filter(|pod| pod.is_of(id)).collect();
    let (ending, alive): (Vec<&Pod>, Vec<&Pod>) =
        own.into_iter().partition(|pod| pod.metadata.deletion_timestamp.is_some());
    let Some(newest) = alive.iter().max_by(|a, b| a.metadata.creation_timestamp.cmp(&b.metadata.creation_timestamp))
    else {
        let last =
            ending.into_iter().max_by(|a, b| a.metadata.deletion_timestamp.cmp(&b.metadata.deletion_timestamp))?;
        let until = last.metadata.deletion_timestamp.clone()?;
        return Some((Cause::new(CauseKind::Draining, "", bounded_name(&until)), last));
    };
    // Pods that were evicted stay; others are in their place.
    let is_replaced = |pod: &Pod| {
        id.kind != "Job" && pod.status.phase == "Failed" && alive.iter().any(|other| other.status.phase != "Failed")
    };
    let owner = newest.controller().map(|owner| &owner.uid);
    let newest = alive.iter().filter(|pod| pod.controller().map(|owner| &owner.uid) == owner && !is_replaced(pod));
    // By name, so that the same Pod is asked again.
    let causes = newest.filter_map(|pod| Some((of_pod(pod, now)?, *pod)));
    causes.min_by(|(a, pod), (b, other)| (a.kind, &pod.metadata.name).cmp(&(b.kind, &other.metadata.name)))
}

/// Why `pod` does not work; `None` if it does, or may soon.
pub fn of_pod(pod: &Pod, now: Timestamp) -> Option<Cause> {
    let is_old = |since: Option<&str>| age(since, now).is_some_and(|age| age >= GRACE);
    let status = &pod.status;
    if status.phase == "Failed" && !status.reason.is_empty() {
        // "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Ki. …"
        let message = status.message.split(". Threshold").next().unwrap_or_default();
        return Some(Cause::new(CauseKind::Evicted, "", described(&bounded_name(&status.reason), &tidy(message, pod))));
    }
    if let Some(refused) = pod.condition("PodScheduled", "False") {
        let why = if refused.message.is_empty() { &refused.reason } else { &refused.message };
        return Some(Cause::new(CauseKind::Scheduling, "", scheduler_text(why, pod)));
    }
    if pod.spec.node_name.is_empty() {
        let is_late = is_old(Some(&pod.metadata.creation_timestamp));
        return is_late.then(|| Cause::new(CauseKind::Scheduling, "", "no scheduler has tried yet"));
    }
    let scheduled = pod.condition("PodScheduled", "True").and_then(|c| c.last_transition_time.as_deref());
    if status.phase == "Pending" && status.start_time.is_none() && status.container_statuses.is_empty() {
        return is_old(scheduled)
            .then(|| Cause::new(CauseKind::Node, "", format!("\"{}\"", bounded_name(&pod.spec.node_name))));
    }
    let containers = || status.init_container_statuses.iter().chain(&status.container_statuses);
    if let Some(cause) = containers().filter_map(|container| of_container(pod, container, now)).min_by_key(|c| c.kind) {
        return Some(cause);
    }
    let creating = containers().find(|container| is_creating(&container.state));
    if let Some(container) = creating.filter(|_| is_old(scheduled.or(status.start_time.as_deref()))) {
        let needs = Needs { events: true, ..Needs::default() };
        return Some(Cause { needs, ..Cause::new(CauseKind::Creation, &container.name, "") });
    }
    // The node controller changes this condition only, if a kubelet does not report any more.
    let is_lost = pod.condition("Ready", "False").is_some_and(|ready| ready.reason.is_empty())
        && pod.condition("ContainersReady", "True").is_some();
    is_lost.then(|| Cause::new(CauseKind::Node, "", format!("\"{}\"", bounded_name(&pod.spec.node_name))))
}

/// Seconds since `since` (RFC 3339).
fn age(since: Option<&str>, now: Timestamp) -> Option<i64> {
    let since: Timestamp = since?.parse().ok()?;
    Some(now.duration_since(since).as_secs())
}

fn described(reason: &str, message: &str) -> String {
    if message.is_empty() { reason.to_owned() } else { format!("{reason}: {message}") }
}

fn is_creating(state: &State) -> bool {
    state.waiting.as_ref().is_some_and(|w| matches!(w.reason.as_str(), "ContainerCreating" | "PodInitializing"))
}

fn of_container(pod: &Pod, container: &ContainerStatus, now: Timestamp) -> Option<Cause> {
    let (name, image) = (container.name.as_str(), pod.image(&container.name));
    let ended_before = container.last_state.terminated.as_ref();
    if let Some(waiting) = &container.state.waiting {
        let error = || runtime_error(&waiting.message, pod);
        return match waiting.reason.as_str() {
            "ContainerCreating" | "PodInitializing" => None,
            "CrashLoopBackOff" => ended_before.and_then(|ended| crash(pod, container, ended, true)),
            "InvalidImageName" => Some(Cause::new(CauseKind::ImageName, image, "")),
            "ErrImageNeverPull" => {
                let why = "it is not on the node, and imagePullPolicy is Never";
                Some(Cause::new(CauseKind::Image, image, why))
            }
            "ErrImagePull" | "ImagePullBackOff" | "RegistryUnavailable" | "ImageInspectError" => {
                let why = pull_error(&waiting.message, image, pod);
                let needs = Needs { events: why.is_empty(), ..Needs::default() };
                Some(Cause { needs, ..Cause::new(CauseKind::Image, image, why) })
            }
            "CreateContainerConfigError" if is_root(&waiting.message) => {
                Some(Cause::new(CauseKind::RunsAsRoot, name, error()))
            }
            "CreateContainerConfigError" => Some(Cause::new(CauseKind::Configuration, name, error())),
            "" => None,
            reason => {
                let error = error();
                let kind = if is_command(&error) { CauseKind::Command } else { CauseKind::Start };
                Some(Cause::new(kind, name, if error.is_empty() { bounded_name(reason) } else { error }))
            }
        };
    }
    if let Some(ended) = &container.state.terminated {
        let is_init = pod.spec.init_containers.iter().any(|init| init.name == name);
        // The phase follows later.
        let may_end = is_init || matches!(pod.spec.restart_policy.as_str(), "OnFailure" | "Never");
        let is_success = ended.exit_code == 0 && (may_end || pod.status.phase == "Succeeded");
        return if is_success { None } else { crash(pod, container, ended, false) };
    }
    let running = container.state.running.as_ref().filter(|_| !container.ready)?;
    let seconds = age(running.started_at.as_deref(), now).unwrap_or_default();
    if let Some(ended) = ended_before.filter(|_| container.restart_count > 0 && seconds < CRASH_PERIOD) {
        return crash(pod, container, ended, true);
    }
    // An init container that runs is not Ready, unless it is a sidecar.
    let needs = Needs { events: true, ..Needs::default() };
    (seconds >= READY_GRACE).then(|| Cause { needs, ..Cause::new(CauseKind::Readiness, name, "") })
}

/// Whether kubelet refuses a container because it would run as root: by its image or its spec.
fn is_root(error: &str) -> bool {
    error.contains("runAsNonRoot") || error.contains("breaks non-root policy")
}

/// Whether a container can't be started because its command can't be executed.
fn is_command(error: &str) -> bool {
    error.contains("exec: \"") || error.contains("exec format error") || error.contains("no command specified")
}

/// The cause of a container that `ended`, before its last restart if it `restarted`.
fn crash(pod: &Pod, container: &ContainerStatus, ended: &Terminated, restarted: bool) -> Option<Cause> {
    let name = container.name.as_str();
    if ended.reason == "OOMKilled" {
        return Some(Cause::new(CauseKind::Memory, name, bounded_name(pod.memory_limit(name).unwrap_or_default())));
    }
    if matches!(ended.reason.as_str(), "StartError" | "ContainerCannotRun") {
        let error = runtime_error(&ended.message, pod);
        let kind = if is_command(&error) { CauseKind::Command } else { CauseKind::Start };
        return Some(Cause::new(kind, name, error));
    }
    let signal = match ended.exit_code {
        134 => " (SIGABRT)",
        137 => " (SIGKILL)",
        139 => " (SIGSEGV)",
        143 => " (SIGTERM)",
        _ => "",
    };
    let kind = if pod.status.phase == "Failed" { CauseKind::Failure } else { CauseKind::Crash };
    let extra = Extra::last_words(&last_words(&ended.message, pod));
    let events = STOPPED.contains(&ended.exit_code) && kind == CauseKind::Crash;
    let needs = Needs { log: extra.is_none(), previous: restarted, events };
    Some(Cause { extra, needs, ..Cause::new(kind, name, format!("exit code {}{signal}", ended.exit_code)) })
}

/// What `events` about `pod` tell about `cause`.
pub fn from_events(cause: &Cause, pod: &Pod, events: &[PodEvent]) -> Option<Extra> {
    let newest =
        |accept: &dyn Fn(&PodEvent) -> bool| events.iter().filter(|e| accept(e)).max_by_key(|e| e.time().to_owned());
    let probe = |event: &PodEvent| -> Option<Extra> {
        // "Readiness probe failed: HTTP probe failed with statuscode: 503"
        let (probe, answer) = event.message.split_once(": ")?;
        let probe = bounded_name(probe.split(" probe ").next().unwrap_or(probe)).to_lowercase();
        Some(Extra { label: format!("{probe} probe"), text: tidy(answer, pod) })
    };
    match cause.kind {
        CauseKind::Crash => newest(&|e| e.reason == "Unhealthy" && !e.message.starts_with("Readiness")).and_then(probe),
        CauseKind::Readiness => {
            newest(&|e| e.reason == "Unhealthy" && !e.message.starts_with("Liveness")).and_then(probe)
        }
        CauseKind::Creation => {
            let is_trouble = |event: &PodEvent| {
                event.reason.starts_with("Failed")
                    || matches!(event.reason.as_str(), "NetworkNotReady" | "NodeNotReady")
            };
            let trouble = newest(&is_trouble)
                .map(|event| Extra { label: bounded_name(&event.reason), text: runtime_error(&event.message, pod) });
            trouble.or_else(|| {
                let pulling = newest(&|e| matches!(e.reason.as_str(), "Pulling" | "Pulled"))?;
                let is_pulling = pulling.reason == "Pulling";
                is_pulling.then(|| Extra { label: LAST_STEP.to_owned(), text: tidy(&pulling.message, pod) })
            })
        }
        CauseKind::Image => {
            let failed = newest(&|e| e.reason == "Failed" && e.message.starts_with("Failed to pull image "))?;
            let text = pull_error(&failed.message, &cause.subject, pod);
            Some(Extra { label: "registry".to_owned(), text })
        }
        _ => None,
    }
}

/// Why a workload without Pods has none, from the events about it.
pub fn from_events_of_workload(events: &[PodEvent]) -> Option<Cause> {
    let failed = events.iter().filter(|event| event.reason == "FailedCreate").max_by_key(|e| e.time().to_owned())?;
    // create Pod NAME in StatefulSet NAME failed error: pods "NAME" is forbidden: …
    let message = failed.message.split_once(" is forbidden: ").map_or(failed.message.as_str(), |(_, why)| why);
    let message = message.strip_prefix("Error creating: ").unwrap_or(message);
    Some(Cause::new(CauseKind::Refused, "", tidy(message, &Pod::default())))
}

#[cfg(test)]
#[path = "pod_cause_tests.rs"]
mod tests;
