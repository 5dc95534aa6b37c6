//! The stored resources of a fleet.

use jiff::Timestamp;
use knative_operator_rules as rules;
use knative_operator_shared::api::{ClusterProfile, Component, Condition, Knative, KnativeFleet};
use knative_operator_shared::condition::{READY, TARGET_CLUSTER_RESOLVED};
use knative_operator_shared::defaults::set_defaults;
use knative_operator_shared::fleet::placement::unhealthy;
use knative_operator_shared::label::{
    ADOPT, FLEET_CONTENT, FLEET_OUTCOME, FLEET_PREVIOUS, FLEET_REVISION, FLEET_SKIPPED, FLEET_STAGE, FLEET_UPDATED_AT,
};
use knative_operator_shared::reason::Reason;
use knative_operator_shared::version::Version;
use serde_json::{Value, json};

use super::member::{Applied, HubFault, Reported};
use super::progress::NOT_OBSERVED;
use super::template::ChildRecord;
use super::versions;

/// Length of the digest of the content that version 0.2.0 and earlier ones recorded.
const EARLIER_CONTENT: usize = 16;

/// What `resource` records about its rollout.
pub fn record(resource: &Knative) -> ChildRecord {
    let annotation = |name: &str| resource.annotation(name).map(str::to_owned);
    ChildRecord {
        revision: annotation(FLEET_REVISION).unwrap_or_default(),
        previous: annotation(FLEET_PREVIOUS),
        stage: annotation(FLEET_STAGE),
        outcome: annotation(FLEET_OUTCOME).and_then(|outcome| outcome.parse().ok()),
        updated_at: annotation(FLEET_UPDATED_AT).unwrap_or_default(),
        version: resource.common().version.clone(),
    }
}

/// Whether `fleet` may adopt `resource`: it is in its namespace, has the annotation, and no fleet
/// owns it.
pub fn is_adoptable(fleet: &KnativeFleet, resource: &Knative) -> bool {
    let mut owners = resource.meta().owner_references.iter().flatten();
    resource.meta().namespace == fleet.metadata.namespace
        && resource.annotation(ADOPT) == Some("true")
        && !owners.any(|reference| reference.kind == "KnativeFleet")
}

/// The version that `resource` has, for what the versions of its fleet mean.
pub fn known_version(resource: &Knative) -> Option<Version> {
    // Of one that a fleet wrote: somebody else's may ask for anything.
    let asked = resource.annotation(FLEET_REVISION).and_then(|_| resource.common().version.as_deref());
    versions::known(resource.installed_version(), reported(resource) != Reported::Nothing, asked)
}

/// What the annotation of a resource says whose cluster is skipped in the rollout of `revision`
/// since a generation of the fleet: another change of the fleet is not meant.
pub fn skipped(revision: &str, since: i64) -> String {
    format!("{revision}/{since}")
}

/// The state of `resource`; `manifest` is what was applied, if its revision is known.
pub fn applied(resource: &Knative, manifest: Option<&Value>) -> Applied {
    let ChildRecord { revision, previous, stage, outcome, updated_at, version } = record(resource);
    Applied {
        revision,
        previous,
        stage,
        outcome,
        // One that can't be read must not fail for it.
        since: if updated_at.is_empty() { Timestamp::UNIX_EPOCH } else { updated_at.parse().unwrap_or(Timestamp::MAX) },
        content: content(resource, manifest)
            .and_then(|digits| u128::from_str_radix(digits, 16).ok())
            .unwrap_or_default(),
        installed: resource.installed_version(),
        ready: ready(resource),
        has_drifted: manifest
            .is_some_and(|manifest| has_content(resource, manifest) && has_drifted(resource, manifest)),
        is_terminating: resource.is_terminating(),
        reported: reported(resource),
        skipped: resource.annotation(FLEET_SKIPPED).map(str::to_owned),
        version,
    }
}

/// What the operator has reported of `resource`. A new one has a generation that nothing has, by
/// default of the CustomResourceDefinition.
fn reported(resource: &Knative) -> Reported {
    let finalizer = resource.component().finalizer();
    let has_finalizer = resource.meta().finalizers.iter().flatten().any(|name| name == finalizer);
    match resource.status().map(|status| status.observed_generation) {
        // Without the finalizer, nothing more is reported.
        _ if resource.is_terminating() && !has_finalizer => Reported::Current,
        None => Reported::Nothing,
        Some(Some(generation)) if generation < 0 => Reported::Nothing,
        Some(generation) if generation == resource.meta().generation => Reported::Current,
        Some(_) => Reported::Earlier,
    }
}

