//! Resources without a spec, the first example of Knative's documentation; and stored resources
//! that are invalid.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use knative_operator_shared::api::Component;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::go_operator::GoOperator;
use knative_operator_tests::product::{Product, values};
use knative_operator_tests::releases;
use knative_operator_tests::remaining::objects;
use knative_operator_tests::{Result, tools};
use kube::Api;
use serde_json::{Value, json};

use crate::go_state::{State, take_over, taken};
use crate::support::{apply, delete, has_condition, has_event, namespace, nothing_left, ready, resource, run};

/// Kinds and namespaces of Istio that Knative's manifests need.
pub fn istio() -> Value {
    let crd = |group: &str, kind: &str, plural: &str| {
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": format!("{plural}.{group}")}, "spec": {
        "group": group, "scope": "Namespaced", "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase(), "listKind": format!("{kind}List")},
        "versions": [
            {"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}},
            {"name": "v1beta1", "served": true, "storage": false, "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}},
        ]}})
    };
    json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "istio-system"}},
        crd("networking.istio.io", "Gateway", "gateways"),
        crd("security.istio.io", "PeerAuthentication", "peerauthentications"),
    ]})
}

/// A resource of `component` as in the documentation: without a spec, or with this one.
fn bare(component: Component, spec: Option<Value>) -> Value {
    let mut object = resource(component, component.canonical(), component.canonical(), None, json!({}));
    object.as_object_mut().map(|o| o.remove("spec"));
    spec.into_iter().for_each(|spec| object["spec"] = spec);
    object
}

/// One sentence: what is missing, what needs it, and the fix.
const LACKS_ISTIO: &str = "Install failed with message: Istio is not installed (no kind Gateway";
const FIX: &str = "; install Istio, or set spec.ingress.kourier.enabled: true and spec.config.network.ingress-class: \
                       kourier.ingress.networking.knative.dev";

#[test]
fn resources_without_spec_are_admitted_and_installed() {
    run(async {
        let (hub, plugins, releases) = (Cluster::hub("bare").await?, tempfile::tempdir()?, releases::small());
        let _product = Product::create(&hub, &releases, values(&[]), plugins.path()).await?;
        for component in Component::ALL {
            namespace(&hub, component.canonical()).await?;
            apply(&hub, &bare(component, None)).await?;
            let stored = hub
                .kubectl(
                    &["get", component.plural(), component.canonical(), "-n", component.canonical(), "-o", "json"],
                    "",
                )
                .await?;
            assert!(serde_json::from_str::<Value>(&stored)?.get("spec").is_none(), "a spec was added: {stored}");
        }
        let serving = bare(Component::Serving, None);
        ready(&hub, &bare(Component::Eventing, None)).await?;
        ready(&hub, &serving).await?;
        let kubeconfig = hub.kubeconfig().display().to_string();
        for component in Component::ALL {
            let file = hub.dir().join("bare.json");
            std::fs::write(&file, bare(component, None).to_string())?;
            let mut diff = tokio::process::Command::new(tools::binary("knative-operator")?);
            diff.args(["diff", "--kubeconfig", &kubeconfig, "--kubernetes-min-version", "v1.25.0", "--releases"])
                .arg(&releases.dir)
                .arg("-f")
                .arg(&file);
            let done = diff.output().await?;
            assert_eq!(
                done.status.code(),
                Some(0),
                "{}{}",
                String::from_utf8_lossy(&done.stdout),
                String::from_utf8_lossy(&done.stderr)
            );
        }
        // From each form to each: they are equal, and nothing restarts.
        let deployments = Api::<Deployment>::namespaced(hub.client(), "knative-serving");
        let before = deployments.get("controller").await?.metadata.generation;
        for forms in [Some(json!({})), None, Some(Value::Null), Some(json!({})), Some(Value::Null), None] {
            for component in Component::ALL {
                // kubectl reads before it writes; a status update may come in between.
                let object = bare(component, forms.clone()).to_string();
                let mut output = (false, "the object has been modified".to_owned());
                for _ in 0..20 {
                    if output.0 || !output.1.contains("the object has been modified") {
                        break;
                    }
                    output = hub.kubectl_output(&["replace", "-f", "-"], &object).await;
                }
                assert!(output.0, "{}", output.1);
            }
        }
        ready(&hub, &serving).await?;
        assert_eq!(deployments.get("controller").await?.metadata.generation, before);
        // A target can't be added to a resource without spec, nor removed with its spec.
        let targeted = bare(Component::Serving, Some(json!({"clusterProfileRef": {"name": "a", "namespace": "b"}})));
        let (accepted, output) = hub.kubectl_output(&["replace", "-f", "-"], &targeted.to_string()).await;
        assert!(!accepted && output.contains("clusterProfileRef"), "{output}");
        for component in Component::ALL {
            delete(&hub, &bare(component, None)).await?;
        }
        Ok(())
    });
}

