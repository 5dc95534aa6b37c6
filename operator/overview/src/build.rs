//! The overview of a hub, from its objects. Pure.

use std::collections::{BTreeMap, HashMap};

use jiff::Timestamp;
use knative_operator_shared::api::fleet::{ClusterAttention, Template};
use knative_operator_shared::api::{ClusterProfileReference, Component, Condition, KnativeFleet};
use knative_operator_shared::fleet::placement::{decided, selected};
use knative_operator_shared::fleet::stage::Stages;
use knative_operator_shared::label::FLEET;
use serde_json::Value;

use super::component::{self, conditions};
use super::events::Events;
use super::foreign;
use super::model::{AttentionView, ClusterView, ComponentView, ConnectionView, FleetView, Overview, StageView, State};
use super::names::Names;
use super::properties::{self, AllTraits};
use super::remedy;
use super::remedy_row::Remedy;
use super::snapshot::{Key, Snapshot, Watched};
use knative_operator_objects::text;

/// Identifier of the hub itself.
pub const LOCAL: &str = "local";

/// The overview of the hub with the objects in `snapshot`.
pub fn overview(snapshot: &Snapshot, now: Timestamp) -> Overview {
    let events = Events::of(snapshot, now);
    let mut clusters = clusters(snapshot, &events, now);
    let has_fleets = snapshot.all(Watched::Fleets).next().is_some();
    let traits = if has_fleets { properties::all_traits(snapshot) } else { BTreeMap::new() };
    let fleets: Vec<FleetView> = snapshot
        .all(Watched::Fleets)
        .map(|(key, fleet)| fleet_view(snapshot, key, fleet, &events, (&clusters, &traits)))
        .collect();
    for fleet in &fleets {
        let name = format!("{}/{}", fleet.namespace, fleet.name);
        for id in fleet.stages.iter().flat_map(|stage| &stage.clusters) {
            let empty = || cluster(snapshot, id);
            let cluster = clusters.entry(id.clone()).or_insert_with(empty);
            cluster.fleet.get_or_insert_with(|| name.clone());
        }
    }
    properties::add(snapshot, &mut clusters);
    let clusters: Vec<ClusterView> = clusters.into_values().collect();
    let mut by_state: BTreeMap<&'static str, usize> = BTreeMap::new();
    for cluster in &clusters {
        *by_state.entry(cluster.state.as_str()).or_default() += 1;
    }
    let is_ready = clusters.iter().all(|cluster| cluster.state == State::Ready);
    let unread = |(kind, error): (Watched, &str)| format!("{}: {error}", kind.resource().plural);
    let mut overview = Overview {
        ready: is_ready && fleets.iter().all(|fleet| fleet.ready),
        clusters_by_state: by_state,
        notes: snapshot.errors().map(unread).collect(),
        fleets,
        clusters,
    };
    foreign::sanitize(&mut overview);
    overview
}

/// The clusters with a resource, by identifier.
fn clusters(snapshot: &Snapshot, events: &Events<'_>, now: Timestamp) -> BTreeMap<String, ClusterView> {
    let mut clusters: BTreeMap<String, ClusterView> = BTreeMap::new();
    for (component, kind) in Component::ALL.into_iter().zip([Watched::Servings, Watched::Eventings]) {
        for (key, resource) in snapshot.all(kind) {
            let id = target(resource);
            let cluster = clusters.entry(id.clone()).or_insert_with(|| cluster(snapshot, &id));
            let view = component::view(component, resource, snapshot.note(kind, key), events, now);
            if cluster.components.is_empty() || view.state > cluster.state {
                cluster.state = view.state;
            }
            cluster.connection = cluster.connection.take().or_else(|| connection(&id, &view));
            cluster.components.push(view);
            let fleet = resource.pointer("/metadata/labels").and_then(|labels| labels[FLEET].as_str());
            if let Some(fleet) = fleet {
                cluster.fleet = Some(format!("{}/{fleet}", text(resource, "/metadata/namespace")));
            }
        }
    }
    clusters
}

/// Identifier of the cluster that `resource` is installed on.
pub fn target(resource: &Value) -> String {
    let name = text(resource, "/spec/clusterProfileRef/name");
    if name.is_empty() {
        return LOCAL.to_owned();
    }
    format!("{}/{name}", text(resource, "/spec/clusterProfileRef/namespace"))
}

