//! What API servers write to their audit logs.

use std::path::Path;

use serde_json::{Value, json};

use crate::Result;
use crate::kubeconfig::{User, kubeconfig};
use crate::pki::Authority;

/// File of the policy, in the folder of a cluster.
pub const POLICY: &str = "audit-policy.json";
/// Kubeconfig of the control plane's components, in the same folder.
pub const KUBECONFIG: &str = "control-plane.kubeconfig";
/// The user of these components: controllers, scheduler and KWOK.
const COMPONENTS: &str = "control-plane";
/// The user of an API server's requests to itself.
const ITSELF: &str = "system:apiserver";

/// Writes the policy and the kubeconfig to `dir`. The API server at `url` trusts `authority`.
pub fn configure(dir: &Path, authority: &Authority, url: &str) -> Result<()> {
    std::fs::write(dir.join(POLICY), policy().to_string())?;
    let user = authority.issue(COMPONENTS, Some("system:masters"), &[], &[])?;
    let text = kubeconfig(COMPONENTS, url, &authority.pem(), "default", &User::Certificate(&user));
    Ok(std::fs::write(dir.join(KUBECONFIG), text)?)
}

/// The audit policy: metadata of all requests, and the bodies of the operator's status updates and
/// events. Nothing of the control plane itself, which sends two thirds of all requests.
fn policy() -> Value {
    json!({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "rules": [
        {"level": "None", "users": [COMPONENTS, ITSELF]},
        {"level": "Request", "verbs": ["create", "update", "patch"], "resources": [
            {"group": "operator.knative.dev", "resources": ["knativeservings/status", "knativeeventings/status"]},
            {"group": "events.k8s.io", "resources": ["events"]},
        ]},
        {"level": "Metadata"},
    ]})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components_have_a_user_of_their_own_whose_requests_are_not_logged() -> Result<()> {
        let dir = tempfile::tempdir()?;
        configure(dir.path(), &Authority::new("ca")?, "https://127.0.0.1:6443")?;
        let read = |file: &str| -> Result<Value> {
            Ok(serde_json::from_str(&std::fs::read_to_string(dir.path().join(file))?)?)
        };
        let (config, policy) = (read(KUBECONFIG)?, read(POLICY)?);
        assert_eq!(config["users"][0]["name"], policy["rules"][0]["users"][0]);
        assert_eq!(policy["rules"][0]["level"], "None");
        assert_eq!(policy["rules"][2]["level"], "Metadata");
        Ok(())
    }
}
