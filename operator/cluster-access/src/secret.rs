//! Secrets with credentials. The [built-in providers](super::builtin) read them here, without a
//! mounted plugin. Before one of them or a plugin uses a Secret, [`binding`] decides whether the
//! ClusterProfile may have the credential.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use knative_operator_base::cluster_profile::ClusterProfileReference;
use knative_operator_client::error_text;
use knative_operator_client::identity::patch_as;
use kube::api::Patch;
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::Semaphore;

use super::binding::{self, Annotations, Binding};
use super::builtin::{self, SecretContent, SecretSource};
use super::error::{AccessError, Reason};
use super::exec::Credential;
use super::named_secrets::named_secrets;
use super::profile::{Access, Plugin};
use super::same_cluster;

/// Time after which a request to the spoke makes the program read the Secret again, so that a
/// binding that is removed takes effect.
const LIFETIME: Duration = Duration::from_secs(600);
/// Secrets that are read at the same time, over all spokes: after a restart, all of them are.
const MAX_READS: usize = 32;
static READS: Semaphore = Semaphore::const_new(MAX_READS);
/// Attempts to record where a credential is sent, while others change the Secret.
const ATTEMPTS: u32 = 16;

/// Reads tokens from Secrets.
#[derive(Clone)]
pub struct SecretReader {
    /// The hub.
    pub hub: Client,
    /// The namespace of the Secrets, in which nobody else may write them: the program's own.
    pub namespace: String,
    /// Whether to refuse Secrets that name no ClusterProfile.
    pub requires_binding: bool,
    /// Annotations with which a Secret names its ClusterProfiles.
    pub annotations: Annotations,
    /// Name of the program: the field manager of these annotations, and the user agent of its
    /// requests to the clusters.
    pub program: &'static str,
}

/// Who uses a Secret, and for what.
#[derive(Clone, Copy)]
struct Use<'a> {
    /// The provider, for messages.
    by: &'a str,
    /// Whether it is built in: those also need the server in a Secret of another namespace.
    is_builtin: bool,
    /// Whether the Secret has to name the ClusterProfile in any namespace.
    is_strict: bool,
    cluster: &'a ClusterProfileReference,
    access: &'a Access,
}

impl Use<'_> {
    fn failed(self, namespace: &str, name: &str, why: &str) -> AccessError {
        self.error(Reason::AccessProviderFailed, namespace, name, why)
    }

    fn error(self, reason: Reason, namespace: &str, name: &str, why: &str) -> AccessError {
        AccessError::new(reason, format!("{}: Secret {namespace}/{name} {why}", self.by))
    }
}

impl SecretReader {
    /// Reads the credential in the Secret of `source` for the ClusterProfile `cluster`, to send it
    /// to the server of `access`; `timeout` is for each request. Also returns what has to be done
    /// about the Secret, if it names no ClusterProfile.
    pub async fn read(
        &self,
        source: &SecretSource,
        cluster: &ClusterProfileReference,
        access: &Access,
        timeout: Duration,
    ) -> Result<(Credential, Option<String>), AccessError> {
        let is_strict = matches!(source.content, SecretContent::Kubeconfig { .. });
        let of = Use { by: source.reader(), is_builtin: true, is_strict, cluster, access };
        let (namespace, key) = (source.namespace.as_ref().unwrap_or(&self.namespace), &source.key);
        let failed = |why: &str| of.failed(namespace, &source.name, why);
        let permitted = Box::pin(self.permitted(namespace, &source.name, of, timeout)).await?;
        let (secret, remedy) = permitted.ok_or_else(|| {
            if self.is_strict(namespace, of) {
                return of.error(
                    Reason::CredentialNotBound,
                    namespace,
                    &source.name,
                    &self.unnamed(namespace, source, of),
                );
            }
            failed(&format!("does not exist; create it with the credential under the key \"{key}\""))
        })?;
        let value = secret.data.unwrap_or_default().remove(key).filter(|value| !value.0.is_empty());
        let value = value.ok_or_else(|| failed(&format!("has no key \"{key}\"")))?;
        let parts = builtin::credential(&source.content, |cluster| same_cluster::is_cluster(access, cluster), value.0);
        let (token, identity) = parts.map_err(|why| failed(&format!("{why} (key \"{key}\")")))?;
        Ok((Credential { token, identity, expires: expires() }, remedy))
    }

    /// Checks that `plugin` may read each Secret that its configuration names, for the
    /// ClusterProfile `cluster` and the server of `access`; `timeout` is for each request. Returns
    /// what has to be done about a Secret that names no ClusterProfile, and the time of the next
    /// check; `None` if no Secret has such a name.
    pub async fn permit(
        &self,
        plugin: &Plugin,
        cluster: &ClusterProfileReference,
        access: &Access,
        timeout: Duration,
    ) -> Result<Option<(Option<String>, Option<Timestamp>)>, AccessError> {
        let by = format!("access provider {}", plugin.provider);
        let named = named_secrets(plugin)
            .map_err(|why| AccessError::new(Reason::AccessProviderFailed, format!("{by}: {} {why}", plugin.command)))?;
        let of = Use { by: &by, is_builtin: false, is_strict: false, cluster, access };
        let (mut is_found, mut remedy) = (false, None);
        for namespace in std::iter::once(&self.namespace).chain(&named.namespaces) {
            for name in &named.names {
                if let Some((_, todo)) = Box::pin(self.permitted(namespace, name, of, timeout)).await? {
                    is_found = true;
                    remedy = remedy.or(todo);
                }
            }
        }
        Ok(is_found.then(|| (remedy, expires())))
    }

