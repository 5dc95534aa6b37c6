//! Fields that Knative's own controllers write to released objects stay theirs:
//! docs/user/compatibility.md lists them. Each write is made like the controller's: a whole object,
//! by another manager.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use knative_operator_shared::api::Component;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::measure::{Audit, Request};
use knative_operator_tests::product::{self, Product, SPOKE_USER, values};
use knative_operator_tests::{Result, releases, wait};
use kube::Api;
use serde_json::{Value, json};

use crate::support::{INSTALL, apply, condition, delete, namespace, ready, resource, run, status};

const PLACE: &str = "knative-eventing";
const ADAPTER: [&str; 2] = ["deployment", "pingsource-mt-adapter"];

/// Object `name` of `kind`.
async fn get(spoke: &Cluster, [kind, name]: [&str; 2]) -> Result<Value> {
    spoke.object(kind, PLACE, name).read().await
}

/// Replaces the whole object as `manager`, changed by `change`, regardless of its resource version.
async fn write(spoke: &Cluster, object: [&str; 2], manager: &str, change: impl Fn(&mut Value)) -> Result<()> {
    let mut written = get(spoke, object).await?;
    change(&mut written);
    written["metadata"].as_object_mut().ok_or("no metadata")?.remove("resourceVersion");
    let manager = format!("--field-manager={manager}");
    spoke.kubectl(&["replace", "-f", "-", &manager], &written.to_string()).await.map(drop)
}