/// Since when `resource` is Ready in its current generation and version; or reason and message.
fn ready(resource: &Knative) -> Result<Timestamp, (String, String)> {
    let waiting = |reason: &str, message: &str| Err((reason.to_owned(), message.to_owned()));
    let status = match (reported(resource), resource.status()) {
        (Reported::Earlier, _) => {
            return waiting(NOT_OBSERVED, "the operator has not reported its state since its last change");
        }
        (Reported::Current, Some(status)) if status.observed_generation == resource.meta().generation => status,
        (Reported::Current, _) => {
            return waiting("NotReady", "the resource is being deleted, and a finalizer of others holds it");
        }
        (Reported::Nothing, _) => return waiting(NOT_OBSERVED, "the resource has no status yet"),
    };
    let condition = status.conditions.iter().find(|condition| condition.type_ == READY);
    let Some(condition) = condition.filter(|condition| condition.status == "True") else {
        let text = |text: Option<&String>| text.cloned().unwrap_or_default();
        let (reason, message) =
            condition.map(|c| (text(c.reason.as_ref()), text(c.message.as_ref()))).unwrap_or_default();
        return Err((if reason.is_empty() { "NotReady".to_owned() } else { reason }, message));
    };
    // A resource that an earlier version wrote may mean several versions: one is installed.
    let is_asked = |installed: Version| installed.satisfies(resource.common().version.as_deref());
    if !resource.installed_version().is_some_and(is_asked) && resource.common().manifests.is_empty() {
        return waiting("Reconciling", "the version is not installed yet");
    }
    Ok(condition.since().unwrap_or(Timestamp::UNIX_EPOCH))
}

/// Why the cluster of `resource` can't be reached, if its status says so.
pub fn unreachable(resource: &Knative) -> Option<String> {
    unresolved(
        resource,
        &[Reason::ClusterProfileNotReady, Reason::RemoteClusterUnreachable, Reason::RemoteClusterStale],
    )
}

/// Why a cluster that leaves a fleet is not available, with the resources `own` of the fleet and
/// `profile`: it is not healthy or not reachable, or nobody knows. `None` if nothing began there:
/// then, nothing is uninstalled.
pub fn unavailable(own: &[&Knative], profile: Option<&ClusterProfile>) -> Option<String> {
    if !own.iter().any(|resource| resource.has_begun()) {
        return None;
    }
    let unreachable = || own.iter().find_map(|resource| unreachable(resource));
    let fault = || own.iter().find_map(|resource| hub_fault(resource)).map(|fault| fault.message);
    unhealthy(profile).or_else(unreachable).or_else(fault)
}

/// The fault of the hub that hides the state of the cluster of `resource`, if its status has one.
pub fn hub_fault(resource: &Knative) -> Option<HubFault> {
    let common = [
        Reason::MulticlusterDisabled,
        Reason::AccessProviderNotConfigured,
        Reason::AccessProviderFailed,
        Reason::ClusterProviderClosed,
    ];
    let of_one = [
        Reason::ClusterProfileUnavailable,
        Reason::ClusterProfileNotFound,
        Reason::ClusterProfileNotPermitted,
        Reason::CredentialNotBound,
        Reason::RemoteClientCreationFailed,
        Reason::RemoteClusterUnauthorized,
    ];
    let fault = |is_common| move |message| HubFault { message, is_common };
    let found = unresolved(resource, &common).map(fault(true));
    found.or_else(|| unresolved(resource, &of_one).map(fault(false)))
}

/// The message of `resource` about its cluster, if it is not resolved for one of `reasons`.
fn unresolved(resource: &Knative, reasons: &[Reason]) -> Option<String> {
    let conditions = resource.status().into_iter().flat_map(|status| &status.conditions);
    let is_unreachable = |condition: &&Condition| {
        condition.type_ == TARGET_CLUSTER_RESOLVED
            && condition.status != "True"
            && condition.reason.as_deref().is_some_and(|reason| reasons.iter().any(|known| known.as_str() == reason))
    };
    conditions.into_iter().find(is_unreachable).map(|condition| condition.message.clone().unwrap_or_default())
}

/// The digest of the content that `resource` records.
fn recorded_content(resource: &Knative) -> Option<&str> {
    resource.annotation(FLEET_CONTENT)
}

/// The digest of the content of `resource`. That of an earlier version is the start of the one in
/// `manifest`.
fn content<'a>(resource: &'a Knative, manifest: Option<&'a Value>) -> Option<&'a str> {
    let whole = manifest.filter(|manifest| has_content(resource, manifest));
    let whole = whole.and_then(|manifest| manifest["metadata"]["annotations"][FLEET_CONTENT].as_str());
    whole.or_else(|| recorded_content(resource))
}

/// Whether `resource` was applied with the content of `manifest`. Without it, the labels of its
/// cluster changed, and so its overrides: the next update is part of the rollout.
fn has_content(resource: &Knative, manifest: &Value) -> bool {
    let wanted = manifest["metadata"]["annotations"][FLEET_CONTENT].as_str();
    match (recorded_content(resource), wanted) {
        (Some(recorded), Some(wanted)) if recorded.len() == EARLIER_CONTENT => wanted.starts_with(recorded),
        (recorded, wanted) => recorded == wanted,
    }
}

