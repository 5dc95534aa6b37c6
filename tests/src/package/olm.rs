//! The bundle for the Operator Lifecycle Manager and OperatorHub
//! (<https://olm.operatorframework.io/docs/tasks/creating-operator-bundle>), derived from the
//! rendered chart. OLM issues the webhook's certificate, in Secret
//! `operator-webhook-service-cert`.

use std::path::Path;

use base64::{Engine, prelude::BASE64_STANDARD};
use knative_operator_shared::yaml;
use serde_json::{Map, Value, json};

use super::REPOSITORY;
use crate::Result;

/// OperatorHub needs an icon.
const ICON: &str = r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 64 64"><rect width="64" height="64" rx="12" fill="#0865ad"/><path d="M18 14h8v16l14-16h10L35 31l16 19H41L26 32v18h-8z" fill="#fff"/></svg>"##;

const DESCRIPTION: &str = "Installs [Knative](https://knative.dev) Serving and Eventing on this cluster, or on the clusters that ClusterProfiles describe, and keeps them in the state that `KnativeServing`, `KnativeEventing` and `KnativeFleet` resources ask for. It repairs drift, rolls changes out in stages, and reports the state in conditions, events and metrics.\n";

/// Writes `manifests/` and `metadata/` to `out`.
pub fn write(objects: &[Value], version: &str, created: &str, out: &Path) -> Result<()> {
    let (manifests, metadata) = (out.join("manifests"), out.join("metadata"));
    std::fs::create_dir_all(&manifests)?;
    std::fs::create_dir_all(&metadata)?;
    let of = |kind: &'static str| objects.iter().filter(move |o| o["kind"] == kind);
    let bound = |role: &Value| of("ClusterRoleBinding").any(|b| b["roleRef"]["name"] == role["metadata"]["name"]);
    let is_for_users = |role: &&Value| !bound(role);
    for object in of("CustomResourceDefinition").chain(of("ConfigMap")).chain(of("ClusterRole").filter(is_for_users)) {
        let mut object = object.clone();
        if let Some(metadata) = object["metadata"].as_object_mut() {
            // OLM chooses the namespace.
            metadata.remove("namespace");
            metadata.remove("annotations");
        }
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        std::fs::write(manifests.join(format!("{name}.yaml")), yaml::write(&object)?)?;
    }
    let csv = service_version(objects, version, created)?;
    std::fs::write(manifests.join("knative-operator.clusterserviceversion.yaml"), yaml::write(&csv)?)?;
    let annotations = json!({"annotations": {
        "operators.operatorframework.io.bundle.mediatype.v1": "registry+v1",
        "operators.operatorframework.io.bundle.manifests.v1": "manifests/",
        "operators.operatorframework.io.bundle.metadata.v1": "metadata/",
        "operators.operatorframework.io.bundle.package.v1": "knative-operator-rs",
        "operators.operatorframework.io.bundle.channels.v1": "stable",
        "operators.operatorframework.io.bundle.channel.default.v1": "stable",
    }});
    std::fs::write(metadata.join("annotations.yaml"), yaml::write(&annotations)?)?;
    Ok(())
}

fn service_version(objects: &[Value], version: &str, created: &str) -> Result<Value> {
    let of = |kind: &'static str| objects.iter().filter(move |o| o["kind"] == kind);
    let deployments: Vec<Value> = of("Deployment")
        .map(|d| json!({"name": d["metadata"]["name"], "label": d["metadata"]["labels"], "spec": d["spec"]}))
        .collect();
    let image = |name: &str| {
        let found = deployments.iter().find(|d| d["name"] == name);
        let image = found.and_then(|d| d["spec"]["template"]["spec"]["containers"][0]["image"].as_str());
        image.map(str::to_owned).ok_or_else(|| format!("no image of {name}"))
    };
    let (operator, webhook) = (image("knative-operator")?, image("operator-webhook")?);
    let owned: Vec<Value> = of("CustomResourceDefinition").map(owned).collect();
    let examples = Value::from(examples()).to_string();
    let capabilities = "Deep Insights";
    Ok(json!({
        "apiVersion": "operators.coreos.com/v1alpha1",
        "kind": "ClusterServiceVersion",
        "metadata": {
            "name": format!("knative-operator-rs.v{version}"),
            "namespace": "placeholder",
            "annotations": {
                "alm-examples": examples,
                "capabilities": capabilities,
                "categories": "Networking, Integration & Delivery",
                "containerImage": operator,
                "createdAt": created,
                "description": "Installs and operates Knative on this cluster or on many clusters",
                "repository": REPOSITORY,
                "support": "Knative operator (Rust) contributors",
                "operatorframework.io/suggested-namespace": "knative-operator",
            },
            "labels": {"operatorframework.io/arch.amd64": "supported", "operatorframework.io/arch.arm64": "supported", "operatorframework.io/os.linux": "supported"},
        },
        "spec": {
            "displayName": "Knative operator (Rust)",
            "description": DESCRIPTION,
            "icon": [{"base64data": BASE64_STANDARD.encode(ICON), "mediatype": "image/svg+xml"}],
            "version": version,
            "maturity": "beta",
            "minKubeVersion": "1.33.0",
            "provider": {"name": "Knative operator (Rust) contributors", "url": REPOSITORY},
            "maintainers": [{"name": "Knative operator (Rust) contributors", "email": "maintainers@knative-operator-rs.dev"}],
            "keywords": ["knative", "serverless", "eventing", "multicluster"],
            "links": [{"name": "Source code", "url": REPOSITORY}],
            "installModes": [
                {"type": "OwnNamespace", "supported": false},
                {"type": "SingleNamespace", "supported": false},
                {"type": "MultiNamespace", "supported": false},
                {"type": "AllNamespaces", "supported": true},
            ],
            "customresourcedefinitions": {"owned": owned},
            "install": {"strategy": "deployment", "spec": {
                "deployments": deployments,
                "permissions": permissions(objects, "RoleBinding", "Role"),
                "clusterPermissions": permissions(objects, "ClusterRoleBinding", "ClusterRole"),
            }},
            "webhookdefinitions": of("ValidatingWebhookConfiguration").chain(of("MutatingWebhookConfiguration")).flat_map(webhooks).collect::<Vec<_>>(),
            "relatedImages": [{"name": "knative-operator", "image": operator}, {"name": "knative-operator-webhook", "image": webhook}],
        },
    }))
}

