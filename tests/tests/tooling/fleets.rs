//! `knative-operator fleet` without the name of a fleet, and as another user.

use std::path::Path;
use std::process::Command;

use knative_operator_tests::https::{Answer, Server};
use knative_operator_tests::kubeconfig::{User, kubeconfig};
use knative_operator_tests::pki::Authority;
use knative_operator_tests::{environment, tools};
use serde_json::{Value, json};

fn fleet(namespace: &str, name: &str) -> Value {
    let ready = json!({"type": "Ready", "status": "False", "reason": "RollingOut", "message": "1 of 3 clusters"});
    json!({"apiVersion": "operator.knative.dev/v1alpha1", "kind": "KnativeFleet",
        "metadata": {"name": name, "namespace": namespace, "uid": name}, "spec": {"placement": {}},
        "status": {"clusters": 3, "updated": 1, "ready": 2, "failed": 0, "stage": "rest", "conditions": [ready]}})
}

/// The fleets in `path`: two in all namespaces, one in the default one.
fn answer(path: &str) -> Value {
    let (prod, other) = (fleet("default", "prod"), fleet("other", "test"));
    let items = match path.split('?').next().unwrap_or_default() {
        "/apis/operator.knative.dev/v1alpha1/knativefleets" => vec![prod, other],
        "/apis/operator.knative.dev/v1alpha1/namespaces/default/knativefleets" => vec![prod],
        "/apis/operator.knative.dev/v1alpha1/namespaces/default/knativefleets/prod" => return prod,
        _ => Vec::new(),
    };
    json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items})
}

/// Standard output of the command in `folder`, with its kubeconfig.
fn stdout(folder: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new(tools::binary("knative-operator").unwrap());
    environment::confine(&mut command, folder).env("KUBECONFIG", folder.join("kubeconfig")).args(arguments);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn fleets_are_listed_and_the_only_one_needs_no_name() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new("cluster").unwrap();
    let server = Server::start(&authority, |request, _| {
        let headers = vec!["Content-Type: application/json".to_owned()];
        Answer::With("200 OK", headers, answer(&request.path).to_string().into_bytes())
    });
    let server = server.unwrap();
    let config = kubeconfig("prod", &server.url(""), &authority.pem(), "default", &User::Token("token"));
    std::fs::write(folder.path().join("kubeconfig"), config).unwrap();
    let run = |arguments: &[&str]| stdout(folder.path(), arguments);

    let head = "NAMESPACE   NAME   UPDATED   READY   FAILED   STAGE   STATUS       MESSAGE\n";
    let prod = "default     prod   1/3       2       0        rest    RollingOut   1 of 3 clusters\n";
    let test = "other       test   1/3       2       0        rest    RollingOut   1 of 3 clusters\n";
    assert_eq!(run(&["fleet", "status"]), format!("{head}{prod}"));
    assert_eq!(run(&["fleet", "status", "-A"]), format!("{head}{prod}{test}"));
    assert_eq!(run(&["fleet", "status", "-n", "empty"]), "");
    let listed: Value = serde_json::from_str(&run(&["fleet", "status", "-A", "-o", "json"])).unwrap();
    assert_eq!((&listed[1]["name"], &listed[1]["status"]["updated"]), (&"test".into(), &1.into()));
    let listed: Value = serde_saphyr::from_str(&run(&["fleet", "status", "-o", "yaml"])).unwrap();
    assert_eq!(listed[0]["namespace"], "default");
    assert!(run(&["fleet", "status", "prod"]).starts_with("KnativeFleet default/prod\n"));
    assert!(run(&["fleet", "history"]).starts_with("NUMBER   REVISION"));

    run(&["fleet", "status", "--as", "jane", "--as-group", "dev", "--as-group", "sre", "--request-timeout", "1m"]);
    let headers = server.requests().pop().unwrap().headers;
    for header in ["impersonate-user: jane", "impersonate-group: dev", "impersonate-group: sre"] {
        assert!(headers.iter().any(|line| line == header), "{header}: {headers:?}");
    }
}
