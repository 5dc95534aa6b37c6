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
use super::builtin::{self, SecretSource};
use super::error::{AccessError, Reason};
use super::exec::Credential;
use super::named_secrets::named_secrets;
use super::profile::{Access, Plugin};

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
    /// Whether it is built in: only those read where they can't record where a credential is sent.
    is_builtin: bool,
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
        let of = Use { by: source.reader(), is_builtin: true, cluster, access };
        let (namespace, key) = (source.namespace.as_ref().unwrap_or(&self.namespace), &source.key);
        let failed = |why: &str| of.failed(namespace, &source.name, why);
        let permitted = Box::pin(self.permitted(namespace, &source.name, of, timeout)).await?;
        let (secret, remedy) = permitted.ok_or_else(|| {
            let or = if *namespace == self.namespace { "" } else { ", or the program may not read it" };
            failed(&format!("does not exist{or}; create it with the credential under the key \"{key}\""))
        })?;
        let value = secret.data.unwrap_or_default().remove(key).filter(|value| !value.0.is_empty());
        let value = value.ok_or_else(|| failed(&format!("has no key \"{key}\"")))?;
        let parts = builtin::credential(&source.content, value.0);
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
        let of = Use { by: &by, is_builtin: false, cluster, access };
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
            let Some(secret) = secret else { return Ok(None) };
            let unbound = |why: &str| of.error(Reason::CredentialNotBound, namespace, name, why);
            // Nobody else writes Secrets in the program's namespace.
            let is_strict = self.requires_binding || of.is_builtin && !is_own;
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
mod tests {
    use std::sync::{Arc, Mutex};

    use http::{Method, Request, Response};
    use kube::client::Body;
    use secrecy::ExposeSecret;
    use serde_json::Value;

    use super::super::profile::CredentialSource;
    use super::*;

    const CLUSTER_PROFILE: &str = "example.com/cluster-profile";
    const SENT_TO: &str = "example.com/sent-to";
    const ANNOTATIONS: Annotations =
        Annotations { profiles: CLUSTER_PROFILE, servers: "example.com/server", sent_to: SENT_TO };

    type Patches = Arc<Mutex<Vec<Value>>>;