/// Whether somebody else changed `resource`, of which `manifest` was applied.
fn has_drifted(resource: &Knative, manifest: &Value) -> bool {
    let Ok(wanted) = rules::parse(resource.component(), &with_defaults(resource.component(), manifest)) else {
        return false;
    };
    let meta = |path: &str, own: Option<&std::collections::BTreeMap<String, String>>| {
        let wanted = manifest.pointer(path).and_then(Value::as_object).into_iter().flatten();
        // The content was compared, and the outcome is what the resource says.
        let mut wanted = wanted.into_iter().filter(|(key, _)| ![FLEET_CONTENT, FLEET_OUTCOME].contains(&key.as_str()));
        wanted.any(|(key, value)| own.and_then(|own| own.get(key)).map(String::as_str) != value.as_str())
    };
    // An earlier version wrote no label of the revision: the next update does.
    let mut labels = resource.meta().labels.clone().unwrap_or_default();
    let revision = manifest["metadata"]["labels"][FLEET_REVISION].as_str().unwrap_or_default();
    labels.entry(FLEET_REVISION.to_owned()).or_insert_with(|| revision.to_owned());
    spec(resource) != spec(&wanted)
        || meta("/metadata/labels", Some(&labels))
        || meta("/metadata/annotations", resource.meta().annotations.as_ref())
}

/// `manifest` with the defaults of the webhook.
pub fn with_defaults(component: Component, manifest: &Value) -> Value {
    let mut manifest = manifest.clone();
    set_defaults(component, &mut manifest);
    manifest
}

/// The spec of `resource`.
pub fn spec(resource: &Knative) -> Value {
    match resource {
        Knative::Serving(serving) => json!(serving.spec),
        Knative::Eventing(eventing) => json!(eventing.spec),
    }
}

/// A JSON merge patch that removes the fields of the spec that `manifest` lacks. Server-side apply
/// can't, because somebody else owns them.
pub fn removals(resource: &Knative, manifest: &Value) -> Value {
    let wanted = with_defaults(resource.component(), manifest);
    json!({"spec": removed(&spec(resource), &wanted["spec"])})
}