/// The cluster `id`, without components.
fn cluster(snapshot: &Snapshot, id: &str) -> ClusterView {
    let key: Option<Key> = id.split_once('/').map(|(namespace, name)| (namespace.to_owned(), name.to_owned()));
    let profile = key.and_then(|key| snapshot.get(Watched::Profiles, &key));
    let providers = profile.map(|profile| {
        let status = &profile["status"];
        let lists = [&status["accessProviders"], &status["credentialProviders"]];
        lists.into_iter().filter_map(Value::as_array).flatten().collect::<Vec<_>>()
    });
    let providers = providers.unwrap_or_default();
    let server = providers.iter().map(|provider| text(provider, "/cluster/server")).find(|server| !server.is_empty());
    ClusterView {
        id: id.to_owned(),
        state: State::Pending,
        fleet: None,
        server: server.map(str::to_owned),
        providers: providers.iter().map(|provider| text(provider, "/name").to_owned()).collect(),
        properties: BTreeMap::new(),
        connection: None,
        components: Vec::new(),
    }
}

/// What the condition `TargetClusterResolved` of `component` says about the connection to `id`.
fn connection(id: &str, component: &ComponentView) -> Option<ConnectionView> {
    let resolved = component.conditions.iter().find(|condition| condition.type_ == "TargetClusterResolved")?;
    let connected = match resolved.status.as_str() {
        "True" => Some(true),
        "False" => Some(false),
        _ => None,
    };
    (id != LOCAL).then(|| ConnectionView { connected, since: resolved.last_transition_time.clone() })
}

fn fleet_view(
    snapshot: &Snapshot,
    key: &Key,
    object: &Value,
    events: &Events<'_>,
    (clusters, traits): (&BTreeMap<String, ClusterView>, &AllTraits),
) -> FleetView {
    let (namespace, name) = key;
    let conditions = conditions(object);
    let is_true = |type_: &str| conditions.iter().any(|c| c.type_ == type_ && c.status == "True");
    let is_current = object.pointer("/status/observedGeneration") == object.pointer("/metadata/generation");
    let (headline, found) = problem(&conditions).unzip();
    let found = found.flatten();
    let field = |name: &str| headline.and_then(|c| if name == "reason" { c.reason.clone() } else { c.message.clone() });
    let (reason, message) = (field("reason").unwrap_or_default(), field("message").unwrap_or_default());
    let fleet = snapshot.fleet(key);
    let status = fleet.and_then(|fleet| fleet.status.clone()).unwrap_or_default();
    let names = Names { kind: "knativefleets", name, namespace, ..Names::default() };
    let mut members = fleet.map(|fleet| members(snapshot, fleet, clusters, traits)).unwrap_or_default();
    let stages = status.stages.iter().map(|stage| StageView {
        name: stage.name.clone(),
        state: status.shown_state(stage),
        total: stage.clusters,
        updated: stage.updated,
        updating: stage.updating,
        failed: stage.failed,
        deferred: stage.deferred,
        approved_by: stage.approved_by.clone(),
        waits_for: stage.waits_for.clone(),
        until: stage.until.clone(),
        started_at: stage.started_at.clone(),
        finished_at: stage.finished_at.clone(),
        clusters: members.remove(&stage.name).unwrap_or_default(),
    });
    let attention = status.attention.iter().map(|ClusterAttention { cluster, reason, message }| {
        let names = Names { profile: &cluster.name, profile_namespace: &cluster.namespace, ..names };
        let remedy = remedy::advice_for_attention(reason, &names);
        AttentionView { cluster: cluster.to_string(), reason: reason.clone(), message: message.clone(), remedy }
    });
    FleetView {
        namespace: namespace.clone(),
        name: name.clone(),
        ready: is_true("Ready") && is_current,
        remedy: found.map(|found| found.advice(&names)),
        reason,
        message,
        paused: is_true("Paused"),
        current_revision: status.current_revision.clone(),
        update_revision: status.update_revision.clone(),
        versions: fleet.map(versions).unwrap_or_default(),
        rollouts: status.rollouts.clone(),
        stages: stages.collect(),
        attention: attention.collect(),
        events: events.about(("KnativeFleet", namespace, name)),
        conditions,
    }
}

/// The versions of the templates of `fleet`, by kind. Those that overrides change are not there.
fn versions(fleet: &KnativeFleet) -> BTreeMap<&'static str, String> {
    let is_same = |component: Component| {
        let mut patches = fleet.spec.overrides.iter().filter_map(|change| change.patch(component).get("spec"));
        patches.all(|spec| spec.is_object() && spec.get("version").is_none())
    };
    let templates =
        [(Component::Serving, fleet.spec.serving.as_ref()), (Component::Eventing, fleet.spec.eventing.as_ref())];
    let version = |(component, template): (Component, Option<&Template>)| {
        let version = template?.spec.get("version")?.as_str().filter(|_| is_same(component))?;
        Some((component.kind(), version.to_owned()))
    };
    templates.into_iter().filter_map(version).collect()
}

