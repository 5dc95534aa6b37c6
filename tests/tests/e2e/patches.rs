//! `spec.patches`: the commands in docs/user/patches.md, refusals by the webhook, and patched
//! objects on a cluster.

use std::fmt::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{ConfigMap, Event};
use knative_operator_shared::api::Component;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::measure::Audit;
use knative_operator_tests::product::{self, Product};
use knative_operator_tests::releases::{self, Releases};
use knative_operator_tests::{Result, wait};
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::document::{Shell, document, nothing_installed};
use crate::support::{INSTALL, apply, current_words, delete, has_condition, namespace, ready, resource, run};

const PLACE: &str = "knative-serving";

/// The small release with the objects that docs/user/patches.md names. Version 1.0.0 also has the
/// ConfigMap `config-old`.
fn bundle(root: &Path) -> Result<Releases> {
    let small = releases::small();
    let object = |api: &str, kind: &str, name: &str, rest: Value| {
        let mut object = rest;
        object["apiVersion"] = json!(api);
        object["kind"] = json!(kind);
        object["metadata"] = json!({"name": name, "namespace": PLACE, "labels": {"app.kubernetes.io/name": PLACE}});
        object
    };
    let labels = json!({"app": "activator"});
    let pod = json!({"containers": [{"name": "activator", "image": "registry.example/activator:1", "env": [{"name": "A", "value": "1"}]}]});
    let deployment = json!({"spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}}});
    let reference = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "activator"});
    let autoscaler = json!({"spec": {"minReplicas": 1, "maxReplicas": 20, "scaleTargetRef": reference}});
    let objects = [
        object("apps/v1", "Deployment", "activator", deployment),
        object("autoscaling/v2", "HorizontalPodAutoscaler", "activator", autoscaler),
    ];
    for family in std::fs::read_dir(&small.dir)?.flatten() {
        let into = root.join(family.file_name());
        if family.file_name() != "knative-serving" {
            std::os::unix::fs::symlink(family.path(), into)?;
            continue;
        }
        for version in std::fs::read_dir(family.path())?.flatten() {
            let into = into.join(version.file_name());
            std::fs::create_dir_all(&into)?;
            for file in std::fs::read_dir(version.path())?.flatten() {
                std::os::unix::fs::symlink(file.path(), into.join(file.file_name()))?;
            }
            let mut text = objects.iter().map(|object| format!("---\n{object}\n")).collect::<String>();
            if version.file_name() == "1.0.0" {
                let old = object("v1", "ConfigMap", "config-old", json!({"data": {"a": "b"}}));
                write!(text, "---\n{old}\n")?;
            }
            std::fs::write(into.join("2-more.yaml"), text)?;
        }
    }
    Ok(Releases { dir: root.to_owned(), ..small })
}

/// A KnativeServing with `patches`.
fn serving(patches: &[Value]) -> Value {
    let spec = json!({"version": "1.1.0", "ingress": {"kourier": {"enabled": true}}, "patches": patches});
    resource(Component::Serving, PLACE, PLACE, None, spec)
}

fn patch(kind: &str, name: &str, type_: &str, content: &str) -> Value {
    let (api_version, kind) = kind.rsplit_once('/').unwrap();
    json!({"target": {"apiVersion": api_version, "kind": kind, "name": name}, "patch": {"type": type_, "content": content}})
}

/// Waits until the object `name` is as `holds` says.
async fn until<K>(api: &Api<K>, name: &str, what: &str, holds: impl Fn(Option<&K>) -> bool) -> Result<()>
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned + Send + 'static,
    K::DynamicType: Default,
{
    wait::until(api, name, INSTALL, what, holds).await.map(drop)
}

fn replicas(deployment: Option<&Deployment>) -> Option<i32> {
    deployment?.spec.replicas
}

