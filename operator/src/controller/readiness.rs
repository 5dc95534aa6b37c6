//! Readiness of an installation, from the observed state. Pure apart from the time.

use std::collections::{BTreeMap, HashSet};

use jiff::Timestamp;
use serde_json::Value;

use super::conditions::InstallationReport;
use knative_operator_apply::differ::{Observation, runs_once};
use knative_operator_apply::observed::ObservedState;
use knative_operator_apply::pods::Finding;
use knative_operator_objects::ObjectId;
use knative_operator_objects::health::{Health, Wait};
use knative_operator_objects::plan::{Item, Phase, Plan};

/// Reason of a workload that is not there.
const MISSING: &str = "it does not exist";

/// Causes that Pods have, by workload.
pub type PodCauses = BTreeMap<ObjectId, Finding>;

/// The workloads of `plan` that are not available, with the reason, as far as they have been
/// observed.
pub fn unavailable<'p>(plan: &'p Plan, observed: &ObservedState) -> Vec<(&'p Item, Wait)> {
    let why = |item: &Item| match (observed.health(&item.id), observed.observation(&item.id)) {
        (Some(Health::Ready), _) | (None, Observation::Unknown) => None,
        (Some(Health::Waiting(wait)), _) => Some(wait),
        (Some(Health::Failed(why)), _) => Some(why.as_str().into()),
        (None, Observation::Present { .. }) => Some("its status is not observed yet".into()),
        (None, _) => Some(MISSING.into()),
    };
    workloads(plan).filter_map(|item| Some((item, why(item)?))).collect()
}

/// The workloads of `plan` that answer its webhook configurations: those that the Services of these
/// configurations select.
fn webhooks(plan: &Plan) -> Vec<&Item> {
    let text = |object: &Value, pointer: &str| object.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    let mut called = HashSet::new();
    for configuration in plan.phase(Phase::Webhooks).map(|item| plan.object_of(item)) {
        for webhook in configuration["webhooks"].as_array().into_iter().flatten() {
            let service = &webhook["clientConfig"]["service"];
            called.extend(text(service, "/namespace").zip(text(service, "/name")));
        }
    }
    let is_called = |item: &&Item| called.contains(&(item.id.namespace.clone(), item.id.name.clone()));
    let services: Vec<Value> = plan.phase(Phase::Services).filter(is_called).map(|item| plan.object_of(item)).collect();
    let is_selected = |item: &&Item| {
        let labels = plan.object_of(item).pointer("/spec/template/metadata/labels").cloned().unwrap_or_default();
        services.iter().any(|service| {
            let selector = service["spec"]["selector"].as_object();
            service["metadata"]["namespace"] == item.id.namespace.as_str()
                && selector.is_some_and(|all| all.iter().all(|(key, value)| labels.get(key) == Some(value)))
        })
    };
    workloads(plan).filter(is_selected).collect()
}

/// Whether Knative's webhooks may answer, so that what they admit can be applied. Only they count:
/// a certificate may be what another workload waits for. With `is_new`, they run for the first
/// time, and must have been observed.
pub fn webhooks_run(plan: &Plan, observed: &ObservedState, is_new: bool) -> bool {
    webhooks(plan).iter().all(|item| match observed.health(&item.id) {
        Some(health) => health == Health::Ready,
        None => !is_new,
    })
}

/// `wait`, with the cause that the Pods of `id` have.
pub fn with_cause(wait: Wait, id: &ObjectId, causes: &PodCauses) -> Wait {
    let reason = match causes.get(id) {
        None => return wait,
        Some(Finding::Cause(cause) | Finding::Progress(cause)) => cause.clone(),
        Some(Finding::Unknown(why)) => format!("{}; {why}", wait.reason),
    };
    Wait { reason, ..wait }
}

/// Whether the status of a workload tells all that is known: there are no Pods.
fn is_explained(wait: &Wait) -> bool {
    wait.reason == MISSING || wait.reason.starts_with("FailedCreate")
}

