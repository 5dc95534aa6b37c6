//! A resource that was stored before permissions were enforced, and waits for its cluster.

use knative_operator_shared::api::KnativeStatus;
use knative_operator_tests::Result;
use knative_operator_tests::product::FLEET;
use serde_json::{Value, json};

use super::attacker::Attacker;
use super::report::Outcome;
use super::settle::{is_ready, settled};
use super::tenant::{SPOKES, Site, TEAM, TENANT};
use crate::audit;
use crate::support::{INSTALL, apply, condition, delete, eventing, has_condition, ready, status};

/// Stores the resource of an administrator, and behind it one of the tenant, who may not use the
/// cluster. Returns both.
pub async fn store(site: &Site) -> Result<(Value, Value)> {
    let (hub, profile) = (&site.hub, Some(SPOKES[1]));
    let owner = eventing("knative-eventing", "reserved", profile, &site.releases);
    apply(hub, &owner).await?;
    ready(hub, &owner).await?;
    let mut queued = eventing(TEAM, "queued", profile, &site.releases);
    queued["metadata"]["annotations"] = json!({"operator.knative.dev/shared-target": "true"});
    Attacker::new(hub, TENANT).apply(&queued).await??;
    has_condition(hub, &queued, "InstallSucceeded", "Occupied", "").await?;
    is_listed(site).await?;
    Ok((owner, queued))
}

/// The administrator finds the tenant's resource before permissions are enforced.
async fn is_listed(site: &Site) -> Result<()> {
    let (code, text) = audit::audit(&site.hub, &[]).await?;
    let block = audit::block(&text, &format!("KnativeEventing {TEAM}/queued"));
    let field = format!("spec.clusterProfileRef: use ClusterProfile \"{FLEET}/{}\"", SPOKES[1]);
    let is_named = block.contains(&field) && block.contains(&format!("user \"{TENANT}\""));
    assert_eq!((code, is_named), (Some(1), true), "{text}");
    let (code, text) = audit::audit(&site.hub, &["--user", "admin", "--group", "system:masters"]).await?;
    assert_eq!(code, Some(0), "{text}");
    Ok(())
}

/// The administrator's resource is deleted, once permissions are enforced: does the tenant's
/// install?
pub async fn takes_over(site: &Site, owner: &Value, queued: &Value) -> Result<Outcome> {
    let hub = &site.hub;
    delete(hub, owner).await?;
    let is_next = |s: &KnativeStatus| {
        is_ready(s) || condition(s, "InstallSucceeded").is_some_and(|c| c.reason.as_deref() != Some("Occupied"))
    };
    status(hub, queued, INSTALL, "no longer waiting for its cluster", is_next).await?;
    settled(hub, queued).await?;
    // As if an administrator had asked for it.
    let author = |value: &str| format!("operator.knative.dev/author={value}");
    let mut attempt = Ok(String::new());
    for value in ["me", r#"{"username":"admin","groups":["system:masters"]}"#] {
        let annotate = ["annotate", "--overwrite", "knativeeventing", "queued", "-n", TEAM, &author(value)];
        attempt = Attacker::new(hub, TENANT).kubectl(&annotate, "").await?;
    }
    if attempt.is_ok() {
        settled(hub, queued).await?;
    }
    let deployments = ["get", "deployments", "-n", "knative-eventing", "-o", "name"];
    let is_there = site.spoke.kubectl(&deployments, "").await?.contains("eventing-controller");
    Ok(Outcome::of(is_there, "the tenant's resource is installed on the spoke", &attempt))
}

/// An administrator answers for the tenant's resource, which installs then.
pub async fn is_permitted(site: &Site, queued: &Value) -> Result<()> {
    let hub = &site.hub;
    has_condition(hub, queued, "InstallSucceeded", "NotPermitted", &format!("user \"{TENANT}\"")).await?;
    let annotate =
        ["annotate", "--overwrite", "knativeeventing", "queued", "-n", TEAM, "operator.knative.dev/author=me"];
    hub.kubectl(&annotate, "").await?;
    ready(hub, queued).await.map(drop)
}
