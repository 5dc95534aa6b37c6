//! What is stored in a control plane's etcd, read and restored through its JSON gateway: everything
//! that a test stored disappears, without finalizers and without the API server's help, and the
//! controllers see it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use kube::Client;
use serde::Deserialize;
use serde_json::{Value, json};

use super::client;
use crate::kubeconfig::{User, kubeconfig};
use crate::pki::Authority;
use crate::{Result, ports};

/// The authority of etcd and its clients, in the folder of a cluster.
pub(super) const AUTHORITY: &str = "etcd-ca.crt";
/// How a client of etcd connects, in the form of a kubeconfig.
const CONNECTION: &str = "etcd.kubeconfig";
/// Everything that an API server stores.
const ALL: (&str, &str) = ("/registry/", "/registry0");
/// Maximum number of operations in a transaction of etcd (`--max-txn-ops`).
const OPERATIONS: usize = 128;
/// Where definitions of custom resources are.
const DEFINITIONS: &str = "/registry/apiextensions.k8s.io/customresourcedefinitions/";
/// What components write again and again.
const VOLATILE: [&str; 4] = ["/registry/events/", "/registry/leases/kube-", "/registry/masterleases/", NODES];
const NODES: &str = "/registry/minions/";
/// Where admission policies are, and how often an API server looks for changes of them.
const POLICIES: (&str, Duration) = ("admissionpolic", Duration::from_secs(1));
/// Namespaces that an API server creates by itself, and the last object that it creates.
const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];
const LAST: &str = "/registry/services/specs/default/kubernetes";
/// What controllers create once, or keep as it follows from others.
const KEPT: [&str; 4] = [
    "/registry/clusterroles/admin",
    "/registry/clusterroles/edit",
    "/registry/clusterroles/view",
    "/registry/servicecidrs/kubernetes",
];
/// What is deleted first, so that nothing is created again by its controller: kinds of built-in
/// groups, in this order, between custom resources and everything else.
const ORDER: [&[&str]; 4] = [
    &["apiextensions.k8s.io"],
    &["namespaces", "deployments", "statefulsets", "daemonsets", "cronjobs", "jobs"],
    &["replicasets"],
    &["pods", "services"],
];
/// Built-in groups whose names are in keys.
const GROUPS: [&str; 2] = ["apiextensions.k8s.io", "apiregistration.k8s.io"];
/// Time limit until a control plane has settled.
const SETTLED: Duration = Duration::from_secs(120);
/// Time in which nothing may change.
const QUIET: Duration = Duration::from_millis(150);

/// A client of etcd.
pub(super) struct Etcd(Client);

/// Values and revisions of all keys at some time.
pub(super) struct State(BTreeMap<String, (Vec<u8>, i64)>);

#[derive(Deserialize)]
struct Range {
    #[serde(default)]
    kvs: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    key: String,
    #[serde(default)]
    value: String,
    mod_revision: String,
}

/// Writes the certificate of etcd at `address` and of its clients into `dir`. Without, each user of
/// the machine could read and change what a cluster in its network stores.
pub(super) fn secure(dir: &Path, address: Ipv4Addr) -> Result<()> {
    let authority = Authority::new("etcd")?;
    let issued = authority.issue("etcd", None, &[address.into()], &[])?;
    issued.write(dir, "etcd")?;
    std::fs::write(dir.join(AUTHORITY), authority.pem())?;
    let url = format!("https://{address}:{}", ports::ETCD);
    let text = kubeconfig("etcd", &url, &authority.pem(), "default", &User::Certificate(&issued));
    Ok(std::fs::write(dir.join(CONNECTION), text)?)
}

impl Etcd {
    /// The etcd of the control plane with the folder `dir`.
    pub(super) async fn of(dir: &Path) -> Result<Self> {
        Ok(Self(client(&dir.join(CONNECTION)).await?))
    }

    async fn call<T: serde::de::DeserializeOwned>(&self, method: &str, body: &Value) -> Result<T> {
        let request = http::Request::post(format!("/v3/kv/{method}")).body(body.to_string().into_bytes())?;
        Ok(self.0.request(request).await?)
    }

    /// All keys with their revisions; with their values if `values`.
    async fn read(&self, values: bool) -> Result<BTreeMap<String, (Vec<u8>, i64)>> {
        let (from, to) = (encoded(ALL.0.as_bytes()), encoded(ALL.1.as_bytes()));
        let range: Range = self.call("range", &json!({"key": from, "range_end": to, "keys_only": !values})).await?;
        let entry = |entry: Entry| {
            let key = String::from_utf8(BASE64_STANDARD.decode(entry.key)?)?;
            Ok((key, (BASE64_STANDARD.decode(entry.value)?, entry.mod_revision.parse()?)))
        };
        range.kvs.into_iter().map(entry).collect()
    }

