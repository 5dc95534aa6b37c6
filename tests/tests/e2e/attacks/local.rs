//! What a tenant tries on the hub itself: an installation there comes with Knative's cluster-wide
//! permissions, and an inventory names objects to delete.

use k8s_openapi::api::core::v1::Namespace;
use knative_operator_shared::api::Component;
use knative_operator_tests::Result;
use knative_operator_tests::kubeconfig::{User, kubeconfig};
use knative_operator_tests::product::NAMESPACE;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use super::attacker::{Attacker, Attempt};
use super::report::Outcome;
use super::settle::{is_ready, remove, settled};
use super::tenant::{DEVELOPER, Site, TEAM, WRITER};
use crate::owners::identity;
use crate::support::{eventing, gone, nothing_to_install, resource};

/// Label of a namespace: what its Pods may do to their node.
pub const POD_SECURITY: &str = "pod-security.kubernetes.io/enforce";
/// The webhook without which every spec is admitted.
const CONFIGURATIONS: [(&str, &str); 2] = [
    ("ValidatingWebhookConfiguration", "validation.operator.knative.dev"),
    ("MutatingWebhookConfiguration", "defaulting.operator.knative.dev"),
];

/// The tenant's resource for the hub.
pub fn mine(spec: Value) -> Value {
    resource(Component::Eventing, TEAM, "mine", None, spec)
}

/// Wanted: a token of the operator, minted by Knative's controller, whose account is in the
/// tenant's namespace.
pub async fn takes_account(site: &Site) -> Result<Outcome> {
    let (hub, developer) = (&site.hub, Attacker::new(&site.hub, DEVELOPER));
    let attempt = developer.apply(&mine(json!({}))).await?;
    if attempt.is_ok() {
        settled(hub, &mine(json!({}))).await?;
    }
    let account = ["create", "token", "eventing-controller", "-n", TEAM];
    let (has_account, token) = developer.output(&account, "").await;
    let mut has_operator = false;
    if has_account {
        let file = hub.dir().join("taken.kubeconfig");
        let user = User::Token(token.lines().last().unwrap_or_default());
        std::fs::write(&file, kubeconfig("taken", &hub.url(), hub.authority(), TEAM, &user))?;
        let file = file.display().to_string();
        let operator = ["create", "token", "knative-operator", "-n", NAMESPACE, "--kubeconfig", &file];
        has_operator = hub.kubectl_output(&operator, "").await.0;
    }
    Ok(Outcome::of(has_operator, "the tenant has a token of the operator", &attempt))
}

/// Wanted: Pods of the tenant's namespace that may do everything to their node.
pub async fn labels_namespace(site: &Site) -> Result<Outcome> {
    let hub = &site.hub;
    let labeled = mine(json!({"namespace": {"labels": {POD_SECURITY: "privileged"}}}));
    let attempt = Attacker::new(hub, DEVELOPER).apply(&labeled).await?;
    if attempt.is_ok() {
        settled(hub, &labeled).await?;
    }
    let found = Api::<Namespace>::all(hub.client()).get(TEAM).await?;
    let is_there = found.labels().contains_key(POD_SECURITY);
    Ok(Outcome::of(is_there, "the tenant's namespace permits privileged Pods", &attempt))
}

/// Wanted: the administrator can't install on the hub, because the tenant was first.
pub async fn occupies_hub(site: &Site) -> Result<Outcome> {
    let hub = &site.hub;
    let own = eventing("knative-eventing", "knative-eventing", None, &site.releases);
    let (is_admitted, output) = hub.kubectl_output(&["apply", "-f", "-"], &own.to_string()).await;
    let is_installed = is_admitted && is_ready(&settled(hub, &own).await?);
    remove(hub, &own).await?;
    Ok(if is_installed {
        Outcome::Prevented("the administrator's resource is installed".to_owned())
    } else {
        Outcome::Succeeded(format!("the administrator's resource is not installed: {output}"))
    })
}

/// A ConfigMap in the place of an inventory, which names the webhook, and a resource that is
/// deleted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Forgery {
    /// Only the inventory.
    Inventory,
    /// The resource is its owner, as the ConfigMap says.
    Owner,
    /// The resource has installed something, as its status says.
    Version,
}

impl Forgery {
    /// Wanted: the webhook is gone.
    pub async fn try_on(self, site: &Site) -> Result<Outcome> {
        let hub = &site.hub;
        let forged = self.inventory(&identity(hub).await?);
        let attempt = self.delete_resource(site, &forged).await?;
        let mut lost = Vec::new();
        for (kind, name) in CONFIGURATIONS {
            if hub.kubectl(&["get", kind, name, "--ignore-not-found", "-o", "name"], "").await?.is_empty() {
                lost.push(name);
            }
        }
        remove(hub, &forged).await?;
        Ok(Outcome::of(!lost.is_empty(), &format!("deleted: {}", lost.join(", ")), &attempt))
    }

    /// Stores `forged` and the resource, and deletes the resource.
    async fn delete_resource(self, site: &Site, forged: &Value) -> Result<Attempt> {
        let user = if self == Self::Version { WRITER } else { DEVELOPER };
        let attacker = Attacker::new(&site.hub, user);
        let mut finalized = resource(Component::Serving, TEAM, "x", None, nothing_to_install());
        finalized["metadata"]["finalizers"] = json!([Component::Serving.finalizer()]);
        attacker.apply(forged).await??;
        let stored = attacker.apply(&finalized).await?;
        if stored.is_err() {
            return Ok(stored);
        }
        if self == Self::Version {
            let status = json!({"status": {"version": site.releases.serving}}).to_string();
            let subresource = ["--subresource=status", "--type=merge", "-p", &status];
            let line = [&["patch", "knativeserving", "x", "-n", TEAM][..], &subresource[..]].concat();
            attacker.kubectl(&line, "").await??;
        }
        let deleted = attacker.kubectl(&["delete", "knativeserving", "x", "-n", TEAM, "--wait=false"], "").await?;
        gone(&site.hub, &finalized).await?;
        Ok(deleted)
    }

    /// The inventory, on the hub with uid `hub`.
    fn inventory(self, hub: &str) -> Value {
        let row =
            |(kind, name): (&str, &str)| json!({"g": "admissionregistration.k8s.io", "k": kind, "n": name, "v": "v1"});
        let rows: Vec<Value> = CONFIGURATIONS.into_iter().map(row).collect();
        let labels = json!({"app.kubernetes.io/managed-by": "knative-operator", "operator.knative.dev/cr-name": "x",
            "app.kubernetes.io/name": Component::Serving.canonical()});
        let mut forged = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "knativeserving-x-inventory", "namespace": TEAM, "labels": labels},
            "data": {"inventory": json!(rows).to_string()}});
        if self == Self::Owner {
            let owner = json!({"hub": hub, "kind": Component::Serving.kind(), "namespace": TEAM, "name": "x",
                "uid": "", "since": "", "confirmed": true});
            forged["metadata"]["annotations"] = json!({"operator.knative.dev/owner": owner.to_string()});
        }
        forged
    }
}
