//! What users keep who lost their permissions: a fleet whose author may not use its clusters any
//! more, and an approval of somebody who may not approve any more.

use knative_operator_shared::api::Component;
use knative_operator_shared::api::fleet::KnativeFleetStatus;
use knative_operator_tests::Result;
use knative_operator_tests::product::{self, FLEET};
use serde_json::{Value, json};

use super::attacker::{Attacker, is_permitted};
use super::fleets::{Site, child, eventing, prod, settle};
use super::report::Outcome;
use super::settle::remove;
use crate::audit;
use crate::authorization::binding;
use crate::knative_fleet::{PLACE, has, status_of};
use crate::support::apply;

/// May edit and approve fleets, and use all clusters, at first.
const FORMER: &str = "former";

/// The binding of `role` to [`FORMER`] in `namespace`.
fn granted(role: &str, namespace: &str) -> Value {
    let mut granted = binding(role, namespace, &[FORMER]);
    granted["metadata"]["name"] = json!(format!("former-{role}"));
    granted
}

/// Why the fleet may not have cluster `later`, as its status says.
fn refusal(status: &KnativeFleetStatus) -> Option<&str> {
    let attention = status.attention.iter().find(|attention| attention.cluster.name == "later")?;
    (attention.reason == "NotPermitted").then_some(attention.message.as_str())
}

/// Wanted: an installation on a cluster that joins after the author of the fleet lost the
/// permission to use clusters.
pub async fn gets_later_cluster(site: &Site) -> Result<Outcome> {
    let (hub, former) = (&site.hub, Attacker::new(&site.hub, FORMER));
    let (edits, uses) = (granted("knative-operator-editor", PLACE), granted("knative-operator-user", FLEET));
    apply(hub, &edits).await?;
    apply(hub, &uses).await?;
    let edit =
        json!({"group": "operator.knative.dev", "resource": "knativefleets", "verb": "create", "namespace": PLACE});
    let use_all =
        json!({"group": "multicluster.x-k8s.io", "resource": "clusterprofiles", "verb": "use", "namespace": FLEET});
    hub.until_permitted(FORMER, &edit, true).await?;
    hub.until_permitted(FORMER, &use_all, true).await?;
    let placement = json!({"clusterSelector": {"matchExpressions": [{"key": "site", "operator": "Exists"}]}, "namespaces": [FLEET]});
    let spec = |replicas: i32| json!({"version": "1.1.0", "high-availability": {"replicas": replicas}});
    let mut fleet = eventing(FORMER, &placement, &spec(1));
    let attempt = former.apply(&fleet).await?;
    status_of(hub, FORMER, "Ready", |s| has(s, "Ready", "Ready") && s.updated == 1).await?;
    remove(hub, &uses).await?;
    hub.until_permitted(FORMER, &use_all, false).await?;

    product::register(hub, &site.b, "later").await?;
    hub.object("clusterprofile", FLEET, "later").label(&json!({"site": "later"})).await?;
    // The other cluster still gets changes.
    fleet["spec"]["eventing"]["spec"] = spec(2);
    former.apply(&fleet).await??;
    let is_done =
        |s: &KnativeFleetStatus| has(s, "Ready", "Ready") && (s.updated == 2 || s.updated == 1 && refusal(s).is_some());
    let status = status_of(hub, FORMER, "on both clusters, or on one", is_done).await?;
    settle(hub, FORMER).await?;
    let is_there = child(hub, Component::Eventing, "later").await?.is_some();
    let why = refusal(&status).map(str::to_owned);
    if !is_permitted() {
        // As soon as the author may use the cluster again, the fleet gets it.
        apply(hub, &uses).await?;
        status_of(hub, FORMER, "on both clusters", |s| has(s, "Ready", "Ready") && s.updated == 2).await?;
    }
    for object in [&fleet, &edits, &uses] {
        remove(hub, object).await?;
    }
    hub.object("clusterprofile", FLEET, "later").delete().await?;
    Ok(match why {
        Some(why) if !is_there => Outcome::Prevented(why),
        _ => Outcome::of(is_there, "Knative is installed on a cluster that joined later", &attempt),
    })
}

/// Wanted: an approval that nobody sees, of somebody who may not approve any more.
pub async fn approval_is_listed(site: &Site, replicas: i32) -> Result<Outcome> {
    let hub = &site.hub;
    let approves = granted("knative-operator-approver", PLACE);
    apply(hub, &approves).await?;
    site.start_rollout(replicas).await?;
    let status = status_of(hub, "prod", "awaiting approval", super::fleets::is_waiting).await?;
    let approval = json!({"apiVersion": "operator.knative.dev/v1alpha1", "kind": "KnativeFleetApproval",
        "metadata": {"name": "former", "namespace": PLACE},
        "spec": {"fleet": "prod", "revision": status.update_revision, "stage": "prod"}});
    let attempt = Attacker::new(hub, FORMER).apply(&approval).await?;
    status_of(hub, "prod", "done", |s| has(s, "Ready", "Ready") && s.updated == 2).await?;
    let listed = async || -> Result<bool> {
        let (_, text) = audit::audit(hub, &[]).await?;
        let block = audit::block(&text, &format!("KnativeFleetApproval {PLACE}/former")).to_owned();
        Ok(block.contains("approve rollouts") && block.contains(&format!("user \"{FORMER}\"")))
    };
    assert!(!listed().await?, "a user who may approve is listed");
    remove(hub, &approves).await?;
    let is_listed = listed().await?;
    remove(hub, &approval).await?;
    site.finish_rollout(&prod(replicas + 1)).await?;
    Ok(if is_listed {
        Outcome::Reported("`audit` lists the approval with its user".to_owned())
    } else {
        Outcome::of(true, "an approval of a former approver counts, and nobody sees it", &attempt)
    })
}