fn owned(definition: &Value) -> Value {
    let spec = &definition["spec"];
    let kind = spec["names"]["kind"].as_str().unwrap_or_default();
    let (title, text) = match kind {
        "KnativeServing" => ("Knative Serving", "An installation of Knative Serving on this cluster or on another one"),
        "KnativeEventing" => {
            ("Knative Eventing", "An installation of Knative Eventing on this cluster or on another one")
        }
        "KnativeFleet" => ("Knative Fleet", "One declaration for many clusters, rolled out in stages"),
        _ => ("Knative Fleet Approval", "The approval of a stage of a rollout"),
    };
    json!({
        "name": definition["metadata"]["name"], "kind": kind, "version": spec["versions"][0]["name"],
        "displayName": title, "description": text,
    })
}

/// The rules of each ServiceAccount.
fn permissions(objects: &[Value], binding: &str, role: &str) -> Vec<Value> {
    let mut accounts: Map<String, Value> = Map::new();
    for bound in objects.iter().filter(|o| o["kind"] == binding) {
        let found = objects.iter().find(|o| o["kind"] == role && o["metadata"]["name"] == bound["roleRef"]["name"]);
        let rules = found.and_then(|r| r["rules"].as_array()).cloned().unwrap_or_default();
        let account = bound["subjects"][0]["name"].as_str().unwrap_or_default().to_owned();
        let all = accounts.entry(account).or_insert_with(|| json!([]));
        all.as_array_mut().into_iter().for_each(|all| all.extend(rules.clone()));
    }
    accounts.into_iter().map(|(account, rules)| json!({"serviceAccountName": account, "rules": rules})).collect()
}

/// OLM knows no match conditions: it calls the webhook for all updates.
fn webhooks(configuration: &Value) -> Vec<Value> {
    let validating = configuration["kind"] == "ValidatingWebhookConfiguration";
    let of = |webhook: &Value| {
        json!({
            "type": if validating { "ValidatingAdmissionWebhook" } else { "MutatingAdmissionWebhook" },
            "generateName": webhook["name"],
            "deploymentName": "operator-webhook",
            "containerPort": 443,
            "targetPort": 8443,
            "webhookPath": webhook["clientConfig"]["service"]["path"],
            "admissionReviewVersions": webhook["admissionReviewVersions"],
            "failurePolicy": webhook["failurePolicy"],
            "matchPolicy": webhook["matchPolicy"],
            "sideEffects": webhook["sideEffects"],
            "timeoutSeconds": webhook["timeoutSeconds"],
            "rules": webhook["rules"],
        })
    };
    configuration["webhooks"].as_array().into_iter().flatten().map(of).collect()
}

/// An example of each kind.
fn examples() -> Vec<Value> {
    let kourier = json!({
        "ingress": {"kourier": {"enabled": true}},
        "config": {"network": {"ingress-class": "kourier.ingress.networking.knative.dev"}},
    });
    vec![
        json!({"apiVersion": "operator.knative.dev/v1beta1", "kind": "KnativeServing",
            "metadata": {"name": "knative-serving", "namespace": "knative-serving"}, "spec": kourier}),
        json!({"apiVersion": "operator.knative.dev/v1beta1", "kind": "KnativeEventing",
            "metadata": {"name": "knative-eventing", "namespace": "knative-eventing"}, "spec": {}}),
        json!({"apiVersion": "operator.knative.dev/v1alpha1", "kind": "KnativeFleet",
            "metadata": {"name": "production", "namespace": "fleet-system"},
            "spec": {"placement": {"clusterSelector": {"matchLabels": {"env": "production"}}}, "serving": {"spec": kourier},
                "rollout": {"stages": [{"name": "canary", "clusterSelector": {"matchLabels": {"tier": "canary"}}}, {"name": "rest", "approval": "Required"}]}}}),
        json!({"apiVersion": "operator.knative.dev/v1alpha1", "kind": "KnativeFleetApproval",
            "metadata": {"name": "production-rest", "namespace": "fleet-system"},
            "spec": {"fleet": "production", "stage": "rest", "revision": "production-7c5b8f"}}),
    ]
}
