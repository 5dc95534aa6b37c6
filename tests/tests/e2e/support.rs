//! Helpers for all tests.

use std::collections::BTreeSet;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::events::v1::Event;
use knative_operator_shared::api::{Component, Condition, KnativeStatus};
use knative_operator_shared::label::CONFIRM_REMOVAL;
use knative_operator_tests::cluster::{Cluster, pool};
pub use knative_operator_tests::kubelet::script;
use knative_operator_tests::process::{self, Process};
use knative_operator_tests::product::{self, FLEET, Product};
use knative_operator_tests::releases::{self, Releases};
use knative_operator_tests::remaining::remaining;
use knative_operator_tests::{Error, Result, wait, waits};
use kube::Api;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

/// Time limit of an installation, with a large margin for a loaded machine.
pub const INSTALL: Duration = wait::LIMIT;

/// Time limit until something is in a log.
const LOGGED: Duration = wait::LIMIT;

/// Runs a test on the shared runtime, so that shared clusters stay alive.
pub fn run(test: impl Future<Output = Result<()>>) {
    static RUNTIME: LazyLock<tokio::runtime::Runtime> =
        LazyLock::new(|| tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap());
    let started = Instant::now();
    // On the heap: the stack of a test's thread is small.
    let test = Box::pin(test);
    pool::open();
    let outcome = RUNTIME.block_on(AssertUnwindSafe(test).catch_unwind());
    pool::close(matches!(outcome, Ok(Ok(()))));
    waits::finish(started.elapsed());
    let logs = process::last_words();
    match outcome {
        Ok(Ok(())) => {}
        Ok(Err(error)) => panic!("{error:?}\n{logs}"),
        Err(panic) => {
            eprintln!("{logs}");
            std::panic::resume_unwind(panic);
        }
    }
}

/// Runs a step of a test. If it fails, its `name` is at the start of the error, or after the
/// message of an assertion.
pub fn step<'s, T: 's>(name: &'s str, step: impl Future<Output = Result<T>> + 's) -> LocalBoxFuture<'s, Result<T>> {
    Box::pin(async move {
        match AssertUnwindSafe(step).catch_unwind().await {
            // With the lines on its way.
            Ok(outcome) => outcome.map_err(|error| Error::from(format!("{name}: {error:?}"))),
            Err(panic) => {
                eprintln!("failed in the step: {name}");
                std::panic::resume_unwind(panic)
            }
        }
    })
}

/// A hub with the operator and three spokes, `spoke-0` to `spoke-2`.
pub struct Fleet {
    pub hub: Cluster,
    pub spokes: Vec<Cluster>,
    pub product: Product,
    pub releases: Releases,
    /// Folder of the test's own plugins.
    pub plugins: PathBuf,
}

/// The fleet that most tests share.
pub async fn fleet() -> Result<&'static Fleet> {
    static FLEET: OnceCell<Fleet> = OnceCell::const_new();
    FLEET.get_or_try_init(start).await
}

async fn start() -> Result<Fleet> {
    let (hub, a, b, c) =
        tokio::try_join!(Cluster::hub("hub"), Cluster::spoke("a"), Cluster::spoke("b"), Cluster::spoke("c"))?;
    let (releases, plugins) = (releases::best(), hub.dir().join("own-plugins"));
    std::fs::create_dir_all(&plugins)?;
    let mut providers: Vec<Value> = crate::failures::PLUGINS.iter().map(|name| provider(name)).collect();
    providers.extend(crate::ways::providers());
    let product = Product::create(&hub, &releases, product::values(&providers), &plugins).await?;
    let spokes = vec![a, b, c];
    for (number, spoke) in spokes.iter().enumerate() {
        product::register(&hub, spoke, &format!("spoke-{number}")).await?;
    }
    Ok(Fleet { hub, spokes, product, releases, plugins })
}

/// A provider with a plugin of the test.
pub fn provider(name: &str) -> Value {
    json!({"name": name, "execConfig": {
        "apiVersion": "client.authentication.k8s.io/v1", "command": format!("/access-plugins/own/{name}"), "provideClusterInfo": true,
    }})
}

