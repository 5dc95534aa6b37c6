//! Client certificates: only API servers with a certificate of an authority in a ConfigMap are
//! answered.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Full;
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use knative_operator_shared::api::Component;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::pki::{Authority, Issued};
use knative_operator_tests::product::{self, NAMESPACE, Product};
use knative_operator_tests::{Result, releases, tls};
use serde_json::json;

use crate::support::{apply, namespace, resource, run};

/// The ConfigMap.
const AUTHORITIES: &str = "webhook-clients";

/// Writes the authorities in `pem` to the ConfigMap.
async fn trust(hub: &Cluster, pem: &str) -> Result<()> {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": AUTHORITIES, "namespace": NAMESPACE},
        "data": {"ca.crt": pem}});
    apply(hub, &map).await
}

/// Whether the webhook at `address` answers a review of a client with this certificate.
async fn is_answered(address: Ipv4Addr, certificate: Option<&Issued>) -> Result<bool> {
    let config = match certificate {
        Some(issued) => tls::insecure_config_as(issued)?,
        None => tls::insecure_config(),
    };
    let connector = HttpsConnectorBuilder::new().with_tls_config(config).https_only().enable_http1().build();
    let client = Client::builder(TokioExecutor::new()).build(connector);
    let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "1"}});
    let request = hyper::Request::post(format!("https://{address}:8443/validate"))
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(review.to_string())))?;
    Ok(client.request(request).await.is_ok_and(|response| response.status().is_success()))
}

#[test]
fn only_clients_with_a_certificate_are_answered() {
    run(async {
        let (hub, plugins) = (Cluster::hub("clients").await?, tempfile::tempdir()?);
        namespace(&hub, NAMESPACE).await?;
        trust(&hub, hub.authority()).await?;
        let mut values = product::values(&[]);
        values["knative_operator"]["operator_webhook"] = json!({"clientCAConfigMap": AUTHORITIES});
        let product = Product::create(&hub, &releases::small(), values, plugins.path()).await?;
        let address = product.webhook.as_ref().ok_or("no webhook")?.0.address;
        let read = |file: &str| std::fs::read_to_string(hub.dir().join(file));
        let api_server = Issued { certificate: read("admission.crt")?, key: read("admission.key")? };
        let other = Authority::new("other")?;
        let stranger = other.issue("kube-apiserver-admission", None, &[], &[])?;
        assert!(is_answered(address, Some(&api_server)).await?);
        assert!(!is_answered(address, Some(&stranger)).await? && !is_answered(address, None).await?);

        // The hub's API server shows its certificate.
        namespace(&hub, "clients").await?;
        let spec = json!({"high-availability": {"replicas": 0}});
        let bad = resource(Component::Serving, "clients", "bad", None, spec).to_string();
        let (_, output) = hub.kubectl_output(&["apply", "-f", "-"], &bad).await;
        assert!(output.contains("spec.high-availability.replicas: 0 is less than 1"), "{output}");

        // Authorities can be replaced in steps, without a restart.
        trust(&hub, &format!("{}{}", hub.authority(), other.pem())).await?;
        let deadline = Instant::now() + knative_operator_tests::wait::LIMIT;
        // Polled: nothing reports when the volume has changed.
        while !is_answered(address, Some(&stranger)).await? {
            assert!(Instant::now() < deadline, "the new authority is not in use");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert!(is_answered(address, Some(&api_server)).await? && !is_answered(address, None).await?);
        Ok(())
    });
}
