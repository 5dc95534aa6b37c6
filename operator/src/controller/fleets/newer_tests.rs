//! Stored values of a newer version, of each type. This version reads them as before, reads what is
//! stored, or stops; it never reads a default in place of what it can't read. `e2e::newer` checks
//! that nothing follows from such values.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use knative_operator_rules as rules;
use knative_operator_rules::{FleetContext, REQUIRED_OF_FLEETS, validate_fleet};
use knative_operator_shared::api::fleet::{DecisionReference, RemovalPolicy};
use knative_operator_shared::api::{ClusterProfile, ClusterProfileReference, Component, Knative};
use knative_operator_shared::fleet::placement::decided;
use knative_operator_shared::label::CLUSTER_UID;
use knative_operator_shared::{crd, defaults, fleet_crd};
use kube::CustomResourceExt;
use kube::core::DynamicObject;
use serde_json::{Value, json};

use super::{Store, StoredFleet, Watched};
use crate::controller::desired::Desired;
use crate::controller::fleets::contents::{Cache, CachedContents};
use crate::controller::fleets::leave;
use knative_operator_apply::inventory::{Entry, Inventory};
use knative_operator_cluster_access::profile::access;
use knative_operator_cluster_access::provider::Providers;
use knative_operator_objects::{InstallationOwner, ObjectId};

#[path = "../../../../tests/src/newer.rs"]
mod generator;

use generator::{Change, Newer, newer, schema_of};

/// Checks that `read` guesses none of the values `all`, which were made of `value`. It returns
/// nothing for what it can't read.
fn check(value: &Value, all: &[Newer], read: impl Fn(&Value) -> Option<Value>) {
    let before = read(value).unwrap();
    let is_guessed = |newer: &&Newer| read(&newer.value).is_some_and(|read| newer.is_guessed(&before, &read));
    let guessed: Vec<String> = all.iter().filter(is_guessed).map(ToString::to_string).collect();
    assert!(!all.is_empty() && guessed.is_empty(), "{} of {} are guessed: {guessed:#?}", guessed.len(), all.len());
}

/// The schema in `definition`.
fn schema(definition: &Value) -> Value {
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
}

/// Those of the values `all` whose changed field is within `part`.
fn within(all: Vec<Newer>, part: &str) -> Vec<Newer> {
    all.into_iter().filter(|newer| newer.field.starts_with(part)).collect()
}

fn cluster() -> ClusterProfileReference {
    ClusterProfileReference { name: "one".to_owned(), namespace: "fleet-system".to_owned() }
}

fn resource(component: Component) -> Value {
    let own = match component {
        Component::Serving => {
            json!({"ingress": {"kourier": {"enabled": true, "service-type": "ClusterIP"}}, "security": {"securityGuard": {"enabled": true}}})
        }
        Component::Eventing => {
            json!({"defaultBrokerClass": "own", "sinkBindingSelectionMode": "inclusion", "source": {"kafka": {"enabled": true}}})
        }
    };
    let mut object = json!({
        "apiVersion": "operator.knative.dev/v1beta1", "kind": component.kind(), "metadata": {"name": "a", "namespace": "b", "uid": "1"},
        "spec": {
            "version": "1.1.0", "clusterProfileRef": cluster(), "config": {"features": {"a": "enabled"}}, "namespace": {"labels": {"a": "b"}},
            "registry": {"default": "example.com/${NAME}", "override": {"a": "b"}}, "high-availability": {"replicas": 2},
            "workloads": [{"name": "c", "replicas": 2, "env": [{"container": "c", "envVars": [{"name": "A", "value": "b"}]}]}],
            "services": [{"name": "s", "labels": {"a": "b"}}], "podDisruptionBudgets": [{"name": "p", "minAvailable": 1}],
            "additionalManifests": [{"URL": "more.yaml"}],
            "patches": [{"target": {"apiVersion": "v1", "kind": "Service", "name": "s"}, "patch": {"type": "merge", "content": "{}"}}],
        },
        "status": {
            "observedGeneration": 2, "version": "1.1.0", "manifests": ["m"], "annotations": {CLUSTER_UID: "b"},
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        },
    });
    for (field, value) in own.as_object().unwrap() {
        object["spec"][field] = value.clone();
    }
    defaults::set_defaults(component, &mut object);
    object
}

