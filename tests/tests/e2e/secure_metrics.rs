//! Secure metrics: TLS with the certificate of the webhook, and permission to read them. So it is
//! with `/debug`, if that is enabled.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Output;

use k8s_openapi::api::core::v1::Secret;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::product::{self, FLEET, NAMESPACE, Product};
use knative_operator_tests::{Result, http, releases, tools, wait};
use kube::Api;
use reqwest::{Certificate, Client};
use serde_json::{Value, json};

use crate::support::{apply, namespace, ready, run, serving};

/// Name in the certificate, which the ServiceMonitor verifies.
const SERVER: &str = "operator-webhook.knative-operator.svc";

/// GETs `path` at `address` like Prometheus; returns status code and body.
async fn get(address: SocketAddr, path: &str, authority: &Certificate, token: Option<&str>) -> Result<(u16, String)> {
    let client = Client::builder().tls_certs_only([authority.clone()]).resolve(SERVER, address).build()?;
    let mut request = client.get(format!("https://{SERVER}:{}{path}", address.port()));
    if let Some(token) = token {
        request = request.bearer_auth(token);
    }
    let answer = request.send().await?;
    Ok((answer.status().as_u16(), answer.text().await?))
}

/// The authority of the certificates of `hub`, in PEM.
async fn authority(hub: &Cluster) -> Result<Vec<u8>> {
    let secret = Api::<Secret>::namespaced(hub.client(), NAMESPACE).get("operator-webhook-certs").await?;
    Ok(secret.data.ok_or("no data")?["ca.crt"].0.clone())
}

/// Tokens of a ServiceAccount that may read the metrics on `hub`, and of one that may not.
async fn tokens(hub: &Cluster) -> Result<(String, String)> {
    apply(hub, &json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "prometheus", "namespace": NAMESPACE}},
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "prometheus"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "knative-operator-metrics-reader"},
            "subjects": [{"kind": "ServiceAccount", "name": "prometheus", "namespace": NAMESPACE}]},
    ]}))
    .await?;
    Ok((hub.token(NAMESPACE, "prometheus", 3600).await?, hub.token(NAMESPACE, "default", 3600).await?))
}

#[test]
fn secure_metrics_need_permission() {
    run(async {
        let (hub, plugins) = (Cluster::hub("secure-metrics").await?, tempfile::tempdir()?);
        let mut values = product::values(&[]);
        values["metrics"] = json!({"secure": true});
        let product = Product::create(&hub, &releases::best(), values, plugins.path()).await?;
        let (webhook, _) = product.webhook.as_ref().ok_or("no webhook")?;
        let (reader, other) = tokens(&hub).await?;
        let authority = Certificate::from_pem(&authority(&hub).await?)?;
        for (pod, metric) in
            [(&product.operator, "knative_operator_leader"), (webhook, "webhook_certificate_expiry_timestamp_seconds")]
        {
            let address = SocketAddr::new(pod.address.into(), 9090);
            let (code, text) = get(address, "/metrics", &authority, Some(&reader)).await?;
            assert!(code == 200 && text.contains(metric), "{code}: {text}");
            for (token, expected, part) in [
                (None, 401, "send a valid token of a ServiceAccount"),
                (Some("x.y.z"), 401, "send a valid token of a ServiceAccount"),
                (Some(other.as_str()), 403, "knative-operator-metrics-reader"),
            ] {
                let (code, text) = get(address, "/metrics", &authority, token).await?;
                assert!(code == expected && text.contains(part), "{code}: {text}");
            }
            let (code, text) = http::get(address, "/metrics").await?;
            assert!(code == 400 && text.contains("this port requires HTTPS"), "{code}: {text}");
            // Nobody enabled it.
            assert_eq!(get(address, "/debug", &authority, Some(&reader)).await?.0, 404);
            let health = SocketAddr::new(pod.address.into(), 8081);
            http::ready(health, wait::LIMIT).await?;
            assert_eq!(http::get(health, "/readyz").await?, (200, "ok".to_owned()));
            assert_eq!(http::get(health, "/metrics").await?.0, 404);
        }
        Ok(())
    });
}