    /// The state, once what a new control plane creates by itself is there.
    pub(super) async fn state(&self) -> Result<State> {
        let deadline = Instant::now() + SETTLED;
        loop {
            let all = self.read(true).await?;
            let has = |name: &str| all.contains_key(&format!("/registry/namespaces/{name}"));
            if NAMESPACES.iter().all(|name| has(name)) && all.contains_key(LAST) {
                return Ok(State(all.into_iter().filter(|(key, _)| !is_kept(key)).collect()));
            }
            if Instant::now() > deadline {
                return Err("a new control plane creates no namespaces".into());
            }
            // Polled: a watch through the gateway is a stream without end.
            tokio::time::sleep(QUIET).await;
        }
    }

    /// Restores `state` and waits until controllers change nothing any more. Returns the groups of
    /// the custom resources whose definitions were there.
    pub(super) async fn restore(&self, state: &mut State) -> Result<BTreeSet<String>> {
        let (deadline, mut groups, mut quiet) = (Instant::now() + SETTLED, BTreeSet::new(), 0);
        let (mut is_first, mut had_policies) = (true, false);
        while quiet < 2 {
            let mut now = self.read(false).await?;
            now.retain(|key, _| !is_kept(key));
            let definitions = now.keys().filter_map(|key| key.strip_prefix(DEFINITIONS)?.split_once('.'));
            groups.extend(definitions.map(|(_, group)| group.to_owned()));
            let mut extra: Vec<&String> = now.keys().filter(|key| !state.0.contains_key(*key)).collect();
            extra.sort_by_key(|key| rank(key));
            had_policies |= extra.iter().any(|key| key.contains(POLICIES.0));
            let is_changed = |key: &str, was: i64| now.get(key).is_none_or(|(_, is)| *is != was);
            let changed: Vec<String> =
                state.0.iter().filter(|(key, (_, was))| is_changed(key, *was)).map(|(key, _)| key.clone()).collect();
            let unrest: Vec<&String> = extra.iter().copied().chain(&changed).filter(|key| !is_volatile(key)).collect();
            quiet = if unrest.is_empty() { quiet + 1 } else { 0 };
            if Instant::now() > deadline {
                return Err(format!("other than at the start: {unrest:?}").into());
            }
            let deletes = extra.iter().map(|key| json!({"request_delete_range": {"key": encoded(key.as_bytes())}}));
            self.write(deletes.collect()).await?;
            // Nodes change all the time, but tests change them, too.
            let is_due =
                |key: &&String| !is_volatile(key) || !now.contains_key(*key) || (is_first && key.starts_with(NODES));
            for key in changed.iter().filter(is_due) {
                let Some((value, revision)) = state.0.get_mut(key) else { continue };
                let put = json!({"request_put": {"key": encoded(key.as_bytes()), "value": encoded(value)}});
                *revision = self.write(vec![put]).await?;
            }
            is_first = false;
            tokio::time::sleep(QUIET).await;
        }
        if had_policies {
            tokio::time::sleep(POLICIES.1).await;
        }
        Ok(groups)
    }

    /// Performs `operations`; returns the last revision.
    async fn write(&self, operations: Vec<Value>) -> Result<i64> {
        let mut revision = 0;
        for some in operations.chunks(OPERATIONS) {
            let answer: Value = self.call("txn", &json!({"success": some})).await?;
            revision = answer["header"]["revision"].as_str().unwrap_or_default().parse()?;
        }
        Ok(revision)
    }
}

fn encoded(bytes: &[u8]) -> String {
    BASE64_STANDARD.encode(bytes)
}

fn is_volatile(key: &str) -> bool {
    VOLATILE.iter().any(|prefix| key.starts_with(prefix))
}

fn is_kept(key: &str) -> bool {
    let of_namespace = |name: &str| {
        key == format!("/registry/serviceaccounts/{name}/default")
            || key == format!("/registry/configmaps/{name}/kube-root-ca.crt")
    };
    KEPT.contains(&key) || NAMESPACES.iter().any(|name| of_namespace(name))
}

/// The place of `key` in the order of deletion: webhooks first, then custom resources; owners of
/// many objects last.
fn rank(key: &str) -> usize {
    let kind = key.strip_prefix(ALL.0).and_then(|rest| rest.split('/').next()).unwrap_or_default();
    let place = ORDER.iter().position(|kinds| kinds.contains(&kind));
    match kind {
        _ if kind.ends_with("webhookconfigurations") || kind.contains(POLICIES.0) => 0,
        "configmaps" => ORDER.len() + 3,
        _ if kind.contains('.') && !GROUPS.contains(&kind) => 1,
        _ => 2 + place.unwrap_or(ORDER.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn webhooks_go_first_and_owners_of_many_objects_last() {
        let ordered = [
            "/registry/validatingwebhookconfigurations/a",
            "/registry/operator.knative.dev/knativeservings/a/b",
            "/registry/apiextensions.k8s.io/customresourcedefinitions/knativeservings.operator.knative.dev",
            "/registry/deployments/a/b",
            "/registry/replicasets/a/b",
            "/registry/pods/a/b",
            "/registry/secrets/a/b",
            "/registry/configmaps/a/b",
        ];
        assert!(ordered.iter().map(|key| rank(key)).is_sorted_by(|a, b| a < b));
    }
}
