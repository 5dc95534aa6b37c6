//! The installation of the Go operator (knative/operator), as far as migrations are concerned: the
//! objects of its chart if `../shared/peer-chart` exists, else objects with the same names,
//! selectors, role references and conversion.

use std::path::Path;

use knative_operator_shared::api::Component;
use serde_json::{Value, json};

use crate::product::NAMESPACE;
use crate::{Result, tools};

/// Name of one of its Leases.
pub const LEASE: &str = "knative-operator.knative.dev.operator.pkg.reconciler.knativeserving.reconciler.00-of-01";

/// All objects of an installation; `multicluster`: with multi-cluster support.
pub fn objects(multicluster: bool) -> Result<Vec<Value>> {
    let shared = tools::project().join("../shared");
    let rendered = shared.join("peer-chart").join(if multicluster {
        "rendered-multicluster.yaml"
    } else {
        "rendered-default.yaml"
    });
    if !rendered.is_file() {
        return Ok(minimal_objects(multicluster));
    }
    let mut all: Vec<Value> = serde_saphyr::from_multiple(&std::fs::read_to_string(rendered)?)?;
    for component in Component::ALL {
        let file = shared.join("crds").join(format!("operator.knative.dev_{}.yaml", component.plural()));
        all.push(serde_saphyr::from_str(&std::fs::read_to_string(file)?)?);
    }
    all.retain(Value::is_object);
    Ok(all)
}

/// Writes the objects as a chart into `folder`.
pub fn chart(folder: &Path, multicluster: bool) -> Result<()> {
    std::fs::create_dir_all(folder.join("templates"))?;
    std::fs::write(folder.join("Chart.yaml"), "apiVersion: v1\nname: knative-operator\nversion: 1.23.0\n")?;
    for (number, object) in objects(multicluster)?.iter().enumerate() {
        // Escape text that looks like a template.
        let text = object.to_string().replace("{{", "{{ \"{{\" }}");
        std::fs::write(folder.join(format!("templates/{number}.yaml")), text)?;
    }
    Ok(())
}

/// The objects, reduced to what migrations need.
fn minimal_objects(multicluster: bool) -> Vec<Value> {
    let object = |api: &str, kind: &str, name: &str, namespaced: bool, rest: Value| {
        let mut object = json!({"apiVersion": api, "kind": kind, "metadata": {"name": name, "labels": {"app.kubernetes.io/name": "knative-operator"}}});
        if namespaced {
            object["metadata"]["namespace"] = json!(NAMESPACE);
        }
        for (key, value) in rest.as_object().into_iter().flatten() {
            object[key] = value.clone();
        }
        object
    };
    let rbac = "rbac.authorization.k8s.io/v1";
    let binding = |kind: &str, name: &str, role_kind: &str, role: &str, account: &str| {
        object(
            rbac,
            kind,
            name,
            kind == "RoleBinding",
            json!({"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role_kind, "name": role}, "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": NAMESPACE}]}),
        )
    };
    let role = |kind: &str, name: &str| {
        object(
            rbac,
            kind,
            name,
            kind == "Role",
            json!({"rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]}),
        )
    };
    let deployment = |name: &str, selector: Value, image: &str, probe: Option<Value>| {
        let mut container = json!({"name": name, "image": format!("gcr.io/knative-releases/knative.dev/operator/cmd/{image}:v1.23.0"), "ports": [{"name": "metrics", "containerPort": 9090}]});
        if let Some(probe) = probe {
            container["readinessProbe"] = probe;
        }
        object(
            "apps/v1",
            "Deployment",
            name,
            true,
            json!({"spec": {"selector": {"matchLabels": selector}, "template": {"metadata": {"labels": selector}, "spec": {"serviceAccountName": name, "containers": [container]}}}}),
        )
    };
    let mut all = vec![
        object("v1", "ServiceAccount", "knative-operator", true, json!({})),
        object("v1", "ServiceAccount", "operator-webhook", true, json!({})),
        object("v1", "Secret", "operator-webhook-certs", true, json!({})),
        object("v1", "ConfigMap", "config-logging", true, json!({"data": {"_example": "x"}})),
        object("v1", "ConfigMap", "config-observability", true, json!({"data": {"_example": "x"}})),
        object(
            "v1",
            "Service",
            "operator-webhook",
            true,
            json!({"spec": {"selector": {"role": "operator-webhook"}, "ports": [
            {"name": "http-metrics", "port": 9090}, {"name": "http-profiling", "port": 8008}, {"name": "https-webhook", "port": 443, "targetPort": 8443}]}}),
        ),
        deployment("knative-operator", json!({"name": "knative-operator"}), "operator", None),
        deployment(
            "operator-webhook",
            json!({"app": "operator-webhook", "role": "operator-webhook"}),
            "webhook",
            Some(
                json!({"periodSeconds": 1, "httpGet": {"scheme": "HTTPS", "port": 8443, "httpHeaders": [{"name": "k-kubelet-probe", "value": "webhook"}]}}),
            ),
        ),
        role("Role", "knative-operator-webhook"),
        role("ClusterRole", "knative-operator-webhook"),
        binding("RoleBinding", "operator-webhook", "Role", "knative-operator-webhook", "operator-webhook"),
        binding(
            "ClusterRoleBinding",
            "operator-webhook",
            "ClusterRole",
            "knative-operator-webhook",
            "operator-webhook",
        ),
    ];
    for part in ["serving", "eventing"] {
        for name in
            ["operator", "operator-aggregated", "operator-aggregated-stable"].map(|end| format!("knative-{part}-{end}"))
        {
            all.push(role("ClusterRole", &name));
            all.push(binding("ClusterRoleBinding", &name, "ClusterRole", &name, "knative-operator"));
        }
    }
    if multicluster {
        all.push(object(
            "v1",
            "ConfigMap",
            "clusterprofile-provider-file",
            true,
            json!({"data": {"config.json": "{\"providers\":[]}"}}),
        ));
    }
    for component in Component::ALL {
        let mut definition = knative_operator_shared::crd::definition(component);
        definition["metadata"].as_object_mut().map(|metadata| metadata.remove("annotations"));
        definition["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1beta1"], "clientConfig": {
            "service": {"name": "operator-webhook", "namespace": NAMESPACE, "path": "/resource-conversion"}}}});
        all.push(definition);
    }
    all
}