/// Adds the observed state of everything except Jobs to `report`, with the `causes` that are known.
pub fn add(report: &mut InstallationReport, plan: &Plan, observed: &ObservedState, causes: &PodCauses, now: Timestamp) {
    for (item, wait) in unavailable(plan, observed) {
        if let Some(until) = observed.starting_until(&item.id, || planned_replicas(plan, item)) {
            // Asked again then: no event tells that Pods did not start.
            report.starting_until = Some(report.starting_until.map_or(until, |first| first.min(until)));
            continue;
        }
        let name = item.id.name.clone();
        if is_explained(&wait) {
            report.unavailable.push((name, wait));
        } else {
            report.waiting.insert(item.id.clone(), plan.digest(item));
            report.unavailable.push((name, with_cause(wait, &item.id, causes)));
        }
    }
    report.observed = plan.items().iter().all(|item| observed.observation(&item.id) != Observation::Unknown);
    // Objects that a watch found missing after the actions were computed are repaired by the next
    // reconcile: the installation is not complete.
    report.has_missing_objects = plan
        .items()
        .iter()
        .any(|item| !runs_once(item) && matches!(observed.observation(&item.id), Observation::Missing { .. }));
    for item in plan.phase(Phase::Definitions) {
        match observed.health(&item.id) {
            Some(Health::Failed(why)) => report.failures.push(format!("{} is not established: {why}", item.id)),
            Some(Health::Waiting(wait)) if is_overdue(&wait, now) => {
                report.failures.push(format!("{}: {wait}", item.id));
            }
            Some(Health::Waiting(wait)) => report.pending.push(format!("{} ({wait})", item.id)),
            Some(Health::Ready) | None => {}
        }
    }
    let planned: HashSet<_> = plan.items().iter().map(|item| (item.id.group.as_str(), item.id.kind.as_str())).collect();
    report.failures.extend(observed.unwatchable(|group, kind| planned.contains(&(group, kind))));
}

/// The least replicas of a Deployment for which `plan` has an autoscaler: it does what the plan
/// asks for.
fn planned_replicas(plan: &Plan, workload: &Item) -> i64 {
    let scalers = plan
        .items()
        .iter()
        .filter(|item| item.id.kind == "HorizontalPodAutoscaler" && item.id.namespace == workload.id.namespace);
    let specs = scalers.map(|item| plan.object_of(item)["spec"].clone());
    let of_workload = specs.filter(|spec| spec["scaleTargetRef"]["name"] == workload.id.name.as_str());
    of_workload.filter_map(|spec| spec["minReplicas"].as_i64()).max().unwrap_or_default()
}

/// Whether the deadline of `wait` is over.
fn is_overdue(wait: &Wait, now: Timestamp) -> bool {
    wait.deadline.as_ref().is_some_and(|deadline| deadline.parse::<Timestamp>().is_ok_and(|deadline| deadline < now))
}

