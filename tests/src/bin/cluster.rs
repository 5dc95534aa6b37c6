//! stub
#![allow(missing_docs, clippy::unwrap_used)]
use knative_operator_tests::cluster::Cluster;
#[tokio::main]
async fn main() {
    let t = std::time::Instant::now();
    let c = Cluster::hub("hub").await.unwrap();
    println!("{:?} {}", t.elapsed(), c.kubeconfig().display());
    println!("{}", c.kubectl(&["create", "deployment", "x", "--image=x"], "").await.unwrap());
    println!("{}", c.kubectl(&["wait", "--for=condition=Available", "--timeout=5s", "deployment/x"], "").await.unwrap_or_else(|e| e.to_string()));
    println!("{}", c.kubectl(&["get", "pods,nodes", "-A"], "").await.unwrap());
    println!("{}", std::fs::read_to_string(c.dir().join("kwok.log")).unwrap());
}
