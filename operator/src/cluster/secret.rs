//! The built-in access provider: reads a token from a Secret in the operator's namespace, in the
//! layout of the `secretreader` plugin
//! (<https://github.com/kubernetes-sigs/cluster-inventory-api>). Needs no mounted plugin. Unlike
//! the plugin, it asks [`binding`] whether the ClusterProfile may have the token.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use knative_operator_runtime::error_text;
use knative_operator_runtime::identity::patch_as;
use knative_operator_shared::api::ClusterProfileReference;
use knative_operator_shared::label::{FIELD_MANAGER, SENT_TO};
use knative_operator_shared::reason::Reason;
use kube::api::Patch;
use kube::{Api, Client};
use secrecy::SecretString;
use serde_json::json;

use super::binding::{self, Binding};
use super::exec::Credential;
use super::profile::Access;
use super::unresolved::Unresolved;

/// Data key of the token.
const KEY: &str = "token";
/// Time after which a request to the spoke makes the operator read the Secret again, so that a
/// binding that is removed takes effect.
const LIFETIME: Duration = Duration::from_secs(600);

/// Reads tokens from Secrets.
#[derive(Clone)]
pub struct SecretReader {
    /// The hub.
    pub hub: Client,
    /// The namespace of the Secrets: the operator's own.
    pub namespace: String,
    /// Whether to refuse Secrets that name no ClusterProfile.
    pub requires_binding: bool,
}

impl SecretReader {
    /// Reads the token in Secret `name` for the ClusterProfile `cluster`, to send it to the server
    /// of `access`, within `timeout`. Also returns what has to be done about the Secret, if it
    /// names no ClusterProfile.
    pub async fn read(
        &self,
        name: &str,
        cluster: &ClusterProfileReference,
        access: &Access,
        timeout: Duration,
    ) -> Result<(Credential, Option<String>), Unresolved> {
        let read = tokio::time::timeout(timeout, self.read_bound(name, cluster, access)).await;
        read.unwrap_or_else(|_| Err(self.failed(name, &format!("was not read within {timeout:?}"))))
    }

    async fn read_bound(
        &self,
        name: &str,
        cluster: &ClusterProfileReference,
        access: &Access,
    ) -> Result<(Credential, Option<String>), Unresolved> {
        let failed = |why: &str| self.failed(name, why);
        let secrets = Api::<Secret>::namespaced(self.hub.clone(), &self.namespace);
        let secret = secrets.get_opt(name).await;
        let secret = secret.map_err(|e| failed(&format!("can't be read: {}", error_text(&e))))?;
        let secret = secret
            .ok_or_else(|| failed(&format!("does not exist; create it with the token under the key \"{KEY}\"")))?;
        let bound = binding::check(&secret, cluster, access, self.requires_binding);
        let bound = bound.map_err(|why| self.unresolved(Reason::CredentialNotBound, name, &why))?;
        let Secret { metadata, data, .. } = secret;
        let token = data.unwrap_or_default().remove(KEY).filter(|t| !t.0.is_empty());
        let token = token.ok_or_else(|| failed(&format!("has no key \"{KEY}\"")))?;
        let token =
            String::from_utf8(token.0).map_err(|_| failed(&format!("has no UTF-8 text under the key \"{KEY}\"")))?;
        let remedy = match bound {
            Binding::Bound => None,
            Binding::Unbound { remedy, first } => {
                // Before the credential is sent, so that it is never sent to a second server.
                if let Some(destination) = first {
                    self.record(&secrets, name, &metadata, &destination).await?;
                }
                Some(remedy)
            }
        };
        let expires = Timestamp::now().checked_add(LIFETIME).ok();
        Ok((Credential { token: Some(SecretString::from(token)), identity: None, expires }, remedy))
    }

    /// Records in the Secret `name`, which was read with `metadata`, where its credential is sent.
    /// If somebody changed it since, the next attempt reads it again.
    async fn record(
        &self,
        secrets: &Api<Secret>,
        name: &str,
        metadata: &ObjectMeta,
        destination: &str,
    ) -> Result<(), Unresolved> {
        let version = &metadata.resource_version;
        let patch = json!({"metadata": {"resourceVersion": version, "annotations": {SENT_TO: destination}}});
        let written = secrets.patch_metadata(name, &patch_as(FIELD_MANAGER), &Patch::Merge(patch)).await;
        let unwritten = |error: kube::Error| format!("can't be given the annotation {SENT_TO}: {}", error_text(&error));
        written.map(drop).map_err(|error| self.failed(name, &unwritten(error)))
    }