#[test]
fn resources_without_spec_stored_before_webhook_are_installed() {
    run(async {
        // Without admission webhooks: Knative's own have no Pods here.
        let (hub, plugins, releases) = (Cluster::spoke("stored").await?, tempfile::tempdir()?, releases::best());
        let mut product = Product::create(&hub, &releases, values(&[]), plugins.path()).await?;
        for component in Component::ALL {
            namespace(&hub, component.canonical()).await?;
        }
        product.stop_operator(rustix::process::Signal::TERM)?;
        for component in Component::ALL {
            apply(&hub, &bare(component, None)).await?;
        }
        product.start_operator(&hub).await?;
        let serving = bare(Component::Serving, None);
        has_condition(&hub, &serving, "InstallSucceeded", "Error", LACKS_ISTIO).await?;
        has_condition(&hub, &serving, "InstallSucceeded", "Error", FIX).await?;
        hub.apply(&istio()).await?;
        for component in Component::ALL {
            ready(&hub, &bare(component, None)).await?;
        }
        // The definition's own rule applies without a webhook.
        let targeted = bare(Component::Serving, Some(json!({"clusterProfileRef": {"name": "a", "namespace": "b"}})));
        let (accepted, output) = hub.kubectl_output(&["replace", "-f", "-"], &targeted.to_string()).await;
        assert!(!accepted && output.contains("cannot be added or removed after creation"), "{output}");
        for component in Component::ALL {
            delete(&hub, &bare(component, None)).await?;
        }
        Ok(())
    });
}

/// Makes the definition of `component` accept anything, as an older one did, or restores the
/// chart's.
async fn definition(hub: &Cluster, component: Component, lax: bool) -> Result<()> {
    let mut definition = knative_operator_shared::crd::definition(component);
    if lax {
        let schema = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        *schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    }
    let name = format!("{}.operator.knative.dev", component.plural());
    let live: Value = hub.object("CustomResourceDefinition", "", &name).read().await?;
    definition["metadata"] = live["metadata"].clone();
    hub.kubectl(&["replace", "-f", "-"], &definition.to_string()).await.map(drop)
}

/// Applies `object` as soon as the API server accepts it: a changed definition takes effect a
/// moment later.
async fn apply_soon(hub: &Cluster, object: &Value) -> Result<()> {
    let started = std::time::Instant::now();
    while let Err(error) = apply(hub, object).await {
        assert!(started.elapsed() < knative_operator_tests::wait::LIMIT, "{error}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Ok(())
}

#[test]
fn invalid_resource_is_reported_and_its_installation_stays() {
    run(async {
        let (hub, plugins, releases) = (Cluster::spoke("unreadable").await?, tempfile::tempdir()?, releases::small());
        let _product = Product::create(&hub, &releases, values(&[]), plugins.path()).await?;
        for component in Component::ALL {
            namespace(&hub, component.canonical()).await?;
        }
        let before = objects(&hub.client()).await?;
        for component in Component::ALL {
            let spec = match component {
                Component::Serving => json!({"version": releases.serving, "ingress": {"kourier": {"enabled": true}}}),
                Component::Eventing => json!({"version": releases.eventing}),
            };
            let readable = bare(component, Some(spec));
            apply(&hub, &readable).await?;
            ready(&hub, &readable).await?;
            definition(&hub, component, true).await?;
            let mut broken = readable.clone();
            broken["spec"]["workloads"] = json!("all of them");
            apply_soon(&hub, &broken).await?;
            definition(&hub, component, false).await?;
            has_condition(
                &hub,
                &broken,
                "InstallSucceeded",
                "Unreadable",
                "spec.workloads: invalid type: string \"all of them\", expected a list; ",
            )
            .await?;
            has_condition(&hub, &broken, "Ready", "Unreadable", "The installation stays unchanged").await?;
            has_event(&hub, component.canonical(), "Unreadable", "").await?;
            let deployments = Api::<Deployment>::namespaced(hub.client(), component.canonical());
            assert!(
                !deployments.list(&kube::api::ListParams::default()).await?.items.is_empty(),
                "the installation was deleted"
            );
            // It recovers, becomes invalid again, and can be deleted.
            apply(&hub, &readable).await?;
            ready(&hub, &readable).await?;
        }
        definition(&hub, Component::Serving, true).await?;
        let mut broken =
            bare(Component::Serving, Some(json!({"config": ["a"], "ingress": {"kourier": {"enabled": true}}})));
        broken["spec"]["version"] = json!(releases.serving);
        apply_soon(&hub, &broken).await?;
        has_condition(&hub, &broken, "InstallSucceeded", "Unreadable", "spec.config: ").await?;
        for component in Component::ALL {
            delete(&hub, &bare(component, None)).await?;
        }
        nothing_left(&hub, &before).await
    });
}

#[test]
fn resources_without_spec_take_over_go_operator_objects() {
    run(async {
        // Without admission webhooks: Knative's own have no Pods here.
        let hub = Cluster::spoke("bare-takeover").await?;
        hub.apply(&istio()).await?;
        let mut go = GoOperator::install(&hub, &[]).await?;
        let places = Component::ALL.map(Component::canonical);
        for component in Component::ALL {
            namespace(&hub, component.canonical()).await?;
            apply(&hub, &bare(component, None)).await?;
        }
        for component in Component::ALL {
            ready(&hub, &bare(component, None)).await?;
        }
        let before = State::read(&hub, &places).await?;
        assert!(before.pods.len() >= 12, "{before}");
        let _product = take_over(&hub, &mut go, false).await?;
        for component in Component::ALL {
            // The status of the Go operator said Ready before.
            taken(&hub, component.canonical()).await?;
            ready(&hub, &bare(component, None)).await?;
            let place = component.canonical();
            let stored = hub.kubectl(&["get", component.plural(), place, "-n", place, "-o", "json"], "").await?;
            assert!(serde_json::from_str::<Value>(&stored)?.get("spec").is_none(), "a spec was added: {stored}");
        }
        before.is_same(&State::read(&hub, &places).await?, "without spec");
        for component in Component::ALL {
            delete(&hub, &bare(component, None)).await?;
        }
        Ok(())
    });
}
