//! scratch
#![allow(missing_docs, clippy::unwrap_used)]
use knative_operator_tests::{cluster::Cluster, product, releases};
use std::time::{Duration, Instant};
#[tokio::main]
async fn main() {
    let t = Instant::now();
    let (hub, spoke) = tokio::join!(Cluster::hub("hub"), Cluster::spoke("spoke"));
    let (hub, spoke) = (hub.unwrap(), spoke.unwrap());
    println!("{:?} {}", t.elapsed(), hub.kubeconfig().display());
    let plugins = tempfile::tempdir().unwrap();
    let rel = if std::env::args().nth(1).as_deref() == Some("small") { releases::small() } else { releases::best() };
    let p = product::Product::install(&hub, &rel, product::values(&[]), plugins.path()).await.unwrap();
    println!("installed {:?}", t.elapsed());
    product::register(&hub, &spoke, "spoke-1").await.unwrap();
    hub.kubectl(&["create", "namespace", "knative-serving"], "").await.unwrap();
    let cr = format!(
        "{{apiVersion: operator.knative.dev/v1beta1, kind: KnativeServing, metadata: {{name: ks, namespace: knative-serving}}, spec: {{version: \"{}\", clusterProfileRef: {{name: spoke-1, namespace: fleet-system}}, ingress: {{kourier: {{enabled: true}}}}}}}}",
        rel.serving
    );
    let s = Instant::now();
    println!("{}", hub.kubectl(&["apply", "-f", "-"], &cr).await.unwrap_or_else(|e| e.to_string()));
    println!(
        "{}",
        hub.kubectl(&["wait", "--for=condition=Ready", "--timeout=30s", "knativeserving/ks", "-n", "knative-serving"], "")
            .await
            .unwrap_or_else(|e| e.to_string())
    );
    println!("ready after {:?}", s.elapsed());
    println!("{}", hub.kubectl(&["get", "knativeserving", "-A"], "").await.unwrap());
    println!("{}", hub.kubectl(&["describe", "knativeserving", "-A"], "").await.unwrap());
    println!("{}", spoke.kubectl(&["get", "deploy,job,cm", "-A"], "").await.unwrap());
    tokio::time::sleep(Duration::from_secs(3)).await;
    println!(
        "{}",
        hub.kubectl(
            &[
                "patch",
                "knativeserving",
                "ks",
                "-n",
                "knative-serving",
                "--type=merge",
                "-p",
                "{\"spec\":{\"clusterProfileRef\":{\"name\":\"other\"}}}"
            ],
            ""
        )
        .await
        .unwrap_or_else(|e| e.to_string())
    );
    let s = Instant::now();
    println!(
        "{}",
        hub.kubectl(&["delete", "knativeserving", "ks", "-n", "knative-serving", "--timeout=30s"], "")
            .await
            .unwrap_or_else(|e| e.to_string())
    );
    println!("deleted after {:?}", s.elapsed());
    println!(
        "{}",
        spoke
            .kubectl(&["get", "ns,deploy,job,cm,clusterroles,validatingwebhookconfigurations", "-A"], "")
            .await
            .unwrap()
            .lines()
            .filter(|l| !l.contains("system:"))
            .collect::<Vec<_>>()
            .join("\n")
    );
    let (wh, _) = p.webhook.as_ref().unwrap();
    std::fs::write("/tmp/operator.log", p.operator.process.log()).unwrap();
    std::fs::write("/tmp/webhook.log", wh.process.log()).unwrap();
    std::fs::copy(spoke.dir().join("audit.log"), "/tmp/spoke-audit.log").unwrap();
    std::fs::copy(hub.dir().join("audit.log"), "/tmp/hub-audit.log").unwrap();
}
