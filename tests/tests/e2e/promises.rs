//! What Knative's documents about remote clusters promise, and no other test shows: other ingresses
//! than Kourier, a namespace that exists, the text of the anchor, and a cluster that was
//! decommissioned together with its ClusterProfile.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use knative_operator_shared::api::Component;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::product::{self, FLEET};
use knative_operator_tests::remaining::objects;
use knative_operator_tests::{http, wait};
use kube::Api;
use serde_json::{Value, json};

use crate::no_spec::istio;
use crate::support::{
    INSTALL, apply, delete, eventing, fleet, gone, has_condition, has_event, namespace, nothing_left, ready, resource,
    run, serving,
};

const PLACE: &str = "knative-serving";

/// The Gateway API, with the GatewayClass and the Gateways that the documents ask for.
fn gateway_api() -> (Value, Value) {
    let group = "gateway.networking.k8s.io";
    let crd = |kind: &str, plural: &str, scope: &str| {
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.{group}"), "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes-sigs/gateway-api/pull/1"}},
            "spec": {"group": group, "scope": scope,
                "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase(), "listKind": format!("{kind}List")},
                "versions": [{"name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}})
    };
    let definitions = [crd("GatewayClass", "gatewayclasses", "Cluster"), crd("Gateway", "gateways", "Namespaced")];
    let version = format!("{group}/v1");
    let gateway = |name: &str| {
        json!({"apiVersion": version, "kind": "Gateway", "metadata": {"name": name, "namespace": "istio-system"},
            "spec": {"gatewayClassName": "istio", "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}]}})
    };
    let class = json!({"apiVersion": version, "kind": "GatewayClass", "metadata": {"name": "istio"},
        "spec": {"controllerName": "istio.io/gateway-controller"}});
    let items = [class, gateway("knative-gateway"), gateway("knative-local-gateway")];
    let list = |items: &[Value]| json!({"apiVersion": "v1", "kind": "List", "items": items});
    (list(&definitions), list(&items))
}

/// The settings of `docs/user/configure.md` for the Gateway API.
fn through_gateways(resource: &Value) -> Value {
    let mut changed = resource.clone();
    let gateways = |name: &str, service: &str| {
        format!(
            "- class: istio\n  gateway: istio-system/{name}\n  service: istio-system/{service}\n  supported-features:\n    - HTTPRouteRequestTimeout\n"
        )
    };
    changed["spec"]["ingress"] = json!({"gateway-api": {"enabled": true}});
    changed["spec"]["config"] = json!({
        "network": {"ingress-class": "gateway-api.ingress.networking.knative.dev"},
        "gateway": {
            "external-gateways": gateways("knative-gateway", "istio-ingressgateway"),
            "local-gateways": gateways("knative-local-gateway", "knative-local-gateway"),
        },
    });
    changed
}

#[test]
fn istio_and_gateway_api_install_on_a_spoke_into_an_existing_namespace() {
    run(async {
        let fleet = fleet().await?;
        let (hub, spoke) = (&fleet.hub, Cluster::spoke("ingresses").await?);
        product::register(hub, &spoke, "ingresses").await?;
        namespace(hub, "promises").await?;
        // What the documents ask for before the resource.
        let (definitions, gateways) = gateway_api();
        let own = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": PLACE,
            "labels": {"example.com/team": "theirs"}, "annotations": {"example.com/owner": "theirs"}}});
        for prepared in [&istio(), &definitions, &gateways, &own] {
            apply(&spoke, prepared).await?;
        }
        let (place, before) = (spoke.object("namespace", "", PLACE), objects(&spoke.client()).await?);
        let existing = place.read().await?["metadata"].clone();

        // Without spec.ingress, Istio. The settings of the namespace are for one that is created.
        let spec = json!({"version": fleet.releases.serving, "namespaceConfiguration": {
            "labels": {"example.com/team": "ours", "pod-security.kubernetes.io/enforce": "privileged"},
            "annotations": {"example.com/owner": "platform-team"}}});
        let wanted = resource(Component::Serving, "promises", "ingresses", Some("ingresses"), spec);
        apply(hub, &wanted).await?;
        ready(hub, &wanted).await?;
        assert_eq!(place.read().await?["metadata"], existing, "the namespace was modified");
        let names = spoke.kubectl(&["get", "gateways.networking.istio.io", "-n", PLACE, "-o", "name"], "").await?;
        for name in ["knative-ingress-gateway", "knative-local-gateway"] {
            assert!(names.contains(name), "{names}");
        }

        // The anchor says what it is.
        let anchor = spoke.object("configmap", PLACE, "knativeserving-ingresses-root-owner").read().await?;
        let annotations = &anchor["metadata"]["annotations"];
        assert_eq!(annotations["operator.knative.dev/protected"], "true");
        let description = annotations["operator.knative.dev/description"].as_str().unwrap_or_default();
        assert!(description.contains("Do not delete it") && description.contains("promises/ingresses"), "{anchor}");

        // Through the Gateway API instead.
        let changed = through_gateways(&wanted);
        apply(hub, &changed).await?;
        let deployments = Api::<Deployment>::namespaced(spoke.client(), PLACE);
        wait::until(&deployments, "net-gateway-api-controller", INSTALL, "there", |d| d.is_some()).await?;
        wait::until(&deployments, "net-istio-controller", INSTALL, "pruned", |d| d.is_none()).await?;
        ready(hub, &changed).await?;
        let data = |map: ConfigMap, key: &str| map.data.unwrap_or_default().remove(key).unwrap_or_default();
        let maps = Api::<ConfigMap>::namespaced(spoke.client(), PLACE);
        let gateways = data(maps.get("config-gateway").await?, "external-gateways");
        assert!(gateways.contains("gateway: istio-system/knative-gateway"), "{gateways}");
        let class = data(maps.get("config-network").await?, "ingress-class");
        assert_eq!(class, "gateway-api.ingress.networking.knative.dev");

        delete(hub, &changed).await?;
        assert_eq!(place.read().await?["metadata"], existing, "the namespace was modified");
        nothing_left(&spoke, &before).await
    });
}

#[test]
fn decommissioned_spoke_without_its_profile_is_given_up_on_request() {
    run(async {
        let fleet = fleet().await?;
        let (hub, spoke) = (&fleet.hub, Cluster::spoke("decommissioned").await?);
        product::register(hub, &spoke, "decommissioned").await?;
        namespace(hub, "decommissioned").await?;
        let all = [
            serving("decommissioned", "ks", Some("decommissioned"), &fleet.releases),
            eventing("decommissioned", "ke", Some("decommissioned"), &fleet.releases),
        ];
        for one in &all {
            apply(hub, one).await?;
        }
        for one in &all {
            ready(hub, one).await?;
        }
        // The cluster manager removes the profile together with the cluster.
        hub.object("clusterprofile", FLEET, "decommissioned").delete().await?;
        for (kind, name, one) in [("knativeserving", "ks", &all[0]), ("knativeeventing", "ke", &all[1])] {
            hub.object(kind, "decommissioned", name).start_deletion().await?;
            has_condition(hub, one, "TargetClusterResolved", "ClusterProfileNotFound", "on-unreachable=orphan").await?;
        }

        // With a record.
        let orphan = "operator.knative.dev/on-unreachable=orphan";
        hub.kubectl(&["annotate", "knativeserving", "ks", "-n", "decommissioned", orphan], "").await?;
        gone(hub, &all[0]).await?;
        has_event(hub, "decommissioned", "Orphaned", "Left on the cluster").await?;
        let (_, metrics) = http::get(fleet.product.metrics(), "/metrics").await?;
        let count = r#"knative_operator_orphaned_total{kind="KnativeServing",cluster="fleet-system/decommissioned"} 1"#;
        assert!(metrics.contains(count), "{metrics}");

        // Without: as Knative's documents do it. The other resource still waits.
        assert!(hub.object("knativeeventing", "decommissioned", "ke").find().await?.is_some(), "given up unasked");
        let patch = r#"{"metadata":{"finalizers":null}}"#;
        let arguments = ["patch", "knativeeventing", "ke", "-n", "decommissioned", "--type=merge", "-p", patch];
        hub.kubectl(&arguments, "").await?;
        gone(hub, &all[1]).await
    });
}