/// The most important one of the `conditions` of a fleet, and what to do about it.
pub fn problem(conditions: &[Condition]) -> Option<(&Condition, Option<&'static Remedy>)> {
    let headline = headline(conditions)?;
    let text = |text: Option<&String>| text.cloned().unwrap_or_default();
    let (reason, message) = (text(headline.reason.as_ref()), text(headline.message.as_ref()));
    let found = remedy::find(&headline.type_, &reason, &message);
    let is_ready = conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True");
    // A Ready fleet needs nothing, unless clusters leave it.
    Some((headline, found.filter(|found| !is_ready || found.condition.starts_with("Removal"))))
}

/// The most important condition: what stops the fleet, else `Ready`.
fn headline(conditions: &[Condition]) -> Option<&Condition> {
    let find = |type_: &str| conditions.iter().find(|condition| condition.type_ == type_);
    let is_true = |condition: &&Condition| condition.status == "True";
    let stopped = |condition: &&Condition| {
        matches!(condition.reason.as_deref(), Some("AwaitingApproval" | "WaitingForClusters" | "RollingBack"))
    };
    // A pause ends none of these.
    let failed = |condition: &&Condition| {
        matches!(condition.reason.as_deref(), Some("RolledBack" | "RevisionNotStored" | "FinalizerNotStored"))
    };
    // The other conditions are those of the time before.
    let standing = |condition: &&Condition| {
        matches!(condition.reason.as_deref(), Some("InvalidSpec" | "ClustersUnknown" | "Protected"))
    };
    let has_failed = |condition: &&Condition| condition.reason.as_deref() == Some("TooManyFailures");
    find("Ready")
        .filter(standing)
        .or_else(|| find("RemovalBlocked").filter(is_true))
        .or_else(|| find("Paused").filter(has_failed))
        .or_else(|| find("Progressing").filter(failed))
        .or_else(|| find("RemovalPending").filter(is_true))
        .or_else(|| find("Paused").filter(is_true))
        .or_else(|| find("Progressing").filter(stopped))
        .or_else(|| find("Ready"))
}

/// Identifiers of the clusters of `fleet` by the name of their stage.
fn members(
    snapshot: &Snapshot,
    fleet: &KnativeFleet,
    clusters: &BTreeMap<String, ClusterView>,
    traits: &AllTraits,
) -> HashMap<String, Vec<String>> {
    let namespace = fleet.metadata.namespace.as_deref().unwrap_or_default();
    let name = format!("{namespace}/{}", fleet.metadata.name.as_deref().unwrap_or_default());
    let placement = &fleet.spec.placement;
    let selected = if let Some(decision) = &placement.decision {
        let slices = snapshot.all(Watched::Decisions).map(|(_, slice)| slice.as_ref());
        decided(decision, decision.namespace.as_deref().unwrap_or(namespace), slices).unwrap_or_default()
    } else {
        let all = traits.iter().map(|(reference, traits)| (reference, traits.borrowed()));
        selected(placement, namespace, all).unwrap_or_default()
    };
    let mut ids: Vec<String> = selected.iter().map(ToString::to_string).collect();
    if ids.is_empty() {
        // The user may not read ClusterProfiles.
        ids.extend(clusters.values().filter(|c| c.fleet.as_ref() == Some(&name)).map(|cluster| cluster.id.clone()));
    }
    let Ok(stages) = Stages::of(&fleet.spec.rollout) else { return HashMap::new() };
    let mut members: HashMap<String, Vec<String>> = HashMap::new();
    for id in ids {
        let reference = id.split_once('/').map(|(namespace, name)| ClusterProfileReference {
            name: name.to_owned(),
            namespace: namespace.to_owned(),
        });
        let traits = reference.and_then(|reference| traits.get(&reference)).cloned().unwrap_or_default();
        let stage = &stages.settings()[stages.index_of(&traits)];
        members.entry(stage.name.clone()).or_default().push(id);
    }
    members
}

#[cfg(test)]
mod tests {
    use knative_operator_fleet::status;
    use knative_operator_shared::api::KnativeFleetStatus;
    use serde_json::json;

    use super::*;

    fn view(status: &KnativeFleetStatus) -> FleetView {
        let mut snapshot = Snapshot::default();
        snapshot.set(
            Watched::Fleets,
            json!({"apiVersion": "operator.knative.dev/v1alpha1", "kind": "KnativeFleet",
                "metadata": {"namespace": "platform", "name": "prod", "generation": 1},
                "spec": {"placement": {"clusterSelector": {}}, "serving": {"spec": {"version": "1.23.0"}}}, "status": status}),
        );
        overview(&snapshot, Timestamp::UNIX_EPOCH).fleets.into_iter().next().unwrap()
    }

