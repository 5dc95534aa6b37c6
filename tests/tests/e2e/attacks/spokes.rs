//! What is around an installation on a spoke: its namespace, and what the status says about it.

use k8s_openapi::api::core::v1::Namespace;
use knative_operator_shared::api::{Component, KnativeStatus};
use knative_operator_shared::label::TAKE_OVER;
use knative_operator_tests::{Result, product};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use super::attacker::Attacker;
use super::local::POD_SECURITY;
use super::report::Outcome;
use super::settle::{is_ready, remove, settled};
use super::tenant::{SPOKES, Site, TEAM, TENANT, WRITER};
use crate::support::{INSTALL, condition, eventing, has_condition, namespace, serving, status};

/// Knative Serving's namespace.
const PLACE: &str = Component::Serving.canonical();
/// A namespace of somebody else on the spoke.
const VICTIM: &str = "victim";
/// Annotation of the status: what others had in the namespace.
const CONTENTS: &str = "operator.knative.dev/namespace-contents";
/// Annotation of the status: the namespace of the installation.
const INSTALLED_IN: &str = "operator.knative.dev/installed-in";

/// The tenant's resource for the spoke.
pub fn own(site: &Site) -> Value {
    serving(TEAM, "main", Some(SPOKES[0]), &site.releases)
}

/// Wanted, by a user of the spoke who made Knative's namespace: a token of Knative's controller. By
/// default, the operator reports such a namespace; if it `refuses` them, it installs nothing.
pub async fn prepares_namespace(site: &Site, refuses: bool) -> Result<Outcome> {
    let (hub, spoke, insider) = (&site.hub, &site.spoke, Attacker::new(&site.spoke, "insider"));
    namespace(spoke, PLACE).await?;
    let binding = ["create", "rolebinding", "insiders", "-n", PLACE, "--clusterrole=edit", "--user=insider"];
    spoke.kubectl(&binding, "").await?;
    // As if this operator, or the Go operator, had made it.
    let marks = ["annotate", "namespace", PLACE, "operator.knative.dev/owner-digest=0", "manifestival=new"];
    spoke.kubectl(&[&marks[..], &["--field-manager=knative-operator"]].concat(), "").await?;
    let attempt = Attacker::new(hub, TENANT).apply(&own(site)).await?;
    let (mut reason, mut reported) = (String::new(), None);
    if attempt.is_ok() {
        let message = |s: &KnativeStatus| condition(s, "InstallSucceeded").and_then(|c| c.message.clone());
        let names_it = |s: &KnativeStatus| message(s).is_some_and(|text| text.contains("RoleBinding insiders"));
        let what = "installed, or refused because of the RoleBinding";
        let found = status(hub, &own(site), INSTALL, what, |s| is_ready(s) || names_it(s)).await?;
        reason = message(&found).unwrap_or_default();
        reported = found.annotations.get(CONTENTS).filter(|contents| contents.contains("insiders")).cloned();
    }
    let is_there = insider.output(&["create", "token", "controller", "-n", PLACE], "").await.0;
    remove(hub, &own(site)).await?;
    spoke.object("namespace", "", PLACE).delete_if_there().await?;
    Ok(match (is_there, attempt, reported) {
        (false, Ok(_), _) => Outcome::Prevented(reason),
        (true, Ok(_), Some(contents)) if !refuses => Outcome::Reported(format!("{CONTENTS}: {contents}")),
        (_, attempt, _) => Outcome::of(is_there, "a user of the spoke has a token of Knative's controller", &attempt),
    })
}

/// Wanted: Pods in Knative's namespace that may do everything to their node.
pub async fn labels_namespace(site: &Site) -> Result<Outcome> {
    let mut labeled = own(site);
    labeled["spec"]["namespace"] = json!({"labels": {POD_SECURITY: "privileged"}});
    let attempt = Attacker::new(&site.hub, TENANT).apply(&labeled).await?;
    if attempt.is_ok() {
        settled(&site.hub, &labeled).await?;
    }
    let found = Api::<Namespace>::all(site.spoke.client()).get_opt(PLACE).await?;
    let is_there = found.is_some_and(|found| found.labels().contains_key(POD_SECURITY));
    Ok(Outcome::of(is_there, "Knative's namespace permits privileged Pods", &attempt))
}

/// Wanted: an installation that belongs to another hub.
pub async fn takes_over(site: &Site) -> Result<Outcome> {
    let hub = &site.hub;
    let annotation = format!("{TAKE_OVER}=00000000-0000-0000-0000-000000000000");
    let line = ["annotate", "knativeserving", "main", "-n", TEAM, &annotation];
    let attempt = Attacker::new(hub, TENANT).kubectl(&line, "").await?;
    let stored = hub.kubectl(&["get", "knativeserving", "main", "-n", TEAM, "-o", "json"], "").await?;
    let stored: Value = serde_json::from_str(&stored)?;
    let is_there = !stored["metadata"]["annotations"][TAKE_OVER].is_null();
    Ok(Outcome::of(is_there, "the operator takes the installation of another hub over", &attempt))
}

/// Wanted, by a user without permission for the status: another namespace in it.
pub async fn writes_status(site: &Site) -> Result<Outcome> {
    let hub = &site.hub;
    let path = format!("/apis/operator.knative.dev/v1beta1/namespaces/{TEAM}/knativeservings/main");
    let read =
        async || -> Result<Value> { Ok(serde_json::from_str(&hub.kubectl(&["get", "--raw", &path], "").await?)?) };
    let mut changed = read().await?;
    changed["status"]["annotations"][INSTALLED_IN] = json!(VICTIM);
    let subresource = format!("{path}/status");
    let line = ["replace", "--raw", &subresource, "-f", "-"];
    let attempt = Attacker::new(hub, TENANT).kubectl(&line, &changed.to_string()).await?;
    let is_there = read().await?["status"]["annotations"][INSTALLED_IN] == VICTIM;
    Ok(Outcome::of(is_there, "an editor of resources has written the status", &attempt))
}

/// Wanted, by a user with permission for the status only: Knative in the namespace of somebody else
/// on the spoke.
pub async fn moves_installation(site: &Site) -> Result<Outcome> {
    let (hub, spoke, writer) = (&site.hub, &site.spoke, Attacker::new(&site.hub, WRITER));
    let access = product::access(spoke, SPOKES[0]);
    namespace(spoke, VICTIM).await?;
    // While the cluster is not healthy, nothing is installed yet.
    product::status(hub, SPOKES[2], "False", &access).await?;
    let resource = eventing(TEAM, "moved", Some(SPOKES[2]), &site.releases);
    let mut attempt = writer.apply(&resource).await?;
    if attempt.is_ok() {
        has_condition(hub, &resource, "TargetClusterResolved", "ClusterProfileNotReady", "").await?;
        let patch = json!({"status": {"annotations": {INSTALLED_IN: VICTIM}}}).to_string();
        let line =
            ["patch", "knativeeventing", "moved", "-n", TEAM, "--subresource=status", "--type=merge", "-p", &patch];
        attempt = writer.kubectl(&line, "").await?;
    }
    product::status(hub, SPOKES[2], "True", &access).await?;
    if attempt.is_ok() {
        settled(hub, &resource).await?;
    }
    let found = spoke.kubectl(&["get", "deployments", "-n", VICTIM, "-o", "name"], "").await?;
    remove(hub, &resource).await?;
    Ok(Outcome::of(found.contains("eventing-controller"), "Knative is installed in the victim's namespace", &attempt))
}
