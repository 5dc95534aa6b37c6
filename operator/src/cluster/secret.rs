//! The built-in access provider: reads a token from a Secret in the operator's namespace, in the
//! layout of the `secretreader` plugin
//! (<https://github.com/kubernetes-sigs/cluster-inventory-api>). Needs no mounted plugin.

use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use knative_operator_shared::reason::Reason;
use kube::{Api, Client};
use secrecy::SecretString;

use super::exec::Credential;
use super::unresolved::Unresolved;

/// Data key of the token.
const KEY: &str = "token";

/// Reads the token in Secret `name` of `namespace` on `hub`, within `timeout`.
pub async fn read(hub: &Client, namespace: &str, name: &str, timeout: Duration) -> Result<Credential, Unresolved> {
    let failed = |why: String| {
        Unresolved::new(
            Reason::AccessProviderFailed,
            format!("built-in provider secretreader: Secret {namespace}/{name} {why}"),
        )
    };
    let secrets = Api::<Secret>::namespaced(hub.clone(), namespace);
    let read = tokio::time::timeout(timeout, secrets.get_opt(name)).await;
    let read = read.map_err(|_| failed(format!("was not read within {timeout:?}")))?;
    let secret = read.map_err(|e| failed(format!("can't be read: {}", knative_operator_runtime::error_text(&e))))?;
    let secret =
        secret.ok_or_else(|| failed(format!("does not exist; create it with the token under the key \"{KEY}\"")))?;
    let token = secret.data.unwrap_or_default().remove(KEY).filter(|t| !t.0.is_empty());
    let token = token.ok_or_else(|| failed(format!("has no key \"{KEY}\"")))?;
    let token = String::from_utf8(token.0).map_err(|_| failed(format!("has no UTF-8 text under the key \"{KEY}\"")))?;
    Ok(Credential { token: Some(SecretString::from(token)), identity: None, expires: None })
}