    #[test]
    fn each_state_in_which_a_fleet_stands_has_a_remedy() {
        let now = Timestamp::UNIX_EPOCH;
        let before: KnativeFleetStatus = serde_json::from_value(json!({"conditions": [
            {"type": "Paused", "status": "True", "reason": "TooManyFailures", "message": "before"},
            {"type": "RemovalPending", "status": "True", "reason": "GracePeriod", "message": "before"}]}))
        .unwrap();
        for (reason, status) in [
            ("InvalidSpec", status::invalid(&before, Some(1), "now", now)),
            ("ClustersUnknown", status::unknown(&before, Some(1), "now", now)),
            ("Protected", status::protected(&before, Some(1), "now", now)),
            ("DeletionNotConfirmed", status::unconfirmed(&before, Some(1), "now", now)),
        ] {
            let view = view(&status);
            assert_eq!((view.reason.as_str(), view.message.as_str()), (reason, "now"));
            let text = view.remedy.unwrap().text;
            assert!(text.contains(" prod -n platform"), "{text}");
        }
        for reason in ["RevisionNotStored", "FinalizerNotStored"] {
            let mut status = KnativeFleetStatus::default();
            status::withheld(&KnativeFleetStatus::default(), &mut status, (reason, "now"), now);
            let view = view(&status);
            assert_eq!(view.reason, reason);
            assert!(view.remedy.unwrap().text.starts_with("Correct what the API server says"), "{reason}");
        }
    }

    #[test]
    fn fleet_has_its_versions_and_what_its_stages_wait_for() {
        let status =
            serde_json::from_value(json!({"rollouts": [{"revision": "prod-1", "startedAt": "then"}], "stages": [
            {"name": "all", "state": "Progressing", "approvedBy": "jane", "waitsFor": "clusters", "until": "soon"}]}));
        let view = view(&status.unwrap());
        assert_eq!(view.versions, BTreeMap::from([("KnativeServing", "1.23.0".to_owned())]));
        assert_eq!(view.rollouts[0].revision, "prod-1");
        let stage = &view.stages[0];
        let texts = [&stage.approved_by, &stage.waits_for, &stage.until].map(Option::as_deref);
        assert_eq!(texts, [Some("jane"), Some("clusters"), Some("soon")]);
    }

    #[test]
    fn version_of_some_clusters_only_is_none_of_the_fleet() {
        let versions_with = |patch: Value| {
            let fleet = json!({"apiVersion": "operator.knative.dev/v1alpha1", "kind": "KnativeFleet", "metadata": {"name": "prod"},
                "spec": {"placement": {"clusterSelector": {}}, "serving": {"spec": {"version": "1.23.0"}},
                    "overrides": [{"clusterSelector": {}, "serving": patch}]}});
            versions(&serde_json::from_value(fleet).unwrap())
        };
        let all = BTreeMap::from([("KnativeServing", "1.23.0".to_owned())]);
        assert_eq!(versions_with(json!({"spec": {"config": {}}})), all);
        assert!(versions_with(json!({"spec": {"version": "1.22.1"}})).is_empty());
        assert!(versions_with(json!({"spec": null})).is_empty());
    }

    #[test]
    fn clusters_that_leave_and_clusters_that_need_attention_have_remedies() {
        for (reason, expected) in [
            ("GracePeriod", "before the time in the message"),
            ("Protected", "operator.knative.dev/protected-`"),
            ("Unavailable", "make them available"),
            ("Paused", "`knative-operator fleet resume prod -n platform`"),
        ] {
            let status: KnativeFleetStatus = serde_json::from_value(json!({"conditions": [
                {"type": "Ready", "status": "True", "reason": "Ready", "message": ""},
                {"type": "RemovalPending", "status": "True", "reason": reason, "message": ""}],
                "attention": [{"cluster": {"namespace": "f", "name": "a"}, "reason": "Duplicate", "message": "why"}]}))
            .unwrap();
            let view = view(&status);
            let advice = view.remedy.unwrap();
            assert!(advice.text.contains(expected) && advice.can_recover, "{advice:?}");
            let [AttentionView { cluster, reason, message, remedy: Some(advice) }] = view.attention.as_slice() else {
                panic!("{:?}", view.attention);
            };
            assert_eq!((cluster.as_str(), reason.as_str(), message.as_str()), ("f/a", "Duplicate", "why"));
            assert!(advice.text.ends_with(": `kubectl edit clusterprofiles a -n f`"), "{advice:?}");
        }
    }
}