/// A custom resource; `profile` is its ClusterProfile, `None` for the local cluster.
pub fn resource(component: Component, namespace: &str, name: &str, profile: Option<&str>, spec: Value) -> Value {
    let mut spec = spec;
    if let Some(profile) = profile {
        spec["clusterProfileRef"] = json!({"name": profile, "namespace": FLEET});
    }
    json!({"apiVersion": "operator.knative.dev/v1beta1", "kind": component.kind(), "metadata": {"namespace": namespace, "name": name}, "spec": spec})
}

/// A spec whose manifests do not exist, so that nothing is installed.
pub fn nothing_to_install() -> Value {
    json!({"version": "1.0.0", "manifests": [{"URL": "nothing/there"}]})
}

/// Without an ingress of the operator.
pub fn without_ingress(resource: &mut Value) {
    resource["spec"]["ingress"] = json!({"kourier": {"enabled": false}});
    resource["spec"]["config"]["network"]["ingress-class"] = json!("somebody.example/ingress");
}

/// Serving with Kourier.
pub fn serving(namespace: &str, name: &str, profile: Option<&str>, releases: &Releases) -> Value {
    resource(
        Component::Serving,
        namespace,
        name,
        profile,
        json!({"version": releases.serving, "ingress": {"kourier": {"enabled": true}}}),
    )
}

/// Eventing.
pub fn eventing(namespace: &str, name: &str, profile: Option<&str>, releases: &Releases) -> Value {
    resource(Component::Eventing, namespace, name, profile, json!({"version": releases.eventing}))
}

pub async fn namespace(cluster: &Cluster, name: &str) -> Result<()> {
    cluster.namespace(name).await
}

pub async fn apply(cluster: &Cluster, object: &Value) -> Result<()> {
    cluster.apply(object).await
}

/// Messages of the API server in the words of its newest version: before 1.34, null has quotes.
pub fn current_words(text: &str) -> String {
    text.replace("Invalid value: \"null\"", "Invalid value: null")
}

/// Confirms that the deletion of the fleet `name` uninstalls from all its clusters.
pub async fn confirm(hub: &Cluster, namespace: &str, name: &str) -> Result<()> {
    hub.object("knativefleet", namespace, name).annotate(&json!({CONFIRM_REMOVAL: "9"})).await
}

/// Deletes `resource` and waits until it is gone.
pub async fn delete(cluster: &Cluster, resource: &Value) -> Result<()> {
    if resource["kind"] == "KnativeFleet" {
        let meta = &resource["metadata"];
        confirm(cluster, meta["namespace"].as_str().unwrap_or_default(), meta["name"].as_str().unwrap_or_default())
            .await?;
    }
    if cluster.remove(resource).await? { Ok(()) } else { Err(format!("not there: {resource}").into()) }
}

/// Makes the cluster's policy `policy` refuse objects with the name of `example`, of the kind with
/// the plural `plural`.
pub async fn forbid(cluster: &Cluster, policy: &str, plural: &str, example: &Value) -> Result<()> {
    let called = format!("object.metadata.name != '{}'", example["metadata"]["name"].as_str().unwrap_or_default());
    let (group, version) = example["apiVersion"].as_str().and_then(|v| v.split_once('/')).unwrap_or(("", "v1"));
    admit(cluster, policy, (group, version, plural), &called).await?;
    let started = Instant::now();
    // Polled: nothing reports when the policy takes effect.
    while !matches!(cluster.create(example, true).await, Err(error) if error.to_string().contains(policy)) {
        assert!(started.elapsed() < wait::LIMIT, "the policy {policy} has no effect yet");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Ok(())
}

/// Makes the cluster's policy `policy` refuse objects for which `expression` is not true, of the
/// kind with a group, version and plural, once it takes effect.
pub async fn admit(
    cluster: &Cluster,
    policy: &str,
    (group, version, plural): (&str, &str, &str),
    expression: &str,
) -> Result<()> {
    let rule = json!({"apiGroups": [group], "apiVersions": [version], "operations": ["CREATE", "UPDATE"], "resources": [plural]});
    let both = json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": policy}, "spec": {
            "matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": expression, "message": "not here"}]}},
        {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": policy}, "spec": {
            "policyName": policy, "validationActions": ["Deny"]}},
    ]});
    apply(cluster, &both).await
}

/// Waits until `resource` is gone.
pub async fn gone(cluster: &Cluster, resource: &Value) -> Result<()> {
    cluster.gone(resource).await
}