    /// Whether a Secret in `namespace` has to name its ClusterProfile for this use.
    fn is_strict(&self, namespace: &str, of: Use<'_>) -> bool {
        // Only in the program's namespace, it can record where a credential is sent first. In a
        // kubeconfig, there may be credentials of any kind.
        self.requires_binding || namespace != self.namespace || of.is_strict
    }

    /// Why the Secret of `source` in `namespace` is not used, if it has to name its ClusterProfile:
    /// the same for each cause.
    fn unnamed(&self, namespace: &str, source: &SecretSource, of: Use<'_>) -> String {
        let (name, key, cluster, server) = (&source.name, &source.key, of.cluster, &of.access.server);
        let profiles = self.annotations.profiles;
        let or = if namespace == self.namespace { "" } else { ", may not be read by the program," };
        format!(
            "does not exist{or} or does not name ClusterProfile {cluster} in its annotation {profiles}; create it with the \
             credential under the key \"{key}\", and if {server} is its cluster: \
             kubectl annotate secret {name} -n {namespace} {profiles}={cluster}"
        )
    }

    /// Secret `name` in `namespace`, if it exists and may be used so, and what has to be done about
    /// it. Where its credential is sent is recorded before, so that it is never sent to a second
    /// server.
    async fn permitted(
        &self,
        namespace: &str,
        name: &str,
        of: Use<'_>,
        timeout: Duration,
    ) -> Result<Option<(Secret, Option<String>)>, AccessError> {
        let secrets = Api::<Secret>::namespaced(self.hub.clone(), namespace);
        let is_own = namespace == self.namespace;
        let mut attempt = 1;
        loop {
            // The semaphore is never closed, so this call only waits. That is no time of the hub.
            let turn = READS.acquire().await;
            let read = tokio::time::timeout(timeout, secrets.get_opt(name)).await;
            drop(turn);
            let late = |_| of.failed(namespace, name, &format!("was not read within {timeout:?}"));
            let secret = match read.map_err(late)? {
                // A Secret that the program can't read there, its plugin can't read either.
                Err(kube::Error::Api(status)) if status.code == 403 && !is_own => None,
                read => read.map_err(|e| of.failed(namespace, name, &format!("can't be read: {}", error_text(&e))))?,
            };
            let is_strict = self.is_strict(namespace, of);
            // A ClusterProfile that it does not name learns nothing about it, also not whether it
            // exists. A plugin without a Secret is started.
            let is_shown = |secret: &Secret| {
                !(of.is_builtin && is_strict) || binding::is_named(&self.annotations, secret, of.cluster)
            };
            let Some(secret) = secret.filter(is_shown) else { return Ok(None) };
            let unbound = |why: &str| of.error(Reason::CredentialNotBound, namespace, name, why);
            let bound = binding::check(&self.annotations, &secret, of.cluster, of.access, is_strict);
            let Binding { remedy, record } = bound.map_err(|why| unbound(&why.to_string()))?;
            if of.is_builtin && !is_own && record.is_some() {
                let (own, servers, server) = (&self.namespace, self.annotations.servers, &of.access.server);
                return Err(unbound(&format!(
                    "is not in namespace {own}, so it has to name its servers; if {server} is its cluster: \
                     kubectl annotate secret {name} -n {namespace} {servers}={}",
                    super::address::word(server)
                )));
            }
            // The author of a ClusterProfile must not make the program write elsewhere.
            let Some(sent) = record.filter(|_| is_own) else { return Ok(Some((secret, remedy))) };
            let recorded = tokio::time::timeout(timeout, self.record(&secrets, &secret.metadata, &sent)).await;
            let sent_to = self.annotations.sent_to;
            let late =
                |_| of.failed(namespace, name, &format!("did not get the annotation {sent_to} within {timeout:?}"));
            match recorded.map_err(late)? {
                Ok(()) => return Ok(Some((secret, remedy))),
                // Somebody changed it since.
                Err(kube::Error::Api(status)) if status.code == 409 && attempt < ATTEMPTS => attempt += 1,
                Err(error) => {
                    let why = format!("can't be given the annotation {sent_to}: {}", error_text(&error));
                    return Err(of.failed(namespace, name, &why));
                }
            }
        }
    }

    /// Records in the Secret that was read with `metadata` where its credential is `sent`.
    async fn record(&self, secrets: &Api<Secret>, metadata: &ObjectMeta, sent: &str) -> kube::Result<()> {
        let (version, sent_to) = (&metadata.resource_version, self.annotations.sent_to);
        let patch = json!({"metadata": {"resourceVersion": version, "annotations": {sent_to: sent}}});
        let name = metadata.name.as_deref().unwrap_or_default();
        secrets.patch_metadata(name, &patch_as(self.program), &Patch::Merge(patch)).await.map(drop)
    }
}

/// When a Secret that is read now has to be read again.
fn expires() -> Option<Timestamp> {
    Timestamp::now().checked_add(LIFETIME).ok()
}

#[cfg(test)]
mod tests;