fn removed(from: &Value, to: &Value) -> Value {
    let (Value::Object(from), Value::Object(to)) = (from, to) else { return json!({}) };
    let removed = from.iter().filter_map(|(key, value)| match to.get(key) {
        None => Some((key.clone(), Value::Null)),
        Some(wanted) => Some((key.clone(), removed(value, wanted))).filter(|(_, patch)| *patch != json!({})),
    });
    Value::Object(removed.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(value: &Value) -> Knative {
        let mut whole = json!({"apiVersion": "operator.knative.dev/v1beta1", "kind": "KnativeServing", "metadata": {"name": "a", "namespace": "b", "generation": 2}, "spec": {"version": "1.22"}});
        json_patch::merge(&mut whole, value);
        rules::parse(Component::Serving, &whole).unwrap()
    }

    #[test]
    fn resource_is_ready_in_its_generation_and_version() {
        let condition = json!([{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
        let of = |status: Value| ready(&resource(&json!({"status": status}))).map_err(|(reason, _)| reason);
        let status = json!({"observedGeneration": 2, "version": "1.22.1", "conditions": condition});
        assert_eq!(of(status), Ok("2026-01-01T00:00:00Z".parse().unwrap()));
        assert_eq!(
            of(json!({"observedGeneration": 1, "version": "1.22.1", "conditions": condition})),
            Err("NotObserved".into())
        );
        assert_eq!(
            of(json!({"observedGeneration": 2, "version": "1.21.3", "conditions": condition})),
            Err("Reconciling".into())
        );
        let waiting = json!([{"type": "Ready", "status": "False", "reason": "NotReady"}]);
        assert_eq!(of(json!({"observedGeneration": 2, "conditions": waiting})), Err("NotReady".into()));
    }

    #[test]
    fn default_status_reports_nothing_and_a_foreign_finalizer_lets_nobody_report() {
        let of = |value: Value| {
            let applied = applied(&resource(&value), None);
            (applied.reported, applied.ready.unwrap_err().0)
        };
        let status = |generation: i64| json!({"observedGeneration": generation});
        // The API server writes it in each new resource.
        assert_eq!(of(json!({"status": status(-1)})), (Reported::Nothing, NOT_OBSERVED.to_owned()));
        assert_eq!(of(json!({})), (Reported::Nothing, NOT_OBSERVED.to_owned()));
        assert_eq!(of(json!({"status": status(1)})), (Reported::Earlier, NOT_OBSERVED.to_owned()));
        assert_eq!(of(json!({"status": status(2)})), (Reported::Current, "NotReady".to_owned()));
        let kept_by = |finalizer: &str| {
            let metadata = json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": [finalizer]});
            of(json!({"metadata": metadata, "status": status(1)}))
        };
        assert_eq!(kept_by(Component::Serving.finalizer()), (Reported::Earlier, NOT_OBSERVED.to_owned()));
        assert_eq!(kept_by("example.com/other"), (Reported::Current, "NotReady".to_owned()));
        // What it has is what the fleet asked for, as long as nothing is reported.
        let revision = json!({"metadata": {"annotations": {FLEET_REVISION: "a"}}, "spec": {"version": "1.22.1"}});
        let with = |status: Value| {
            let mut whole = revision.clone();
            json_patch::merge(&mut whole, &json!({"status": status}));
            known_version(&resource(&whole)).map(|version| version.to_string())
        };
        assert_eq!((with(status(-1)).as_deref(), with(status(2))), (Some("1.22.1"), None));
    }

    #[test]
    fn change_by_somebody_else_is_drift_and_is_repaired() {
        let manifest = json!({"metadata": {"labels": {"l": "1"}, "annotations": {}}, "spec": {"version": "1.22", "config": {"a": {"b": "c"}}, "security": {}}});
        let stored = json!({"metadata": {"labels": {"l": "1", "own": "2"}}, "spec": {"config": {"a": {"b": "c"}}, "security": {"securityGuard": {"enabled": false}}}});
        assert!(!has_drifted(&resource(&stored), &manifest));
        for change in [
            json!({"spec": {"config": {"a": {"b": "d"}}}}),
            json!({"spec": {"config": {"x": {"y": "z"}}}}),
            json!({"spec": {"config": null}}),
            json!({"spec": {"version": null, "registry": {"default": "r"}}}),
            json!({"metadata": {"labels": {"l": null}}}),
        ] {
            let mut changed = stored.clone();
            json_patch::merge(&mut changed, &change);
            let changed = resource(&changed);
            assert!(has_drifted(&changed, &manifest), "{change}");
            let mut repaired = json!({"metadata": {"labels": {"l": "1"}}, "spec": spec(&changed)});
            json_patch::merge(&mut repaired, &removals(&changed, &manifest));
            // Server-side apply.
            json_patch::merge(&mut repaired, &json!({"spec": manifest["spec"]}));
            assert!(!has_drifted(&resource(&repaired), &manifest), "{change}: {repaired}");
        }
    }

    #[test]
    fn content_of_other_labels_is_no_drift() {
        let with =
            |digest: &str| json!({"metadata": {"annotations": {FLEET_CONTENT: digest}}, "spec": {"version": "1.23"}});
        let stored = resource(&json!({"metadata": {"annotations": {FLEET_CONTENT: "1"}}}));
        assert!(applied(&stored, Some(&with("1"))).has_drifted);
        assert!(!applied(&stored, Some(&with("2"))).has_drifted);
    }

    #[test]
    fn content_of_an_earlier_version_is_known() {
        let (earlier, whole) = ("0123456789abcdef", "0123456789abcdef0123456789abcdef");
        let manifest = json!({"metadata": {"annotations": {FLEET_CONTENT: whole}}, "spec": {"version": "1.22"}});
        let with = |digest: &str| resource(&json!({"metadata": {"annotations": {FLEET_CONTENT: digest}}}));
        for digest in [earlier, whole] {
            let applied = applied(&with(digest), Some(&manifest));
            assert_eq!((applied.content, applied.has_drifted), (0x0123_4567_89ab_cdef_0123_4567_89ab_cdef, false));
        }
        let other = applied(&with(&earlier[1..]), Some(&manifest));
        assert_eq!(other.content, 0x0123_4567_89ab_cdef);
        assert_eq!(applied(&with(earlier), None).content, 0x0123_4567_89ab_cdef);
    }

    #[test]
    fn unreachable_cluster_differs_from_a_fault_of_the_hub() {
        let with = |reason: &str| {
            resource(
                &json!({"status": {"conditions": [{"type": "TargetClusterResolved", "status": "False", "reason": reason, "message": "m"}]}}),
            )
        };
        let is = |reason: &str| (unreachable(&with(reason)).is_some(), hub_fault(&with(reason)).is_some());
        assert_eq!(is("RemoteClusterUnreachable"), (true, false));
        for reason in ["AccessProviderFailed", "RemoteClusterUnauthorized", "ClusterProviderClosed"] {
            assert_eq!(is(reason), (false, true), "{reason}");
        }
        assert_eq!(is("ClusterProfileNotFound"), (false, true));
        let is_common = |reason: &str| hub_fault(&with(reason)).is_some_and(|fault| fault.is_common);
        assert!(is_common("AccessProviderFailed") && !is_common("CredentialNotBound"));
    }
}