    /// Reads from a hub with the Secret `prod` with `annotations`; also returns the patches that
    /// the hub gets.
    fn reader(annotations: &Value, requires_binding: bool) -> (SecretReader, Patches) {
        let meta = json!({"name": "prod", "namespace": "n", "resourceVersion": "7", "annotations": annotations});
        let secret =
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": {"token": "dA=="}}).to_string();
        let patches = Patches::default();
        let log = Arc::clone(&patches);
        let answers = tower::service_fn(move |request: Request<Body>| {
            let (log, secret) = (Arc::clone(&log), secret.clone());
            async move {
                let request_path = request.uri().path().to_owned();
                if request.method() == Method::PATCH {
                    let body = request.into_body().collect_bytes().await.unwrap();
                    log.lock().unwrap().push(serde_json::from_slice(&body).unwrap());
                }
                let is_there = request_path.ends_with("/n/secrets/prod");
                let status =
                    json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "message": "", "code": 404});
                let (code, body) = if is_there { (200, secret) } else { (404, status.to_string()) };
                let response = Response::builder().status(code).body(Body::from(body.into_bytes()));
                Ok::<_, std::convert::Infallible>(response.unwrap())
            }
        });
        let hub = Client::new(answers, "n");
        (secret_reader(hub, requires_binding), patches)
    }

    fn secret_reader(hub: Client, requires_binding: bool) -> SecretReader {
        let namespace = "n".to_owned();
        SecretReader { hub, namespace, requires_binding, annotations: ANNOTATIONS, program: "example" }
    }

    fn source() -> SecretSource {
        SecretSource::token("p", "prod")
    }

    fn access() -> Access {
        Access {
            server: "https://h:1".parse().unwrap(),
            authority: None,
            server_name: None,
            insecure: false,
            proxy: None,
            source: CredentialSource::Secret(source()),
        }
    }

    fn cluster() -> ClusterProfileReference {
        ClusterProfileReference { name: "prod".to_owned(), namespace: "fleet".to_owned() }
    }

    /// Reads from a hub with a Secret with `annotations`; also returns the patches that it got.
    async fn read(
        annotations: &Value,
        requires_binding: bool,
    ) -> (Result<(String, Option<String>), AccessError>, Vec<Value>) {
        let (reader, patches) = reader(annotations, requires_binding);
        let read = reader.read(&source(), &cluster(), &access(), Duration::from_secs(5)).await;
        let token = |credential: Credential| credential.token.unwrap().expose_secret().to_owned();
        let patches = patches.lock().unwrap().clone();
        (read.map(|(credential, remedy)| (token(credential), remedy)), patches)
    }

    #[tokio::test]
    async fn destination_is_recorded_before_it_is_sent() {
        for (annotations, strict) in [(json!({}), false), (json!({CLUSTER_PROFILE: "fleet/prod"}), true)] {
            let (given, patches) = read(&annotations, strict).await;
            let (token, remedy) = given.unwrap();
            let is_told = remedy.is_some_and(|remedy| remedy.contains("kubectl annotate secret prod -n n"));
            assert_eq!((token.as_str(), is_told), ("t", !strict));
            let [patch] = &patches[..] else { unreachable!("one patch: {patches:?}") };
            assert_eq!(patch["metadata"]["resourceVersion"], "7");
            let sent = &patch["metadata"]["annotations"][SENT_TO];
            assert!(sent.as_str().is_some_and(|sent| sent.starts_with(r#"{"fleet/prod":"https://h:1/ "#)), "{sent}");
            // Known from then on.
            let mut known = annotations.clone();
            known[SENT_TO] = sent.clone();
            let (again, patches) = read(&known, strict).await;
            assert!(again.is_ok() && patches.is_empty());
        }
    }

    #[tokio::test]
    async fn restart_reads_a_limited_number_of_secrets_at_the_same_time() {
        // Current and largest number of reads.
        let reads = Arc::new(Mutex::new((0usize, 0usize)));
        let log = Arc::clone(&reads);
        let answers = tower::service_fn(move |request: Request<Body>| {
            let log = Arc::clone(&log);
            async move {
                let is_read = request.method() == Method::GET;
                if is_read {
                    let mut reads = log.lock().unwrap();
                    *reads = (reads.0 + 1, reads.1.max(reads.0 + 1));
                }
                // All others that may have a turn meanwhile.
                for _ in 0..100 {
                    tokio::task::yield_now().await;
                }
                log.lock().unwrap().0 -= usize::from(is_read);
                let meta = json!({"name": "prod", "namespace": "n", "resourceVersion": "7"});
                let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": {"token": "dA=="}});
                let body = Body::from(secret.to_string().into_bytes());
                Ok::<_, std::convert::Infallible>(Response::new(body))
            }
        });
        let reader = secret_reader(Client::new(answers, "n"), false);
        let mut all = tokio::task::JoinSet::new();
        for _ in 0..3 * MAX_READS {
            let reader = reader.clone();
            all.spawn(
                async move { reader.read(&source(), &cluster(), &access(), Duration::from_secs(60)).await.is_ok() },
            );
        }
        assert_eq!(all.join_all().await, vec![true; 3 * MAX_READS]);
        let (now, most) = *reads.lock().unwrap();
        assert!(now == 0 && (2..=MAX_READS).contains(&most), "{now} {most}");
    }

    #[tokio::test]
    async fn plugin_is_started_only_for_the_profile_of_a_secret() {
        let bound = json!({CLUSTER_PROFILE: "fleet/other"});
        let by_plugin = |config: Value| {
            let info = json!({"spec": {"cluster": {"config": config}}});
            let plugin = Plugin {
                provider: "official".to_owned(),
                command: "/plugin".to_owned(),
                args: Vec::new(),
                env: std::collections::BTreeMap::new(),
                api_version: "client.authentication.k8s.io/v1".to_owned(),
                info,
            };
            let (reader, _) = reader(&bound, false);
            async move {
                let access = Access { source: CredentialSource::Plugin(plugin.clone()), ..access() };
                reader.permit(&plugin, &cluster(), &access, Duration::from_secs(5)).await
            }
        };
        for config in
            [json!({"clusterName": "prod"}), json!({"ClusterName": "prod"}), json!({"name": "prod", "key": "k"})]
        {
            let refused = by_plugin(config).await.unwrap_err();
            let start = "access provider official: Secret n/prod is not bound to ClusterProfile fleet/prod";
            assert!(refused.reason == Reason::CredentialNotBound && refused.message.starts_with(start), "{refused}");
        }
        // Neither names a Secret.
        for config in [json!({"clusterName": "missing"}), json!({"region": 1})] {
            assert_eq!(by_plugin(config).await, Ok(None));
        }
    }

    #[tokio::test]
    async fn secret_of_another_namespace_names_profile_and_server() {
        let elsewhere = SecretSource { namespace: Some("n".to_owned()), ..source() };
        let (servers, server) = (ANNOTATIONS.servers, "https://h:1/$(id)");
        let access = Access { server: server.parse().unwrap(), authority: Some(b"a".to_vec()), ..access() };
        for (annotations, part) in [
            (json!({}), "names no ClusterProfile"),
            (json!({servers: server}), "names no ClusterProfile"),
            (json!({CLUSTER_PROFILE: "fleet/prod"}), "kubectl annotate secret prod -n n example.com/server=URL"),
            (json!({CLUSTER_PROFILE: "fleet/prod", servers: "https://other:1"}), "is not bound to the server"),
            (json!({CLUSTER_PROFILE: "fleet/prod", servers: server}), ""),
        ] {
            let (reader, patches) = reader(&annotations, false);
            let reader = SecretReader { namespace: "own".to_owned(), ..reader };
            let read = reader.read(&elsewhere, &cluster(), &access, Duration::from_secs(5)).await;
            match read {
                Ok((credential, remedy)) => assert!(part.is_empty() && credential.token.is_some() && remedy.is_none()),
                Err(refused) => {
                    let is_part = !part.is_empty() && refused.message.contains(part);
                    assert!(is_part && refused.reason == Reason::CredentialNotBound, "{annotations}: {refused}");
                }
            }
            assert!(patches.lock().unwrap().is_empty(), "{annotations}");
        }
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
