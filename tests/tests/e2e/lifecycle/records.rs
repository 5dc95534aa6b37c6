//! The record of an installation is lost, with its namespace or without, or where an API doesn't
//! work.

use knative_operator_shared::api::Component;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::https::{Answer, Server};
use knative_operator_tests::pki::Authority;
use knative_operator_tests::remaining::objects;
use knative_operator_tests::{Result, releases};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::{TEAM, hub};
use crate::owners::{ANCHOR, PLACE};
use crate::support::{apply, delete, eventing, gone, has_event, namespace, nothing_left, ready, run, serving};

/// Deletes `resource` while the operator is away, after `lose` was run on `cluster`.
async fn delete_without_record(hub: &Cluster, resource: &Value, cluster: &Cluster, lose: &[&str]) -> Result<()> {
    cluster.kubectl(lose, "").await?;
    hub.stored(resource).start_deletion().await
}

#[test]
fn lost_record_leaves_nothing_behind() {
    run(async {
        let (releases, plugins) = (releases::best(), tempfile::tempdir()?);
        let spoke = Cluster::spoke("forgotten").await?;
        let (hub, mut product) = hub("forgetful", &releases, plugins.path(), &[("spoke", &spoke)]).await?;
        namespace(&hub, "knative-eventing").await?;
        let remote = serving(TEAM, "knative-serving", Some("spoke"), &releases);
        let beside = eventing(TEAM, "knative-eventing", Some("spoke"), &releases);
        let local = eventing("knative-eventing", "knative-eventing", None, &releases);
        let before = [objects(&spoke.client()).await?, objects(&hub.client()).await?];
        apply(&hub, &beside).await?;
        ready(&hub, &beside).await?;
        let with_eventing = objects(&spoke.client()).await?;

        for lose in [
            vec!["delete", "namespace", PLACE, "--timeout=120s"],
            vec!["delete", "configmap", ANCHOR, "-n", PLACE, "--cascade=orphan"],
            vec!["patch", "configmap", ANCHOR, "-n", PLACE, "--type=merge", "-p", r#"{"data":null}"#],
        ] {
            apply(&hub, &remote).await?;
            ready(&hub, &remote).await?;
            product.stop_operator(Signal::KILL)?;
            delete_without_record(&hub, &remote, &spoke, &lose).await?;
            product.start_operator(&hub).await?;
            gone(&hub, &remote).await?;
            has_event(&hub, TEAM, "InventoryMissing", ANCHOR).await?;
            // Nothing of the other component is touched.
            nothing_left(&spoke, &with_eventing).await?;
            ready(&hub, &beside).await?;
        }

        // Locally, the record goes with the namespace, and the resource with it.
        apply(&hub, &local).await?;
        ready(&hub, &local).await?;
        product.stop_operator(Signal::KILL)?;
        let inventory = format!("{}-knative-eventing-inventory", Component::Eventing.kind().to_lowercase());
        let lose = ["delete", "configmap", &inventory, "-n", "knative-eventing"];
        delete_without_record(&hub, &local, &hub, &lose).await?;
        product.start_operator(&hub).await?;
        gone(&hub, &local).await?;
        delete(&hub, &beside).await?;
        nothing_left(&hub, &before[1]).await?;
        nothing_left(&spoke, &before[0]).await
    });
}

/// Serves API group `broken.example.com` on `cluster` by an API server of its own, which has a kind
/// and answers everything else as the tunnel of a cluster manager does without its agent.
async fn serve_broken_api(cluster: &Cluster) -> Result<Server> {
    let server = Server::start(&Authority::new("broken")?, |request, _| {
        let path = request.path.split('?').next().unwrap_or_default();
        if path != "/apis/broken.example.com/v1" {
            return Answer::With("502 Bad Gateway", vec!["Content-Type: text/plain".to_owned()], b"no tunnel".to_vec());
        }
        let kind = json!({"name": "values", "singularName": "value", "namespaced": false, "kind": "Value", "verbs": ["get", "list"]});
        let kinds = json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "broken.example.com/v1", "resources": [kind]});
        Answer::json("200 OK", &kinds)
    })?;
    let port = server.address.port();
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "broken", "namespace": "default"},
        "spec": {"type": "ExternalName", "externalName": "127.0.0.1", "ports": [{"port": port}]}});
    let api = json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": "v1.broken.example.com"},
        "spec": {"group": "broken.example.com", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 100,
            "insecureSkipTLSVerify": true, "service": {"name": "broken", "namespace": "default", "port": port}}});
    apply(cluster, &service).await?;
    apply(cluster, &api).await?;
    let available = ["wait", "apiservice/v1.broken.example.com", "--for=condition=Available", "--timeout=60s"];
    cluster.kubectl(&available, "").await?;
    Ok(server)
}

#[test]
fn broken_aggregated_api_prevents_neither_installation_nor_removal() {
    run(async {
        let (releases, plugins) = (releases::small(), tempfile::tempdir()?);
        let spoke = Cluster::spoke("broken-api").await?;
        let (hub, mut product) = hub("beside-broken-api", &releases, plugins.path(), &[("spoke", &spoke)]).await?;
        let server = serve_broken_api(&spoke).await?;
        let remote = serving(TEAM, "knative-serving", Some("spoke"), &releases);
        apply(&hub, &remote).await?;
        ready(&hub, &remote).await?;

        product.stop_operator(Signal::KILL)?;
        let lose = ["delete", "configmap", ANCHOR, "-n", PLACE, "--cascade=orphan"];
        delete_without_record(&hub, &remote, &spoke, &lose).await?;
        product.start_operator(&hub).await?;
        gone(&hub, &remote).await?;
        has_event(&hub, TEAM, "InventoryMissing", "values.broken.example.com").await?;
        assert!(server.requests().iter().any(|request| request.path.contains("/values")), "it was not asked");
        let label = "app.kubernetes.io/name=knative-serving";
        let kinds = "deployments,services,configmaps,clusterroles,clusterrolebindings";
        let left = spoke.kubectl(&["get", kinds, "-A", "-l", label, "-o", "name"], "").await?;
        assert_eq!(left, "");
        let added = ["delete", "apiservice/v1.broken.example.com", "service/broken", "--namespace=default"];
        spoke.kubectl(&added, "").await.map(drop)
    });
}