fn workloads(plan: &Plan) -> impl Iterator<Item = &Item> {
    plan.items().iter().filter(|i| i.id.group == "apps" && matches!(i.id.kind.as_str(), "Deployment" | "StatefulSet"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use knative_operator_shared::api::Component;
    use kube::core::{ApiResource, GroupVersionKind, ObjectMeta};
    use serde_json::json;

    use super::*;
    use knative_operator_apply::differ::Observation;
    use knative_operator_apply::observed::Seen;
    use knative_operator_apply::watch::WatchTarget;
    use knative_operator_objects::CompactObject;
    use knative_operator_objects::Kind;
    use knative_operator_objects::Owner;
    use knative_operator_objects::health::Replicas;
    use knative_operator_objects::plan::Rendered;

    fn plan() -> Plan {
        let object = |api: &str, kind: &str, name: &str| {
            CompactObject::new(&json!({"apiVersion": api, "kind": kind, "metadata": {"name": name}}))
        };
        plan_of(vec![
            object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "xs.g.io"),
            object("apps/v1", "Deployment", "a"),
            object("apps/v1", "StatefulSet", "b"),
        ])
    }

    fn plan_of(objects: Vec<CompactObject>) -> Plan {
        let owner = Owner {
            api_version: "v1".into(),
            kind: "ConfigMap".into(),
            name: "anchor".into(),
            uid: "1".into(),
            namespace: "n".into(),
        };
        Plan::new(Arc::new(Rendered::new(objects)), &owner)
    }

    fn record(observed: &ObservedState, item: &Item, health: Health) {
        let meta = ObjectMeta { uid: Some("u".into()), resource_version: Some("1".into()), ..ObjectMeta::default() };
        observed.record_event(&item.id, &meta, Seen { health: Some(health), replicas: None }, true);
    }

    fn report_of(plan: &Plan, observed: &ObservedState) -> InstallationReport {
        let mut report = InstallationReport::of(Component::Serving);
        add(&mut report, plan, observed, &PodCauses::new(), "2026-01-01T12:00:00Z".parse().unwrap());
        report
    }

    #[test]
    fn missing_workload_is_not_available() {
        let (plan, observed) = (plan(), ObservedState::default());
        observed.set_plan(&plan, &ObjectId::new("", "ConfigMap", "n", "anchor"), "");
        // Nothing is observed yet, so nothing is reported.
        assert_eq!(report_of(&plan, &observed), InstallationReport::of(Component::Serving));
        for item in plan.items() {
            let resource = ApiResource::from_gvk(&item.gvk);
            observed.record_list(&WatchTarget::labeled(Kind { resource, namespaced: true }, ""), &HashSet::new(), 0);
        }
        let names: Vec<_> =
            report_of(&plan, &observed).unavailable.into_iter().map(|(name, wait)| format!("{name}: {wait}")).collect();
        assert_eq!(names, ["a: it does not exist", "b: it does not exist"]);
    }

    #[test]
    fn only_workloads_of_webhooks_are_waited_for() {
        let workload = |name: &str| {
            let template = json!({"metadata": {"labels": {"app": name, "role": name}}});
            let meta = json!({"name": name, "namespace": "n"});
            CompactObject::new(
                &json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": {"template": template}}),
            )
        };
        let service = |name: &str| {
            let (meta, spec) = (json!({"name": name, "namespace": "n"}), json!({"selector": {"app": name}}));
            CompactObject::new(&json!({"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": spec}))
        };
        let configuration = CompactObject::new(&json!({"apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration", "metadata": {"name": "v"},
            "webhooks": [{"clientConfig": {"service": {"namespace": "n", "name": "webhook"}}}]}));
        let plan = plan_of(vec![
            workload("activator"),
            workload("webhook"),
            service("activator"),
            service("webhook"),
            configuration,
        ]);
        let observed = ObservedState::default();
        observed.set_plan(&plan, &ObjectId::new("", "ConfigMap", "n", "anchor"), "");
        let names: Vec<_> = webhooks(&plan).into_iter().map(|item| item.id.name.as_str()).collect();
        assert_eq!(names, ["webhook"]);
        // After a restart, nothing is observed yet.
        assert!(!webhooks_run(&plan, &observed, true) && webhooks_run(&plan, &observed, false));
        let health = |name: &str, health| {
            record(&observed, workloads(&plan).find(|item| item.id.name == name).unwrap(), health);
        };
        // The activator may wait for a certificate that a webhook admits.
        health("activator", Health::Waiting("no Secret".into()));
        health("webhook", Health::Waiting("not yet".into()));
        assert!(!webhooks_run(&plan, &observed, true) && !webhooks_run(&plan, &observed, false));
        health("webhook", Health::Ready);
        assert!(webhooks_run(&plan, &observed, true) && webhooks_run(&plan, &observed, false));
    }

    #[test]
    fn cause_of_pods_replaces_words_of_workload() {
        let (plan, observed) = (plan(), ObservedState::default());
        observed.set_plan(&plan, &ObjectId::new("", "ConfigMap", "n", "anchor"), "");
        let waits = |reason: &str| Health::Waiting(Wait { deadline: Some("later".to_owned()), ..Wait::from(reason) });
        for item in plan.items().iter().filter(|item| item.id.group == "apps") {
            record(&observed, item, waits("MinimumReplicasUnavailable"));
        }
        let id = |kind: &str, name: &str| ObjectId::new("apps", kind, "", name);
        let (a, b) = (id("Deployment", "a"), id("StatefulSet", "b"));
        let causes = PodCauses::from([
            (a.clone(), Finding::Cause("cannot pull".to_owned())),
            (b.clone(), Finding::Unknown("no permission".to_owned())),
        ]);
        let mut report = InstallationReport::of(Component::Serving);
        add(&mut report, &plan, &observed, &causes, "2026-01-01T12:00:00Z".parse().unwrap());
        let texts: Vec<_> = report.unavailable.iter().map(|(name, wait)| format!("{name}: {wait}")).collect();
        assert_eq!(
            texts,
            ["a: cannot pull, deadline later", "b: MinimumReplicasUnavailable; no permission, deadline later"]
        );
        assert_eq!(report.waiting.into_keys().collect::<Vec<_>>(), [a, b]);
        // Nobody creates Pods that a quota refuses.
        for item in plan.items().iter().filter(|item| item.id.group == "apps") {
            record(&observed, item, waits("FailedCreate: exceeded quota"));
        }
        let mut report = InstallationReport::of(Component::Serving);
        add(&mut report, &plan, &observed, &causes, "2026-01-01T12:00:00Z".parse().unwrap());
        assert!(report.waiting.is_empty() && report.unavailable[0].1.reason.ends_with("exceeded quota"));
    }

    #[test]
    fn pods_that_somebody_added_may_start() {
        let (plan, observed) = (plan(), ObservedState::default());
        observed.set_plan(&plan, &ObjectId::new("", "ConfigMap", "n", "anchor"), "");
        let workload = plan.items().iter().find(|item| item.id.kind == "Deployment").unwrap();
        let see = |health: Health, wanted: i64, generation: i64| {
            let meta = ObjectMeta {
                uid: Some("u".into()),
                resource_version: Some(generation.to_string()),
                generation: Some(generation),
                ..ObjectMeta::default()
            };
            let available = if health == Health::Ready { wanted } else { 0 };
            let replicas = Some(Replicas { wanted, available, is_rolling: false });
            let seen = Seen { health: Some(health), replicas };
            observed.record_event(&workload.id, &meta, seen, false);
            let report = report_of(&plan, &observed);
            (report.unavailable.len(), report.starting_until.is_some())
        };
        let waits = || Health::Waiting("it is not available".into());
        assert_eq!(see(waits(), 0, 1), (1, false));
        assert_eq!(see(Health::Ready, 0, 1), (0, false));
        // Knative's controller scales it.
        assert_eq!(see(waits(), 1, 2), (0, true));
        assert_eq!(see(Health::Ready, 1, 2), (0, false));
        // Its Pod crashes.
        assert_eq!(see(waits(), 1, 2), (1, false));
        assert_eq!(see(Health::Ready, 1, 2), (0, false));
        // The operator updates it.
        let meta = ObjectMeta {
            uid: Some("u".into()),
            resource_version: Some("3".into()),
            generation: Some(3),
            ..ObjectMeta::default()
        };
        observed.record_write(&workload.id, &meta);
        assert_eq!(see(waits(), 2, 3), (1, false));
        assert_eq!(see(Health::Ready, 2, 3), (0, false));
        // It updates it once more, and the event comes before the response.
        let mut meta = ObjectMeta { resource_version: Some("4".into()), generation: Some(4), ..meta };
        let digest = knative_operator_shared::label::DIGEST.to_owned();
        meta.annotations = Some([(digest, format!("{:064}", 4))].into());
        let replicas = Some(Replicas { wanted: 3, available: 2, is_rolling: false });
        observed.record_event(&workload.id, &meta, Seen { health: Some(waits()), replicas }, false);
        observed.record_write(&workload.id, &meta);
        assert_eq!(report_of(&plan, &observed).unavailable.len(), 1);
    }

    #[test]
    fn object_that_is_planned_again_keeps_its_health() {
        let (both, observed) = (plan(), ObservedState::default());
        let anchor = ObjectId::new("", "ConfigMap", "n", "anchor");
        let none = plan_of(Vec::new());
        observed.set_plan(&both, &anchor, "");
        let workload = both.items().iter().find(|item| item.id.kind == "Deployment").unwrap();
        record(&observed, workload, Health::Ready);
        // It is not deleted before it is planned again.
        observed.set_plan(&none, &anchor, "");
        observed.set_plan(&both, &anchor, "");
        assert_eq!(observed.health(&workload.id), Some(Health::Ready));
        // It is deleted as obsolete.
        observed.set_plan(&none, &anchor, "");
        let meta = ObjectMeta { uid: Some("u".into()), resource_version: Some("2".into()), ..ObjectMeta::default() };
        observed.record_deletion(&workload.id, &meta);
        observed.set_plan(&both, &anchor, "");
        assert_eq!(observed.health(&workload.id), None);
        assert_eq!(observed.observation(&workload.id), Observation::Unknown);
    }

    #[test]
    fn definition_is_pending_until_deadline() {
        let (plan, observed) = (plan(), ObservedState::default());
        observed.set_plan(&plan, &ObjectId::new("", "ConfigMap", "n", "anchor"), "");
        let definition = plan.phase(Phase::Definitions).next().unwrap();
        let until =
            |deadline: &str| Health::Waiting(Wait { deadline: Some(deadline.to_owned()), ..Wait::from("not yet") });
        record(&observed, definition, until("2026-01-01T12:00:01Z"));
        assert_eq!(
            report_of(&plan, &observed).pending,
            ["CustomResourceDefinition xs.g.io (not yet, deadline 2026-01-01T12:00:01Z)"]
        );
        record(&observed, definition, until("2026-01-01T11:59:59Z"));
        assert_eq!(
            report_of(&plan, &observed).failures,
            ["CustomResourceDefinition xs.g.io: not yet, deadline 2026-01-01T11:59:59Z"]
        );
        record(&observed, definition, Health::Failed("taken".into()));
        assert_eq!(
            report_of(&plan, &observed).failures,
            ["CustomResourceDefinition xs.g.io is not established: taken"]
        );
        record(&observed, definition, Health::Ready);
        assert_eq!((report_of(&plan, &observed).pending.len(), report_of(&plan, &observed).failures.len()), (0, 0));
    }

    #[test]
    fn unwatchable_kind_is_reported_while_in_plan() {
        let (plan, observed) = (plan(), ObservedState::default());
        observed.set_plan(&plan, &ObjectId::new("", "ConfigMap", "n", "anchor"), "");
        let kind = |api: &str, kind: &str, plural: &str| {
            let gvk = GroupVersionKind::gvk(api, "v1", kind);
            Kind { resource: ApiResource::from_gvk_with_plural(&gvk, plural), namespaced: true }
        };
        observed.record_unwatchable(&kind("apps", "Deployment", "deployments"), "no");
        observed.record_unwatchable(&kind("networking.istio.io", "Gateway", "gateways"), "no");
        let message = "cannot watch deployments.apps, so their state is unknown: no";
        assert_eq!(report_of(&plan, &observed).failures, [message]);
        let deployments = WatchTarget::labeled(kind("apps", "Deployment", "deployments"), "");
        observed.record_list(&deployments, &HashSet::new(), 0);
        assert_eq!(report_of(&plan, &observed).failures.len(), 0);
    }
}
