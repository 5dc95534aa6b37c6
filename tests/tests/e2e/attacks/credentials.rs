//! What an author of ClusterProfiles tries: a profile with a server of their own, and the Secret of
//! another cluster.

use base64::{Engine, prelude::BASE64_STANDARD};
use k8s_openapi::api::core::v1::Secret;
use knative_operator_shared::api::KnativeStatus;
use knative_operator_tests::Result;
use knative_operator_tests::https::{Answer, Server};
use knative_operator_tests::pki::Authority;
use knative_operator_tests::product::NAMESPACE;
use kube::Api;
use serde_json::json;

use super::attacker::Attacker;
use super::report::Outcome;
use super::settle::remove;
use super::tenant::{AUTHOR, PROFILES, SPOKES, Site};
use crate::support::{INSTALL, condition, eventing, status};

/// Reasons for which the operator has not tried to connect yet.
const EARLY: [&str; 2] = ["ClusterProfileNotFound", "ClusterProfileNotReady"];

/// Wanted: the token of a cluster, in a request to the author's own server. `provider` is the name
/// of the access provider, and of the author's profile; `field` that of the Secret's name.
pub async fn are_sent(site: &Site, provider: &'static str, field: &'static str) -> Result<Outcome> {
    let (hub, authority) = (&site.hub, Authority::new("attacker")?);
    let server = Server::start(&authority, |_, _| {
        let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "no", "reason": "Forbidden", "code": 403});
        Answer::With("403 Forbidden", vec!["Content-Type: application/json".into()], status.to_string().into_bytes())
    })?;
    let author = Attacker::new(hub, AUTHOR);
    let profile = json!({"apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ClusterProfile",
        "metadata": {"name": provider, "namespace": PROFILES, "labels": {"x-k8s.io/cluster-manager": "attacker"}},
        "spec": {"displayName": provider, "clusterManager": {"name": "attacker"}}});
    let access = json!([{"name": provider, "cluster": {
        "server": server.url(""),
        "certificate-authority-data": BASE64_STANDARD.encode(authority.pem()),
        "extensions": [{"name": "client.authentication.k8s.io/exec", "extension": {field: SPOKES[0]}}],
    }}]);
    let healthy = json!({"status": {"accessProviders": access, "conditions": [{
        "type": "ControlPlaneHealthy", "status": "True", "reason": "Attacker", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]}})
    .to_string();
    let mut resource = eventing(PROFILES, provider, None, &site.releases);
    resource["spec"]["clusterProfileRef"] = json!({"name": provider, "namespace": PROFILES});

    let mut attempt = author.apply(&profile).await?;
    if attempt.is_ok() {
        let line = [
            "patch",
            "clusterprofile",
            provider,
            "-n",
            PROFILES,
            "--subresource=status",
            "--type=merge",
            "-p",
            &healthy,
        ];
        attempt = author.kubectl(&line, "").await?;
    }
    if attempt.is_ok() {
        attempt = author.apply(&resource).await?;
    }
    if attempt.is_ok() {
        let is_tried = |s: &KnativeStatus| {
            let resolved = condition(s, "TargetClusterResolved").filter(|c| c.status == "False");
            resolved.and_then(|c| c.reason.as_deref()).is_some_and(|reason| !EARLY.contains(&reason))
        };
        status(hub, &resource, INSTALL, "connected or refused", is_tried).await?;
    }
    let secret = Api::<Secret>::namespaced(hub.client(), NAMESPACE).get(SPOKES[0]).await?;
    let token = secret.data.unwrap_or_default().remove("token").ok_or("no token")?;
    // The server has the lines in lower case.
    let header = format!("authorization: bearer {}", String::from_utf8(token.0)?.to_lowercase());
    let is_there = server.requests().iter().any(|request| request.headers.contains(&header));
    remove(hub, &resource).await?;
    remove(hub, &profile).await?;
    Ok(Outcome::of(is_there, "the author's server has the token of another cluster", &attempt))
}
