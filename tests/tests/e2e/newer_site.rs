//! A hub whose definitions admit everything, as those of a newer version may, with two spokes: a
//! fleet for both, and a single resource for one. Checks that nothing changes there.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use knative_operator_shared::api::Component;
use knative_operator_shared::api::fleet::KnativeFleetStatus;
use knative_operator_shared::label::FLEET_REVISION;
use knative_operator_shared::name;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::direct::open;
use knative_operator_tests::measure::{Audit, Request};
use knative_operator_tests::product::{self, FLEET, HUB_USER, Product, SPOKE_USER};
use knative_operator_tests::releases::{self, Releases};
use knative_operator_tests::{Result, wait};
use kube::api::ListParams;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::knative_fleet::{PLACE, approve_as_recorded, has, status};
use crate::support::{apply, jobs_done, namespace, nothing_to_install, ready, resource};

/// Time limit until the operator reports a change.
pub const LIMIT: Duration = wait::LIMIT;

/// A stored object, and how the operator reports that it can't read it.
pub struct Stored {
    pub path: &'static str,
    name: &'static str,
    /// Version, kind and resource.
    kind: (&'static str, &'static str, &'static str),
    /// Type and reason of the condition.
    stops: (&'static str, &'static str),
}

/// The single resource.
pub const SINGLE: Stored = Stored {
    path: "/apis/operator.knative.dev/v1beta1/namespaces/platform/knativeservings/single",
    name: "single",
    kind: ("v1beta1", "KnativeServing", "knativeservings"),
    stops: ("InstallSucceeded", "Unreadable"),
};

/// The fleet.
pub const PROD: Stored = Stored {
    path: "/apis/operator.knative.dev/v1alpha1/namespaces/platform/knativefleets/prod",
    name: "prod",
    kind: ("v1alpha1", "KnativeFleet", "knativefleets"),
    stops: ("Ready", "InvalidSpec"),
};

/// A resource for a cluster that is never healthy. The operator observes its changes after earlier
/// ones of other resources.
pub const MARKER: Stored = Stored {
    path: "/apis/operator.knative.dev/v1beta1/namespaces/platform/knativeservings/marker",
    name: "marker",
    ..SINGLE
};

/// What must not change: uids, generations and revisions.
pub type State = BTreeMap<String, String>;

pub struct Site {
    pub product: Product,
    pub hub: Cluster,
    pub spokes: [Cluster; 2],
    audits: Vec<Audit>,
    before: State,
    _plugins: tempfile::TempDir,
}

/// The single resource, for cluster `a`.
pub fn single(releases: &Releases) -> Value {
    let patch = json!({"target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "controller"}, "patch": {"type": "merge", "content": "metadata: {labels: {patched: \"yes\"}}"}});
    let spec = json!({"version": releases.serving, "ingress": {"kourier": {"enabled": true}}, "config": {"network": {"domain-template": "x"}},
        "workloads": [{"name": "controller", "labels": {"team": "a"}}], "patches": [patch]});
    resource(Component::Serving, PLACE, "single", Some("a"), spec)
}

/// [`MARKER`].
pub fn marker() -> Value {
    resource(Component::Serving, PLACE, "marker", Some("marker"), nothing_to_install())
}

/// The fleet, for both clusters.
fn fleet(releases: &Releases) -> Value {
    let template =
        json!({"version": releases.eventing, "workloads": [{"name": "eventing-controller", "labels": {"team": "a"}}]});
    json!({"apiVersion": "operator.knative.dev/v1alpha1", "kind": "KnativeFleet", "metadata": {"name": "prod", "namespace": PLACE}, "spec": {
        "placement": {
            "clusterSelector": {"matchLabels": {"env": "prod"}, "matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["lab"]}]},
            "namespaces": [FLEET],
        },
        "eventing": {"metadata": {"labels": {"team": "a"}}, "spec": template},
        "overrides": [{
            "clusterSelector": {"matchExpressions": [{"key": "tier", "operator": "In", "values": ["canary"]}]},
            "eventing": {"metadata": {"labels": {"tier": "canary"}}},
        }],
        "rollout": {
            "stages": [
                {"name": "canary", "clusterSelector": {"matchLabels": {"tier": "canary"}}, "progressDeadlineSeconds": 100, "approval": "Required"},
                {"name": "prod", "maxConcurrent": 1, "approval": "Required"},
            ],
            "onFailure": "Rollback",
        },
        "removal": {"policy": "Orphan", "maxAtOnce": 1},
        "revisionHistoryLimit": 5,
    }})
}

/// Whether the rollout waits for the approval of `stage`.
pub fn awaits(status: &KnativeFleetStatus, stage: &str) -> bool {
    has(status, "Progressing", "AwaitingApproval") && status.stage.as_deref() == Some(stage)
}

/// Objects of a kind of the operator; untyped, because this version can't read some.
fn api(hub: &Cluster, version: &str, kind: &str, plural: &str) -> Api<DynamicObject> {
    let gvk = GroupVersionKind::gvk("operator.knative.dev", version, kind);
    Api::namespaced_with(hub.client(), PLACE, &ApiResource::from_gvk_with_plural(&gvk, plural))
}

impl Stored {
    /// Waits until `holds` is true for its status; returns the status.
    pub async fn until(&self, hub: &Cluster, what: &str, holds: impl Fn(&Value) -> bool) -> Result<Value> {
        let is = |object: Option<&DynamicObject>| object.is_some_and(|object| holds(&object.data["status"]));
        let (version, kind, plural) = self.kind;
        let found = wait::until(&api(hub, version, kind, plural), self.name, LIMIT, what, is).await?;
        Ok(found.map(|object| object.data["status"].clone()).unwrap_or_default())
    }

    /// Waits until the operator has observed `stored`, and checks that it reports that this version
    /// can't read it.
    pub async fn is_reported(&self, hub: &Cluster, stored: &Value, what: &str) -> Result<()> {
        let generation = &stored["metadata"]["generation"];
        let status = self.until(hub, "observed", |status| status["observedGeneration"] == *generation).await?;
        let (type_, reason) = self.stops;
        let mut conditions = status["conditions"].as_array().into_iter().flatten();
        let is_reported = conditions.any(|condition| condition["type"] == type_ && condition["reason"] == reason);
        assert!(is_reported, "{what} of {} is not reported: {status:#}", self.name);
        Ok(())
    }
}

impl Site {
    /// Starts and installs everything; returns it with the schemas by resource.
    pub async fn start() -> Result<(Self, BTreeMap<&'static str, Value>)> {
        // Without admission webhooks, which would refuse the values.
        let (hub, a, b) =
            tokio::try_join!(Cluster::spoke("newer"), Cluster::spoke("newer-a"), Cluster::spoke("newer-b"))?;
        let (releases, plugins) = (releases::small(), tempfile::tempdir()?);
        let mut values = product::values(&[]);
        values["knative_operator"]["fleet"] = json!({"enabled": true});
        let product = Product::create(&hub, &releases, values, plugins.path()).await?;
        let mut schemas = BTreeMap::new();
        // Before there are objects, whose managed fields are those of the schema.
        for resource in ["knativeservings", "knativeeventings", "knativefleets", "knativefleetapprovals"] {
            schemas.insert(resource, open(&hub, &format!("{resource}.operator.knative.dev")).await?);
        }
        schemas.insert("clusterprofiles", open(&hub, "clusterprofiles.multicluster.x-k8s.io").await?);
        for (name, spoke, tier) in [("a", &a, "canary"), ("b", &b, "rest")] {
            product::register(&hub, spoke, name).await?;
            hub.object("clusterprofile", FLEET, name).label(&json!({"tier": tier, "env": "prod"})).await?;
        }
        product::profile(&hub, "marker", &product::access(&a, "a")).await?;
        product::status(&hub, "marker", "Unseen", &product::access(&a, "a")).await?;
        namespace(&hub, PLACE).await?;
        for object in [single(&releases), marker(), fleet(&releases)] {
            apply(&hub, &object).await?;
        }
        for stage in ["canary", "prod"] {
            let waiting = status(&hub, "awaiting approval", |s| awaits(s, stage)).await?;
            approve_as_recorded(&hub, waiting.update_revision.as_deref().unwrap_or_default(), stage).await?;
        }
        status(&hub, "Ready", |s| has(s, "Ready", "Ready") && s.updated == 2).await?;
        ready(&hub, &single(&releases)).await?;
        let mut site =
            Self { product, hub, spokes: [a, b], audits: Vec::new(), before: State::new(), _plugins: plugins };
        // The completion of the Jobs is recorded on the spokes.
        jobs_done(&site.spokes[0], "knative-serving", &name::anchor(Component::Serving, "single")).await?;
        for (cluster, spoke) in ["prod-a-", "prod-b-"].iter().zip(&site.spokes) {
            let child = site.child(cluster).await?;
            jobs_done(spoke, "knative-eventing", &name::anchor(Component::Eventing, &child.name_any())).await?;
        }
        site.expect_this().await?;
        Ok((site, schemas))
    }

    fn api(&self, component: Component) -> Api<DynamicObject> {
        api(&self.hub, "v1beta1", component.kind(), component.plural())
    }

    async fn resources(&self, component: Component) -> Result<Vec<DynamicObject>> {
        Ok(self.api(component).list(&ListParams::default()).await?.items)
    }

    /// The resource of the fleet whose name starts with `start`.
    pub async fn child(&self, start: &str) -> Result<DynamicObject> {
        let mut all = self.resources(Component::Eventing).await?.into_iter();
        all.find(|child| child.name_any().starts_with(start)).ok_or_else(|| format!("no resource {start}").into())
    }

    /// Waits until the resource of the fleet whose name starts with `start` has `revision`.
    pub async fn has_revision(&self, start: &str, revision: &str) -> Result<()> {
        let (child, api) = (self.child(start).await?, self.api(Component::Eventing));
        let has = |child: Option<&DynamicObject>| {
            child.and_then(|child| child.annotations().get(FLEET_REVISION)).is_some_and(|found| found == revision)
        };
        wait::until(&api, &child.name_any(), LIMIT, "at its revision", has).await.map(drop)
    }

    async fn state(&self) -> Result<State> {
        let (mut state, mut uids) = (State::new(), Vec::new());
        for component in Component::ALL {
            for found in self.resources(component).await? {
                uids.push(found.uid());
                if component == Component::Eventing {
                    let revision = found.annotations().get(FLEET_REVISION);
                    state.insert(found.name_any(), format!("{:?} {revision:?}", found.metadata.generation));
                }
            }
        }
        state.insert("uids of resources".to_owned(), format!("{uids:?}"));
        for spoke in &self.spokes {
            for found in Api::<Deployment>::all(spoke.client()).list(&ListParams::default()).await? {
                let name = format!("Deployment {} on {}", found.name_any(), spoke.name());
                state.insert(name, format!("{:?} {:?}", found.uid(), found.metadata.generation));
            }
        }
        assert!(state.len() > 8, "not installed: {state:#?}");
        Ok(state)
    }

    /// Expects the state of now from now on.
    pub async fn expect_this(&mut self) -> Result<()> {
        self.before = self.state().await?;
        self.audits = vec![Audit::of(&self.hub, HUB_USER)?];
        for spoke in &self.spokes {
            self.audits.push(Audit::of(spoke, SPOKE_USER)?);
        }
        Ok(())
    }

    /// Checks that nothing changed and that the operator wrote nothing but its reports, apart from
    /// objects whose name has a part of `except`.
    pub async fn is_unchanged(&mut self, except: &[&str], what: &str) -> Result<()> {
        let is_excepted = |name: &str| except.iter().any(|part| name.contains(*part));
        let kept = |state: &State| -> State {
            state.iter().filter(|(name, _)| !is_excepted(name)).map(|(name, of)| (name.clone(), of.clone())).collect()
        };
        assert_eq!(kept(&self.state().await?), kept(&self.before), "{what}");
        let is_report = |request: &Request| {
            let target = &request.target;
            // Where a credential is sent first is recorded in its Secret.
            let is_record = request.verb == "patch" && target.starts_with("secrets");
            target.ends_with("/status") || target.starts_with("events.") || target.starts_with("leases.") || is_record
        };
        for audit in &mut self.audits {
            let mut writes = audit.take()?;
            writes.retain(|request| request.writes() && !is_report(request));
            // Nothing is deleted in any case.
            writes.retain(|request| request.verb.starts_with("delete") || !is_excepted(&request.target));
            assert!(writes.is_empty(), "{what}: {writes:#?}");
        }
        Ok(())
    }

    /// Checks that no event reports a deletion or an orphaned installation.
    pub async fn has_uninstalled_nothing(&self) -> Result<()> {
        let reasons = self.hub.kubectl(&["get", "events", "-A", "-o", "jsonpath={.items[*].reason}"], "").await?;
        let bad = ["Uninstalling", "Uninstalled", "Orphaned", "ObjectsLeft", "LeftToOwner", "Pruned"];
        assert!(!reasons.split(' ').any(|reason| bad.contains(&reason)), "{reasons}");
        Ok(())
    }
}