    fn failed(&self, name: &str, why: &str) -> Unresolved {
        self.unresolved(Reason::AccessProviderFailed, name, why)
    }

    fn unresolved(&self, reason: Reason, name: &str, why: &str) -> Unresolved {
        Unresolved::new(reason, format!("built-in provider secretreader: Secret {}/{name} {why}", self.namespace))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use http::{Method, Request, Response};
    use knative_operator_shared::label::CLUSTER_PROFILE;
    use kube::client::Body;
    use secrecy::ExposeSecret;
    use serde_json::Value;

    use super::super::profile::CredentialSource;
    use super::*;

    /// Reads from a hub with a Secret with `annotations`; also returns the patches that it got.
    async fn read(
        annotations: &Value,
        requires_binding: bool,
    ) -> (Result<(String, Option<String>), Unresolved>, Vec<Value>) {
        let meta = json!({"name": "prod", "namespace": "n", "resourceVersion": "7", "annotations": annotations});
        let secret =
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": {"token": "dA=="}}).to_string();
        let patches = Arc::<Mutex<Vec<Value>>>::default();
        let log = Arc::clone(&patches);
        let answers = tower::service_fn(move |request: Request<Body>| {
            let (log, secret) = (Arc::clone(&log), secret.clone());
            async move {
                if request.method() == Method::PATCH {
                    let body = request.into_body().collect_bytes().await.unwrap();
                    log.lock().unwrap().push(serde_json::from_slice(&body).unwrap());
                }
                Ok::<_, std::convert::Infallible>(Response::new(Body::from(secret.into_bytes())))
            }
        });
        let reader = SecretReader { hub: Client::new(answers, "n"), namespace: "n".to_owned(), requires_binding };
        let access = Access {
            server: "https://h:1".parse().unwrap(),
            authority: None,
            server_name: None,
            insecure: false,
            proxy: None,
            source: CredentialSource::Secret { provider: "p".to_owned(), name: "prod".to_owned() },
        };
        let cluster = ClusterProfileReference { name: "prod".to_owned(), namespace: "fleet".to_owned() };
        let read = reader.read("prod", &cluster, &access, Duration::from_secs(5)).await;
        let token = |credential: Credential| credential.token.unwrap().expose_secret().to_owned();
        let patches = patches.lock().unwrap().clone();
        (read.map(|(credential, remedy)| (token(credential), remedy)), patches)
    }

    #[tokio::test]
    async fn bound_secret_is_only_read() {
        let (read, patches) = read(&json!({CLUSTER_PROFILE: "fleet/prod"}), true).await;
        assert_eq!((read, patches), (Ok(("t".to_owned(), None)), vec![]));
    }

    #[tokio::test]
    async fn destination_of_unbound_secret_is_recorded_before_it_is_sent() {
        let (given, patches) = read(&json!({}), false).await;
        let (token, remedy) = given.unwrap();
        assert!(token == "t" && remedy.is_some_and(|remedy| remedy.contains("kubectl annotate secret prod -n n")));
        let [patch] = &patches[..] else { unreachable!("one patch: {patches:?}") };
        assert_eq!(patch["metadata"]["resourceVersion"], "7");
        let sent = &patch["metadata"]["annotations"][SENT_TO];
        assert!(sent.as_str().is_some_and(|sent| sent.starts_with("https://h:1/ ")), "{sent}");
        // Known from then on.
        let (again, patches) = read(&json!({SENT_TO: sent}), false).await;
        assert!(again.is_ok() && patches.is_empty());
    }

    #[tokio::test]
    async fn refused_secret_is_not_changed() {
        for (annotations, strict) in [(json!({}), true), (json!({CLUSTER_PROFILE: "fleet/other"}), false)] {
            let (read, patches) = read(&annotations, strict).await;
            let refused = read.unwrap_err();
            assert!(refused.reason == Reason::CredentialNotBound && patches.is_empty(), "{refused}");
            assert!(refused.message.starts_with("built-in provider secretreader: Secret n/prod "), "{refused}");
        }
    }
}
