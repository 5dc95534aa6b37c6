//! Secure metrics: TLS with the certificate of the webhook, and permission to read them.

use std::net::SocketAddr;

use k8s_openapi::api::core::v1::Secret;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::product::{self, NAMESPACE, Product};
use knative_operator_tests::{Result, http, releases};
use kube::Api;
use reqwest::{Certificate, Client};
use serde_json::json;

use crate::support::{apply, run};

/// Name in the certificate, which the ServiceMonitor verifies.
const SERVER: &str = "operator-webhook.knative-operator.svc";

/// GETs the metrics at `address` like Prometheus; returns status code and body.
async fn scrape(address: SocketAddr, authority: &Certificate, token: Option<&str>) -> Result<(u16, String)> {
    let client = Client::builder().tls_certs_only([authority.clone()]).resolve(SERVER, address).build()?;
    let mut request = client.get(format!("https://{SERVER}:{}/metrics", address.port()));
    if let Some(token) = token {
        request = request.bearer_auth(token);
    }
    let answer = request.send().await?;
    Ok((answer.status().as_u16(), answer.text().await?))
}

#[test]
fn secure_metrics_need_permission() {
    run(async {
        let (hub, plugins) = (Cluster::hub("secure-metrics").await?, tempfile::tempdir()?);
        let mut values = product::values(&[]);
        values["metrics"] = json!({"secure": true});
        let product = Product::create(&hub, &releases::best(), values, plugins.path()).await?;
        let (webhook, _) = product.webhook.as_ref().ok_or("no webhook")?;
        apply(&hub, &json!({"apiVersion": "v1", "kind": "List", "items": [
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "prometheus", "namespace": NAMESPACE}},
            {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "prometheus"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "knative-operator-metrics-reader"},
                "subjects": [{"kind": "ServiceAccount", "name": "prometheus", "namespace": NAMESPACE}]},
        ]}))
        .await?;
        let (reader, other) =
            (hub.token(NAMESPACE, "prometheus", 3600).await?, hub.token(NAMESPACE, "default", 3600).await?);
        let secret = Api::<Secret>::namespaced(hub.client(), NAMESPACE).get("operator-webhook-certs").await?;
        let authority = Certificate::from_pem(&secret.data.ok_or("no data")?["ca.crt"].0)?;
        for (pod, metric) in
            [(&product.operator, "knative_operator_leader"), (webhook, "webhook_certificate_expiry_timestamp_seconds")]
        {
            let address = SocketAddr::new(pod.address.into(), 9090);
            let (code, text) = scrape(address, &authority, Some(&reader)).await?;
            assert!(code == 200 && text.contains(metric), "{code}: {text}");
            for (token, expected, part) in [
                (None, 401, "send a valid token of a ServiceAccount"),
                (Some("x.y.z"), 401, "send a valid token of a ServiceAccount"),
                (Some(other.as_str()), 403, "knative-operator-metrics-reader"),
            ] {
                let (code, text) = scrape(address, &authority, token).await?;
                assert!(code == expected && text.contains(part), "{code}: {text}");
            }
            let (code, text) = http::get(address, "/metrics").await?;
            assert!(code == 400 && text.contains("this port requires HTTPS"), "{code}: {text}");
            let health = SocketAddr::new(pod.address.into(), 8081);
            assert_eq!(http::get(health, "/readyz").await?, (200, "ok".to_owned()));
            assert_eq!(http::get(health, "/metrics").await?.0, 404);
        }
        Ok(())
    });
}