/// Values of a newer version of [`resource`], within `part`. A missing field with a default is
/// readable.
fn newer_resources(component: Component, part: &str) -> Vec<Newer> {
    let mut all = within(newer(&resource(component), &schema(&crd::definition(component))), part);
    let has_default = |value: &Value| {
        let mut with_defaults = value.clone();
        defaults::set_defaults(component, &mut with_defaults);
        with_defaults != *value
    };
    all.retain(|newer| newer.change != Change::Missing || !has_default(&newer.value));
    all
}

fn desired(component: Component, value: &Value) -> Desired {
    Desired::parse(component, serde_json::from_value(value.clone()).unwrap())
}

#[test]
fn resource_is_not_guessed() {
    for component in Component::ALL {
        let read = |value: &Value| {
            let desired = desired(component, value);
            desired.unreadable.is_none().then(|| match &*desired.resource {
                Knative::Serving(serving) => json!(serving),
                Knative::Eventing(eventing) => json!(eventing),
            })
        };
        let mut all = ["/spec", "/status"].map(|part| newer_resources(component, part)).concat();
        // An empty block is as none, as in the Go operator. k8s-openapi reads a missing name as
        // empty: the API server refuses the Deployment, which stays.
        let known = ["/spec/high-availability/replicas", "/spec/workloads/0/env/0/envVars/0/name"];
        all.retain(|newer| newer.change != Change::Missing || !known.contains(&newer.field.as_str()));
        check(&resource(component), &all, read);
    }
}

#[test]
fn unreadable_resource_keeps_its_place_and_version() {
    for component in Component::ALL {
        let known = |desired: &Desired| {
            let version = desired.status().and_then(|status| status.version.clone());
            (desired.common().cluster_profile_ref.clone(), desired.target_namespace().to_owned(), version)
        };
        let before = known(&desired(component, &resource(component)));
        for newer in ["/spec", "/status"].map(|part| newer_resources(component, part)).concat() {
            let desired = desired(component, &newer.value);
            assert_eq!((desired.name(), desired.namespace(), desired.meta().uid.as_deref()), ("a", "b", Some("1")));
            // Without a target, nothing is uninstalled.
            if desired.unreadable.as_ref().is_some_and(|unreadable| unreadable.has_target) {
                assert_eq!(known(&desired), before, "{component}: {newer}");
            }
        }
    }
}