/// Forces a reconcile.
async fn reconcile(hub: &Cluster) -> Result<()> {
    let now = format!("reconcile.knative.dev/trigger={:?}", Instant::now());
    hub.kubectl(&["annotate", "--overwrite", "knativeserving", PLACE, "-n", PLACE, &now], "").await?;
    ready(hub, &serving(&[])).await.map(drop)
}

#[test]
fn commands_of_the_patches_document_work() {
    run(async {
        let (hub, plugins, root) = (Cluster::hub("patches").await?, tempfile::tempdir()?, tempfile::tempdir()?);
        let releases = bundle(root.path())?;
        let _product = Product::create(&hub, &releases, product::values(&[]), plugins.path()).await?;
        namespace(&hub, PLACE).await?;
        let mut shell = Shell::new(&[("hub", &hub)], &json!({}))?;
        std::os::unix::fs::symlink(&releases.dir, shell.folder().join("bundle"))?;
        let deployments = Api::<Deployment>::namespaced(hub.client(), PLACE);
        let autoscalers = Api::<HorizontalPodAutoscaler>::namespaced(hub.client(), PLACE);
        for block in document("docs/user/patches.md")? {
            let output = shell.run(&block.script, nothing_installed).await?;
            match block.heading.as_str() {
                "Change a field" => {
                    let pod = deployments.get("activator").await?.spec.template.spec.unwrap();
                    assert_eq!(pod.termination_grace_period_seconds, Some(900));
                    assert_eq!(json!(pod.containers[0].env)[0], json!({"name": "GODEBUG", "value": "http2debug=1"}));
                    assert_eq!(pod.containers[0].image.as_deref(), Some("registry.example/activator:1"));
                }
                "Let KEDA scale a workload" => {
                    let pod = deployments.get("activator").await?.spec.template.spec.unwrap();
                    assert_ne!(pod.termination_grace_period_seconds, Some(900), "the patch is gone, its effect is not");
                    // Nobody changes it back.
                    for _ in 0..2 {
                        reconcile(&hub).await?;
                        assert_eq!(replicas(Some(&deployments.get("activator").await?)), Some(3));
                    }
                    let events = Api::<Event>::namespaced(hub.client(), PLACE).list(&ListParams::default()).await?;
                    let fights = events.iter().filter(|e| e.reason.as_deref().is_some_and(|r| r.starts_with("Drift")));
                    assert_eq!(fights.count(), 0);
                }
                _ => assert!(!output.contains("error:") && !output.contains("warning:"), "{output}"),
            }
        }
        // Without the patches, the autoscaler is back, and it owns the replicas.
        apply(&hub, &serving(&[])).await?;
        until(&autoscalers, "activator", "back", |found| found.is_some()).await?;
        ready(&hub, &serving(&[])).await?;
        assert_eq!(replicas(Some(&deployments.get("activator").await?)), Some(3));
        delete(&hub, &serving(&[])).await
    });
}