/// Runs `knative-operator debug` against `address` with `token`, in `folder`.
async fn debug(address: SocketAddr, authority: &[u8], token: &str, folder: &Path) -> Result<Output> {
    let (ca, file) = (folder.join("ca.crt"), folder.join("token"));
    std::fs::write(&ca, authority)?;
    std::fs::write(&file, format!("{token}\n"))?;
    let mut command = tokio::process::Command::new(tools::binary("knative-operator")?);
    command.args(["debug", "--server", &address.to_string(), "--ca-file"]).arg(ca).arg("--token-file").arg(file);
    Ok(command.output().await?)
}

#[test]
fn debug_shows_what_the_operator_does_to_those_who_may_read_metrics() {
    run(async {
        let (hub, spoke) = tokio::try_join!(Cluster::hub("debug"), Cluster::spoke("debug-spoke"))?;
        let (releases, folder) = (releases::small(), tempfile::tempdir()?);
        let mut values = product::values(&[]);
        values["metrics"] = json!({"secure": true, "debug": true});
        let product = Product::create(&hub, &releases, values, folder.path()).await?;
        product::register(&hub, &spoke, "spoke").await?;
        namespace(&hub, "debug").await?;
        let mut wanted = serving("debug", "ks", Some("spoke"), &releases);
        wanted["metadata"]["annotations"] = json!({"note": "hunter2"});
        apply(&hub, &wanted).await?;
        ready(&hub, &wanted).await?;
        let ((reader, other), pem) = (tokens(&hub).await?, authority(&hub).await?);
        let (authority, address) = (Certificate::from_pem(&pem)?, product.metrics());

        for (token, expected) in [(None, 401), (Some(other.as_str()), 403)] {
            let (code, text) = get(address, "/debug", &authority, token).await?;
            assert!(code == expected && !text.contains("spoke"), "{code}: {text}");
        }
        let (code, text) = get(address, "/debug", &authority, Some(&reader)).await?;
        assert_eq!(code, 200, "{text}");
        let report: Value = serde_json::from_str(&text)?;
        let items = |list: &str| report[list]["items"].as_array().cloned().unwrap_or_default();
        let cluster = format!("{FLEET}/spoke");
        let is_own = |item: &Value| item["resource"] == "KnativeServing debug/ks";
        let actors = items("actors");
        let actor = actors.iter().find(|actor| is_own(actor)).ok_or_else(|| text.clone())?;
        assert!(
            actor["cluster"] == cluster.as_str() && actor["failures"] == 0 && actor["since"].is_string(),
            "{actor}"
        );
        let connections = items("connections");
        let connection =
            connections.iter().find(|one| one["cluster"] == cluster.as_str()).ok_or_else(|| text.clone())?;
        assert!(connection["state"] == "Connected" && connection["usedAt"].is_string(), "{connection}");
        let is_of_deployments = |watch: &&Value| is_own(watch) && watch["kind"] == "Deployment";
        let watches = items("watches");
        let watch = watches.iter().find(is_of_deployments).ok_or_else(|| text.clone())?;
        assert!(watch["objects"].as_u64() > Some(0) && watch["lastEventAt"].is_string(), "{watch}");
        assert!(watches.iter().any(|watch| watch["kind"] == "ClusterProfile" && watch["objects"] == 1), "{text}");
        assert!(report["leases"][0]["isOwn"] == true && report["writesPass"] == true, "{text}");
        assert_eq!(report["reconciles"]["limit"], 32, "{text}");

        // No credential, and nothing of an object but its name.
        let secret = Api::<Secret>::namespaced(hub.client(), NAMESPACE).get("spoke").await?;
        let credential = String::from_utf8(secret.data.ok_or("no data")?["token"].0.clone())?;
        let (server, _) = spoke.pod_endpoint();
        for part in [credential.as_str(), &reader, "hunter2", &server] {
            assert!(!text.contains(part), "{part} is in {text}");
        }

        let printed = debug(address, &pem, &reader, folder.path()).await?;
        assert!(printed.status.success(), "{printed:?}");
        let printed: Value = serde_json::from_slice(&printed.stdout)?;
        assert_eq!(printed["replica"], report["replica"]);
        let refused = debug(address, &pem, &other, folder.path()).await?;
        let why = String::from_utf8(refused.stderr)?;
        assert!(refused.status.code() == Some(2) && why.contains("knative-operator-metrics-reader"), "{why}");
        Ok(())
    });
}
