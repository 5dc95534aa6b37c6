//! The API server's configuration of admission: the client certificate that it shows to webhooks,
//! and quotas for Pods of critical priority classes, as on GKE.

use std::path::Path;

use serde_json::json;

use crate::Result;
use crate::pki::Authority;

/// File of the configuration, in the folder of a cluster.
pub const FILE: &str = "admission.json";

/// Writes the configuration to `dir`, as docs/operate/security.md has it, with a certificate of
/// `authority`.
pub fn configure(dir: &Path, authority: &Authority) -> Result<()> {
    authority.issue("kube-apiserver-admission", None, &[], &[])?.write(dir, "admission")?;
    let file = |name: &str| dir.join(name).display().to_string();
    let webhooks = json!({
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "WebhookAdmissionConfiguration",
        "kubeConfigFile": file("admission.kubeconfig"),
    });
    let critical = json!({"scopeName": "PriorityClass", "operator": "In",
        "values": ["system-cluster-critical", "system-node-critical"]});
    let quota = json!({
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "ResourceQuotaConfiguration",
        "limitedResources": [{"resource": "pods", "matchScopes": [critical]}],
    });
    let plugins =
        [("MutatingAdmissionWebhook", &webhooks), ("ValidatingAdmissionWebhook", &webhooks), ("ResourceQuota", &quota)];
    let configuration = json!({
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AdmissionConfiguration",
        "plugins": plugins.map(|(name, configuration)| json!({"name": name, "configuration": configuration})),
    });
    // For all webhooks: the port of the Service, which is part of the name, depends on the machine.
    let user = json!({"client-certificate": file("admission.crt"), "client-key": file("admission.key")});
    let kubeconfig = json!({"apiVersion": "v1", "kind": "Config", "users": [{"name": "*", "user": user}]});
    std::fs::write(file("admission.kubeconfig"), kubeconfig.to_string())?;
    Ok(std::fs::write(file(FILE), configuration.to_string())?)
}