#[test]
fn invalid_patch_is_refused_at_apply() {
    run(async {
        let (hub, plugins, root) = (Cluster::hub("patch-faults").await?, tempfile::tempdir()?, tempfile::tempdir()?);
        let releases = bundle(root.path())?;
        let _product = Product::create(&hub, &releases, product::values(&[]), plugins.path()).await?;
        namespace(&hub, PLACE).await?;
        let dry_run = async |object: &Value| {
            hub.kubectl_output(&["apply", "--dry-run=server", "-f", "-"], &object.to_string()).await
        };
        let unknown = patch("apps/v1/Deployment", "activater", "merge", "{}");
        // Polled: the webhook observes the catalog a moment after the operator has published it.
        let started = Instant::now();
        while dry_run(&serving(std::slice::from_ref(&unknown))).await.0 {
            assert!(started.elapsed() < INSTALL, "the webhook admits an unknown target");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        let activator = |type_: &str, content: &str| patch("apps/v1/Deployment", "activator", type_, content);
        let deletion = |kind: &str, name: &str| patch(kind, name, "strategic", "$patch: delete");
        let autoscaler = "autoscaling/v2/HorizontalPodAutoscaler";
        let mut elsewhere = activator("merge", "{}");
        elsewhere["target"]["name"] = json!("");
        let mut book = String::new();
        for (fault, patches) in [
            ("no match", vec![unknown]),
            ("other API version", vec![patch("apps/v1beta1/Deployment", "activator", "merge", "{}")]),
            (
                "Job of another version",
                vec![patch("batch/v1/Job", "storage-version-migration-serving-1.0.0", "merge", "{}")],
            ),
            ("empty name", vec![elsewhere]),
            ("unknown type", vec![activator("yaml", "{}")]),
            ("identity", vec![activator("strategic", "metadata: {name: other}")]),
            ("$patch in merge", vec![activator("merge", "spec: {$patch: replace}")]),
            ("$patch in json", vec![activator("json", "[{op: add, path: /spec, value: {$patch: delete}}]")]),
            ("unknown directive", vec![activator("strategic", "spec: {$patch: explode}")]),
            ("no effect", vec![activator("strategic", "spec: {template: {spec: {tolerations: [{$patch: replace}]}}}")]),
            ("no string", vec![activator("merge", "metadata: {annotations: {a: yes}}")]),
            ("merge key", vec![activator("strategic", "spec: {template: {spec: {containers: [{image: a}]}}}")]),
            ("no YAML", vec![activator("merge", "spec: [")]),
            ("wrong shape", vec![activator("json", "spec: {}"), activator("strategic", "[]")]),
            ("kind without schema", vec![patch("networking.istio.io/v1/Gateway", "a", "strategic", "{}")]),
            (
                "CRD",
                vec![deletion(
                    "apiextensions.k8s.io/v1/CustomResourceDefinition",
                    "images.caching.internal.knative.dev",
                )],
            ),
            ("Namespace", vec![deletion("v1/Namespace", PLACE)]),
            ("webhook", vec![deletion("apps/v1/Deployment", "webhook")]),
            ("deleted", vec![deletion(autoscaler, "activator"), patch(autoscaler, "activator", "merge", "{}")]),
        ] {
            let (accepted, output) = dry_run(&serving(&patches)).await;
            assert!(!accepted, "{fault}: {output}");
            writeln!(book, "# {fault}\n{}\n", output.trim())?;
        }
        // An upgrade that would lose the target of a patch.
        let mut old = serving(&[patch("v1/ConfigMap", "config-old", "merge", "data: {a: c}")]);
        old["spec"]["version"] = json!("1.0.0");
        apply(&hub, &old).await?;
        ready(&hub, &old).await?;
        let mut new = old.clone();
        new["spec"]["version"] = json!("1.1.0");
        let (accepted, output) = hub.kubectl_output(&["apply", "-f", "-"], &new.to_string()).await;
        assert!(!accepted, "{output}");
        writeln!(book, "# upgrade\n{}\n", output.trim())?;
        insta::assert_snapshot!("patches", current_words(&book));
        // Without the patch, it is accepted.
        apply(&hub, &serving(&[])).await?;
        let maps = Api::<ConfigMap>::namespaced(hub.client(), PLACE);
        until(&maps, "config-old", "gone", |found| found.is_none()).await?;
        delete(&hub, &serving(&[])).await
    });
}

#[test]
fn patched_objects_are_repaired_and_failed_patch_changes_nothing() {
    run(async {
        let (hub, plugins, root) = (Cluster::hub("patched").await?, tempfile::tempdir()?, tempfile::tempdir()?);
        let releases = bundle(root.path())?;
        let _product = Product::create(&hub, &releases, product::values(&[]), plugins.path()).await?;
        namespace(&hub, PLACE).await?;
        let (maps, deployments) =
            (Api::<ConfigMap>::namespaced(hub.client(), PLACE), Api::<Deployment>::namespaced(hub.client(), PLACE));
        let patches = [
            patch("v1/ConfigMap", "config-network", "strategic", "{$patch: replace, data: {only: this}}"),
            patch("v1/ConfigMap", "config-defaults", "merge", "metadata: {labels: null}"),
            patch("apps/v1/Deployment", "controller", "json", "[{op: add, path: /spec/replicas, value: 2}]"),
        ];
        let patched = serving(&patches);
        apply(&hub, &patched).await?;
        ready(&hub, &patched).await?;
        let network = maps.get("config-network").await?;
        assert_eq!(json!(network.data), json!({"only": "this"}));
        assert!(network.labels().is_empty() && network.owner_references().is_empty(), "{network:?}");
        assert!(maps.get("config-defaults").await?.labels().is_empty());
        assert_eq!(replicas(Some(&deployments.get("controller").await?)), Some(2));
        // They are not applied again and again, though the watches of labeled objects lack them.
        let mut audit = Audit::of(&hub, product::HUB_USER)?;
        reconcile(&hub).await?;
        let writes: Vec<_> = audit.take()?.into_iter().filter(|request| request.target.contains("config-")).collect();
        assert!(writes.is_empty(), "{writes:?}");
        // They are repaired, and come back.
        let edit = r#"{"data":{"only":"that"}}"#;
        hub.kubectl(&["patch", "configmap", "config-network", "-n", PLACE, "--type=merge", "-p", edit], "").await?;
        let repaired = |map: Option<&ConfigMap>| map.is_some_and(|m| json!(m.data) == json!({"only": "this"}));
        until(&maps, "config-network", "repaired", repaired).await?;
        hub.object("configmap", PLACE, "config-defaults").delete().await?;
        until(&maps, "config-defaults", "back", |map| map.is_some()).await?;

        // The API server set `rollingUpdate`, which it refuses for another strategy.
        let strategy = |d: Option<&Deployment>| d?.spec.strategy.as_ref()?.type_.clone();
        let mut recreated = patched.clone();
        let recreate = patch("apps/v1/Deployment", "controller", "merge", "spec: {strategy: {type: Recreate}}");
        recreated["spec"]["patches"].as_array_mut().unwrap().push(recreate);
        apply(&hub, &recreated).await?;
        until(&deployments, "controller", "recreated", |d| strategy(d).as_deref() == Some("Recreate")).await?;
        apply(&hub, &patched).await?;
        until(&deployments, "controller", "rolling", |d| strategy(d).as_deref() == Some("RollingUpdate")).await?;
        ready(&hub, &patched).await?;

        // The webhook does not know the contents of objects. Nothing changes.
        let mut failed = patched.clone();
        failed["spec"]["patches"][2]["patch"]["content"] = json!("[{op: test, path: /spec/replicas, value: 7}]");
        failed["spec"]["patches"][0]["patch"]["content"] = json!("data: {only: that}");
        apply(&hub, &failed).await?;
        let expected = "spec.patches[2].patch.content: apps/v1 Deployment controller: cannot apply the JSON patch: operation '/0' failed at path '/spec/replicas': ";
        has_condition(&hub, &failed, "InstallSucceeded", "Error", expected).await?;
        assert_eq!(json!(maps.get("config-network").await?.data), json!({"only": "this"}));
        assert_eq!(replicas(Some(&deployments.get("controller").await?)), Some(2));

        // Without the patches, labels are back, and the field has no value of the operator.
        apply(&hub, &serving(&[])).await?;
        until(&maps, "config-network", "restored", |map| map.is_some_and(|m| !m.labels().is_empty())).await?;
        until(&maps, "config-defaults", "restored", |map| map.is_some_and(|m| !m.labels().is_empty())).await?;
        assert!(!json!(maps.get("config-network").await?.data).as_object().unwrap().contains_key("only"));
        ready(&hub, &serving(&[])).await?;
        delete(&hub, &serving(&[])).await?;
        until(&maps, "config-network", "gone", |map| map.is_none()).await
    });
}