/// The environment that Eventing's controller writes, in its order; `level` is part of it.
fn environment(level: &str) -> Value {
    let own = json!({"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}});
    json!([
        {"name": "NAMESPACE", "valueFrom": own},
        {"name": "SYSTEM_NAMESPACE", "valueFrom": own},
        {"name": "K_LEADER_ELECTION_CONFIG", "value": "{\"LeaseDuration\":\"15s\"}"},
        {"name": "K_NO_SHUTDOWN_AFTER", "value": "60"},
        {"name": "K_SINK_TIMEOUT", "value": "-1"},
        {"name": "K_LOGGING_CONFIG", "value": format!("{{\"loglevel\":\"{level}\"}}")},
        {"name": "K_OBSERVABILITY_CONFIG", "value": "{}"},
    ])
}

/// Objects and fields that the controllers write.
fn written() -> Vec<([&'static str; 2], &'static str)> {
    vec![
        (ADAPTER, "/spec/template/spec/containers/0/env"),
        (ADAPTER, "/spec/replicas"),
        (["validatingwebhookconfiguration", "validation.webhook.eventing.knative.dev"], "/webhooks"),
        (["validatingwebhookconfiguration", "validation.webhook.eventing.knative.dev"], "/metadata/ownerReferences"),
        (["validatingwebhookconfiguration", "config.webhook.eventing.knative.dev"], "/webhooks"),
        (["mutatingwebhookconfiguration", "webhook.eventing.knative.dev"], "/webhooks"),
        (["mutatingwebhookconfiguration", "sinkbindings.webhook.sources.knative.dev"], "/webhooks"),
        (["secret", "eventing-webhook-certs"], "/data"),
        (["secret", "request-reply-keys"], "/data"),
        (["customresourcedefinition", "pingsources.sources.knative.dev"], "/spec/conversion"),
    ]
}

/// Plays the write of Eventing's controller to the adapter of PingSources.
pub async fn play_adapter(spoke: &Cluster) -> Result<()> {
    write(spoke, ADAPTER, "controller", |adapter| {
        adapter["spec"]["replicas"] = json!(1);
        adapter["spec"]["template"]["spec"]["containers"][0]["env"] = environment("info");
    })
    .await
}

/// The fields that it writes there: replicas and environment.
pub async fn adapter(spoke: &Cluster) -> Result<(Value, Value)> {
    let spec = get(spoke, ADAPTER).await?["spec"].clone();
    Ok((spec["replicas"].clone(), spec["template"]["spec"]["containers"][0]["env"].clone()))
}

/// Plays the writes of all controllers.
async fn play(spoke: &Cluster) -> Result<()> {
    play_adapter(spoke).await?;
    let uid = get(spoke, ["namespace", PLACE]).await?["metadata"]["uid"].clone();
    // knative/pkg: webhook/resourcesemantics/{validation,defaulting}, webhook/configmaps,
    // webhook/psbinding.
    let webhook = |mutating: bool, bindings: bool| {
        let uid = uid.clone();
        move |configuration: &mut Value| {
            configuration["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "Namespace", "name": PLACE, "uid": uid, "controller": false, "blockOwnerDeletion": true}]);
            for hook in configuration["webhooks"].as_array_mut().into_iter().flatten() {
                let selector =
                    json!({"matchExpressions": [{"key": "webhooks.knative.dev/exclude", "operator": "DoesNotExist"}]});
                hook["rules"] = json!([{"apiGroups": ["eventing.knative.dev"], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["brokers", "brokers/status"], "scope": "*"}]);
                hook["namespaceSelector"] = selector.clone();
                hook["clientConfig"]["caBundle"] = json!("Y2E=");
                hook["clientConfig"]["service"]["path"] = json!("/resource");
                if mutating {
                    hook["reinvocationPolicy"] = json!("IfNeeded");
                }
                if bindings {
                    hook["objectSelector"] = selector;
                    hook["matchPolicy"] = json!("Equivalent");
                }
            }
        }
    };
    write(
        spoke,
        ["validatingwebhookconfiguration", "validation.webhook.eventing.knative.dev"],
        "webhook",
        webhook(false, false),
    )
    .await?;
    write(
        spoke,
        ["validatingwebhookconfiguration", "config.webhook.eventing.knative.dev"],
        "webhook",
        webhook(false, false),
    )
    .await?;
    write(spoke, ["mutatingwebhookconfiguration", "webhook.eventing.knative.dev"], "webhook", webhook(true, false))
        .await?;
    write(
        spoke,
        ["mutatingwebhookconfiguration", "sinkbindings.webhook.sources.knative.dev"],
        "webhook",
        webhook(true, true),
    )
    .await?;
    // knative/pkg: webhook/certificates; knative/eventing: reconciler/requestreply.
    write(spoke, ["secret", "eventing-webhook-certs"], "webhook", |secret| {
        secret["data"] = json!({"server-key.pem": "a2V5", "ca-cert.pem": "Y2E="});
    })
    .await?;
    write(spoke, ["secret", "request-reply-keys"], "controller", |secret| secret["data"] = json!({"key-0": "a2V5"}))
        .await?;
    // knative/pkg: webhook/resourcesemantics/conversion.
    write(spoke, ["customresourcedefinition", "pingsources.sources.knative.dev"], "webhook", |definition| {
        definition["spec"]["conversion"]["webhook"]["clientConfig"]["service"]["path"] = json!("/resource-conversion");
    })
    .await
}

/// Current values of the fields in [`written`].
async fn state(spoke: &Cluster) -> Result<Vec<(String, Value)>> {
    let mut all = Vec::new();
    for (object, path) in written() {
        let found = get(spoke, object).await?;
        all.push((format!("{} {path}", object.join("/")), found.pointer(path).cloned().unwrap_or_default()));
    }
    Ok(all)
}

/// Number of rollouts of the adapter.
async fn rollouts(spoke: &Cluster) -> Result<u64> {
    let adapter = get(spoke, ADAPTER).await?;
    let revision =
        adapter["metadata"]["annotations"]["deployment.kubernetes.io/revision"].as_str().unwrap_or_default().parse()?;
    Ok(revision)
}

/// The operator's writes to these objects since the last call, once the audit log is complete.
async fn repairs(audit: &mut Audit) -> Result<Vec<String>> {
    tokio::time::sleep(Duration::from_secs(3)).await;
    let of_controllers = |r: &Request| written().iter().any(|([_, name], _)| r.target.ends_with(&format!("/{name}")));
    Ok(audit
        .take()?
        .iter()
        .filter(|r| r.writes() && of_controllers(r))
        .map(|r| format!("{} {}", r.verb, r.target))
        .collect())
}

#[test]
fn fields_of_knative_controllers_stay_over_restart_change_and_upgrade() {
    run(async {
        let releases = releases::best();
        let (hub, spoke, plugins) =
            (Cluster::hub("writers").await?, Cluster::spoke("written").await?, tempfile::tempdir()?);
        let mut product = Product::create(&hub, &releases, values(&[]), plugins.path()).await?;
        product::register(&hub, &spoke, "spoke").await?;
        namespace(&hub, "writers").await?;
        let mut eventing = resource(Component::Eventing, "writers", "ke", Some("spoke"), json!({"version": "1.22.1"}));
        apply(&hub, &eventing).await?;
        ready(&hub, &eventing).await?;
        let mut audit = Audit::of(&spoke, SPOKE_USER)?;
        let before = rollouts(&spoke).await?;
        play(&spoke).await?;
        // The controller's write causes one rollout.
        let deployments = Api::<Deployment>::namespaced(spoke.client(), PLACE);
        wait::until(&deployments, ADAPTER[1], INSTALL, "rolled out", wait::available).await?;
        let expected = state(&spoke).await?;
        assert_eq!(repairs(&mut audit).await?, [""; 0], "repaired");
        assert_eq!((rollouts(&spoke).await?, state(&spoke).await?), (before + 1, expected.clone()));

        // A restart observes everything again.
        product.restart_operator(&hub, rustix::process::Signal::KILL).await?;
        assert_eq!(repairs(&mut audit).await?, [""; 0], "repaired after a restart");

        // A change of another object, and then one of the adapter itself.
        eventing["spec"]["config"] = json!({"features": {"kreference-group": "enabled"}});
        apply(&hub, &eventing).await?;
        settled(&hub, &eventing, 2).await?;
        assert_eq!(repairs(&mut audit).await?, [""; 0], "repaired after a change");
        assert_eq!((rollouts(&spoke).await?, state(&spoke).await?), (before + 1, expected.clone()));
        eventing["spec"]["workloads"] = json!([{"name": ADAPTER[1], "labels": {"example.com/a": "b"}}]);
        apply(&hub, &eventing).await?;
        settled(&hub, &eventing, 3).await?;
        let labeled = |d: Option<&Deployment>| {
            let template = d.and_then(|d| d.spec.template.metadata.as_ref()?.labels.as_ref());
            template.is_some_and(|labels| labels.contains_key("example.com/a")) && wait::available(d)
        };
        wait::until(&deployments, ADAPTER[1], INSTALL, "labeled", labeled).await?;
        assert_eq!((rollouts(&spoke).await?, state(&spoke).await?), (before + 2, expected.clone()));

        // The next version has another template: one rollout, and the fields stay.
        eventing["spec"]["version"] = json!("1.22.2");
        apply(&hub, &eventing).await?;
        let upgraded = |s: &knative_operator_shared::api::KnativeStatus| {
            s.version.as_deref() == Some("1.22.2") && condition(s, "Ready").is_some_and(|c| c.status == "True")
        };
        status(&hub, &eventing, INSTALL, "upgraded", upgraded).await?;
        let after = rollouts(&spoke).await?;
        assert!(after <= before + 3, "{after} rollouts, {before} before");
        assert_eq!(state(&spoke).await?, expected);
        audit.take()?;
        // The controller continues to write.
        write(&spoke, ADAPTER, "controller", |adapter| {
            adapter["spec"]["template"]["spec"]["containers"][0]["env"] = environment("debug");
        })
        .await?;
        assert_eq!(repairs(&mut audit).await?, [""; 0], "repaired after an upgrade");
        let environment = get(&spoke, ADAPTER).await?["spec"]["template"]["spec"]["containers"][0]["env"].to_string();
        assert!(environment.contains("debug") && !environment.contains("POD_NAME"), "{environment}");
        let events = hub.kubectl(&["get", "events", "-n", "writers", "-o", "jsonpath={.items[*].reason}"], "").await?;
        assert!(!events.contains("DriftFight") && !events.contains("DriftRepaired"), "{events}");
        delete(&hub, &eventing).await
    });
}

/// Waits until `resource` is Ready with this generation.
async fn settled(hub: &Cluster, resource: &Value, generation: i64) -> Result<()> {
    let done = |s: &knative_operator_shared::api::KnativeStatus| {
        s.observed_generation >= Some(generation) && condition(s, "Ready").is_some_and(|c| c.status == "True")
    };
    status(hub, resource, INSTALL, "settled", done).await.map(drop)
}