/// Waits until `namespace` has an event with `reason` whose note has `part`: events follow the
/// write that they report.
pub async fn has_event(cluster: &Cluster, namespace: &str, reason: &str, part: &str) -> Result<()> {
    let events = Api::<Event>::namespaced(cluster.client(), namespace);
    let is_it = |event: &Event| {
        event.reason.as_deref() == Some(reason) && event.note.as_deref().unwrap_or_default().contains(part)
    };
    wait::until_all(&events, "", INSTALL, reason, |all| all.iter().any(is_it)).await.map(drop)
}

/// Waits until `holds` is true for the status of `resource`; returns the status.
pub async fn status(
    cluster: &Cluster,
    resource: &Value,
    limit: Duration,
    what: &str,
    holds: impl Fn(&KnativeStatus) -> bool,
) -> Result<KnativeStatus> {
    let (namespace, name) =
        (resource["metadata"]["namespace"].as_str().unwrap(), resource["metadata"]["name"].as_str().unwrap());
    // Untyped: some have no spec, or an invalid one.
    let kind = if resource["kind"] == "KnativeServing" { Component::Serving } else { Component::Eventing };
    let gvk = GroupVersionKind::gvk("operator.knative.dev", "v1beta1", kind.kind());
    let kind = ApiResource::from_gvk_with_plural(&gvk, kind.plural());
    let api: Api<DynamicObject> = Api::namespaced_with(cluster.client(), namespace, &kind);
    let read =
        |object: &DynamicObject| serde_json::from_value::<KnativeStatus>(object.data.get("status")?.clone()).ok();
    let found = wait::until(&api, name, limit, what, |o| o.and_then(read).is_some_and(|s| holds(&s))).await?;
    found.as_ref().and_then(read).ok_or_else(|| "no status".into())
}

pub fn condition<'a>(status: &'a KnativeStatus, type_: &str) -> Option<&'a Condition> {
    status.conditions.iter().find(|c| c.type_ == type_)
}

/// Checks that `cluster` has no objects that were not there `before`.
pub async fn nothing_left(cluster: &Cluster, before: &BTreeSet<String>) -> Result<()> {
    let left = remaining(cluster, before).await?;
    if left.is_empty() { Ok(()) } else { Err(format!("left behind: {left:#?}").into()) }
}

/// Waits until the Jobs in the inventory of `anchor` are complete, which a first installation does
/// not wait for. Returns the anchor.
pub async fn jobs_done(spoke: &Cluster, place: &str, anchor: &str) -> Result<ConfigMap> {
    let maps = Api::<ConfigMap>::namespaced(spoke.client(), place);
    let done = |map: Option<&ConfigMap>| {
        let rows = map.and_then(|m| serde_json::from_str::<Vec<Value>>(m.data.as_ref()?.get("inventory")?).ok());
        rows.is_some_and(|rows| rows.iter().all(|row| row["k"] != "Job" || row["done"] == true))
    };
    wait::until(&maps, anchor, INSTALL, "with all Jobs done", done).await?.ok_or_else(|| "no anchor".into())
}

/// Waits until the log of `process` has `text`, which may follow what else it reports.
pub async fn logged(process: &Process, text: &str) -> Result<()> {
    let started = Instant::now();
    // Polled: a log is a file.
    while !process.log().contains(text) {
        if started.elapsed() > LOGGED {
            return Err(format!("not logged: {text}\n{}", process.log()).into());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// Waits until `resource` is Ready.
pub async fn ready(cluster: &Cluster, resource: &Value) -> Result<KnativeStatus> {
    status(cluster, resource, INSTALL, "Ready", |s| condition(s, "Ready").is_some_and(|c| c.status == "True")).await
}

/// Waits until condition `type_` of `resource` has `reason`, and checks that its message contains
/// `part`.
pub async fn has_condition(cluster: &Cluster, resource: &Value, type_: &str, reason: &str, part: &str) -> Result<()> {
    let what = format!("{type_} with reason {reason} and \"{part}\"");
    let has =
        |c: &Condition| c.reason.as_deref() == Some(reason) && c.message.as_deref().unwrap_or_default().contains(part);
    status(cluster, resource, INSTALL, &what, |s| condition(s, type_).is_some_and(has)).await.map(drop)
}