fn fleet() -> Value {
    let template = json!({"version": "1.1.0", "workloads": [{"name": "c", "replicas": 2, "labels": {"a": "b"}}], "registry": {"default": "example.com/${NAME}"}});
    let gates = json!([
        {"name": "answers", "count": 2, "failureLimit": 1, "intervalSeconds": 5, "timeoutSeconds": 7, "http": {"host": "a.b", "path": "/x",
            "service": {"namespace": "n", "name": "s", "port": 8080}, "expectedStatus": 201, "expectedBody": "b", "maxLatencyMilliseconds": 9}},
        {"name": "delivers", "event": {"broker": {"namespace": "n", "name": "b"}, "reply": {"service": {"namespace": "n", "name": "r"}}}},
    ]);
    json!({
        "apiVersion": "operator.knative.dev/v1alpha1", "kind": "KnativeFleet", "metadata": {"name": "prod", "namespace": "b", "uid": "1"},
        "spec": {
            "placement": {
                "clusterSelector": {"matchLabels": {"env": "prod"}, "matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["lab"]}]},
                "propertySelector": {"matchLabels": {"region": "eu"}, "matchExpressions": [{"key": "sku", "operator": "NotIn", "values": ["small"]}]},
                "namespaces": ["fleet-system"],
            },
            "eventing": {"metadata": {"labels": {"a": "b"}, "annotations": {"a": "b"}}, "spec": template},
            "overrides": [{
                "clusterSelector": {"matchExpressions": [{"key": "tier", "operator": "In", "values": ["canary"]}]},
                "propertySelector": {"matchExpressions": [{"key": "region", "operator": "In", "values": ["eu"]}]},
                "eventing": {"spec": {"registry": {"default": "canary.example.com/${NAME}"}}},
            }],
            "rollout": {
                "stages": [{"name": "canary", "clusterSelector": {"matchLabels": {"tier": "canary"}}, "propertySelector": {"matchLabels": {"region": "eu"}}, "maxConcurrent": 2, "maxFailures": "50%",
                    "minReadySeconds": 1, "progressDeadlineSeconds": 60, "approval": "Required", "gates": gates}, {"name": "prod"}],
                "onFailure": "Rollback", "paused": true,
            },
            "removal": {"policy": "Orphan", "maxAtOnce": 1, "gracePeriodSeconds": 60},
            "revisionHistoryLimit": 3,
        },
    })
}

/// The schema of a fleet, with that of its template.
fn fleet_schema() -> Value {
    let [fleet, _] = fleet_crd::definitions();
    let (mut fleet, eventing) = (schema(&fleet), schema(&crd::definition(Component::Eventing)));
    fleet["properties"]["spec"]["properties"]["eventing"]["properties"]["spec"] =
        eventing["properties"]["spec"].clone();
    fleet
}

#[test]
fn fleet_is_not_guessed() {
    let read = |value: &Value| {
        let StoredFleet { fleet, unreadable } = StoredFleet::parse(value, None);
        let violations = validate_fleet(&fleet, &FleetContext::default());
        if unreadable.is_some() || violations.iter().any(|violation| REQUIRED_OF_FLEETS.contains(&violation.rule)) {
            return None;
        }
        let mut read = json!(fleet);
        // The template as its resources are read.
        let template = json!({"metadata": {}, "spec": read["spec"]["eventing"]["spec"]});
        let Ok(Knative::Eventing(eventing)) = rules::parse(Component::Eventing, &template) else { return None };
        read["spec"]["eventing"]["spec"] = json!(eventing.spec);
        Some(read)
    };
    check(&fleet(), &within(newer(&fleet(), &fleet_schema()), "/spec"), read);
}

#[test]
fn unreadable_fleet_is_not_uninstalled() {
    let before = StoredFleet::parse(&fleet(), None).fleet;
    assert_eq!(before.spec.removal.policy, RemovalPolicy::Orphan);
    for newer in within(newer(&fleet(), &fleet_schema()), "/spec") {
        let stored = StoredFleet::parse(&newer.value, Some(&before));
        assert_ne!(leave::policy(&stored, false), Some(RemovalPolicy::Delete), "{newer}");
    }
}

#[test]
fn approval_is_not_guessed() {
    let [_, definition] = fleet_crd::definitions();
    let value = json!({"apiVersion": "operator.knative.dev/v1alpha1", "kind": "KnativeFleetApproval", "metadata": {"name": "a", "namespace": "b"},
        "spec": {"fleet": "prod", "revision": "prod-1", "stage": "canary", "username": "somebody",
            "fleetUID": "1", "fleetGeneration": 3, "digest": "sha256:a"}});
    let read = |value: &Value| {
        let (mut store, key) = (Store::default(), ("b".to_owned(), "a".to_owned()));
        store.set(Watched::Approvals, key.clone(), serde_json::from_value::<DynamicObject>(value.clone()).unwrap());
        store.approvals.get(&key).map(|approval| json!({"spec": approval.spec}))
    };
    check(&value, &within(newer(&value, &schema(&definition)), "/spec"), read);
}

#[test]
fn revision_is_not_guessed() {
    let profile = json!({"metadata": {"name": "one", "labels": {"tier": "canary"}}, "spec": {},
        "status": {"properties": [{"name": "region", "value": "eu"}]}});
    let profile: ClusterProfile = serde_json::from_value(profile).unwrap();
    let profiles = HashMap::from([(cluster(), Arc::new(profile))]);
    let read = |value: &Value| {
        let stored = json!({"apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": {"name": "r", "namespace": "b"}, "revision": 1, "data": value["data"]});
        let mut store = Store::default();
        store.set(Watched::Revisions, ("b".to_owned(), "r".to_owned()), serde_json::from_value(stored).unwrap());
        let data = &store.revisions.get("b")?.get("r")?.data;
        let cache = Mutex::new(Cache::default());
        let contents = CachedContents::new([("r", data)].into(), &profiles, &[], &cache);
        // A rollback to a known revision without the resource deletes it.
        let template = contents.template("r", &cluster(), Component::Eventing);
        Some(template.map_or(json!("deleted"), |template| json!({"data": data, "template": template})))
    };
    let (fleet, schema) = (fleet(), fleet_schema());
    let value = json!({"data": {"eventing": fleet["spec"]["eventing"], "overrides": fleet["spec"]["overrides"]}});
    let schema = json!({"type": "object", "properties": {"data": schema["properties"]["spec"]}});
    check(&value, &within(newer(&value, &schema), "/data/"), read);
}

#[test]
fn inventory_is_not_guessed() {
    let encode = |id: ObjectId, entry: Entry| -> Value {
        serde_json::from_str(&Inventory { entries: [(id, entry)].into() }.encode()).unwrap()
    };
    let entry = Entry { version: "v1".to_owned(), done: true, aggregated: true, deleting: false };
    let value = encode(ObjectId::new("batch", "Job", "a", "b"), entry);
    let least = encode(ObjectId::new("", "", "", ""), Entry::default());
    let read = |value: &Value| -> Option<Value> {
        let inventory = Inventory::decode(&value.to_string()).ok()?;
        Some(serde_json::from_str(&inventory.encode()).unwrap())
    };
    check(&value, &newer(&value, &schema_of(&value, &least)), read);
}

#[test]
fn owner_is_not_guessed() {
    let least = json!({"hub": "1", "kind": "KnativeServing", "namespace": "a", "name": "b", "uid": "2", "since": "2026-01-01T00:00:00Z", "confirmed": true});
    let mut value = least.clone();
    value["replaced"] = json!([{"hub": "3", "mark": "4"}]);
    (value["hubName"], value["adopted"], value["released"]) = (json!("eu"), json!(true), json!(true));
    let read = |value: &Value| -> Option<Value> {
        let owner = InstallationOwner::decode(&value.to_string())?;
        Some(serde_json::from_str(&owner.encode()).unwrap())
    };
    check(&value, &newer(&value, &schema_of(&value, &least)), read);
}

#[test]
fn access_to_spoke_is_not_guessed() {
    let cluster_of_profile = json!({"server": "https://h:1", "certificate-authority-data": "QQ==", "tls-server-name": "h",
        "insecure-skip-tls-verify": true, "proxy-url": "http://p:1",
        "extensions": [{"name": "client.authentication.k8s.io/exec", "extension": {"clusterName": "c"}}]});
    let profile = json!({"apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ClusterProfile", "metadata": {"name": "one"}, "spec": {"displayName": "one"},
        "status": {"conditions": [{"type": "ControlPlaneHealthy", "status": "True", "message": "m"}], "accessProviders": [{"name": "b", "cluster": cluster_of_profile}]}});
    let exec = json!({"apiVersion": "client.authentication.k8s.io/v1", "command": "/p", "args": ["own"], "env": [{"name": "A", "value": "own"}], "provideClusterInfo": true});
    let plugin = json!({"name": "b", "execConfig": exec, "profileSourcedCLIArgsPolicy": "Append", "profileSourcedEnvVarsPolicy": "Replace"});
    let connect = |profile: &Value, providers: &Value| {
        let profile: ClusterProfile = serde_json::from_value(profile.clone()).ok()?;
        let providers: Providers = serde_json::from_value(providers.clone()).ok()?;
        access(&cluster(), &profile, &providers, false).ok().map(|access| json!(format!("{access:?}")))
    };
    for provider in [plugin, json!({"name": "b", "builtin": "secretreader"})] {
        let file = json!({"providers": [provider]});
        let mut schema = schema_of(&file, &json!({"providers": [{"name": "b"}]}));
        for field in ["builtin", "profileSourcedCLIArgsPolicy", "profileSourcedEnvVarsPolicy"] {
            if let Some(field) = schema.pointer_mut(&format!("/properties/providers/items/properties/{field}")) {
                field["enum"] = json!([]);
            }
        }
        check(&file, &newer(&file, &schema), |file| connect(&profile, file));
        let schema = self::schema(&json!(ClusterProfile::crd()));
        let all = [within(newer(&profile, &schema), "/spec"), within(newer(&profile, &schema), "/status")].concat();
        check(&profile, &all, |profile| connect(profile, &file));
    }
}

#[test]
fn decision_is_not_guessed() {
    let decisions = |reference: Value| json!([{"clusterProfileRef": reference}]);
    let value = json!({"metadata": {"namespace": "b", "name": "a", "labels": {"multicluster.x-k8s.io/decision-key": "k"}},
        "decisions": decisions(json!({"name": "one", "namespace": "fleet-system"}))});
    let least = json!({"decisions": decisions(json!({"name": ""}))});
    // A cluster that isn't read leaves its fleet.
    let decision = DecisionReference { key: Some("k".to_owned()), ..DecisionReference::default() };
    let read = |value: &Value| decided(&decision, "b", [value].into_iter()).ok().map(|clusters| json!(clusters));
    check(&value, &within(newer(&value, &schema_of(&value, &least)), "/decisions"), read);
}
