//! `knative-operator fleet` without the name of a fleet, as another user, and without a terminal.

use std::path::Path;
use std::process::{Command, Output, Stdio};

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

/// Result of the command in `folder`, with its kubeconfig and without a terminal.
fn run_in(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(tools::binary("knative-operator").unwrap());
    environment::confine(&mut command, folder).env("KUBECONFIG", folder.join("kubeconfig")).args(arguments);
    command.stdin(Stdio::null()).output().unwrap()
}

/// Standard output of the command in `folder`.
fn stdout(folder: &Path, arguments: &[&str]) -> String {
    let output = run_in(folder, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Starts an API server that answers with the `object` at a path, and writes a kubeconfig for it.
fn serve(folder: &Path, object: impl Fn(&str) -> Value + Send + Sync + 'static) -> Server {
    let authority = Authority::new("cluster").unwrap();
    let server = Server::start(&authority, move |request, _| Answer::json("200 OK", &object(&request.path))).unwrap();
    let config = kubeconfig("prod", &server.url(""), &authority.pem(), "default", &User::Token("token"));
    std::fs::write(folder.join("kubeconfig"), config).unwrap();
    server
}

#[test]
fn fleets_are_listed_and_the_only_one_needs_no_name() {
    let folder = tempfile::tempdir().unwrap();
    let server = serve(folder.path(), answer);
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

#[test]
fn hub_without_fleets_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let _server = serve(folder.path(), |_| json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": []}));
    for (flags, expected) in [(&["-A"][..], ""), (&["-A", "-o", "json"][..], "[]\n")] {
        let output = run_in(folder.path(), &[&["fleet", "status"][..], flags].concat());
        let [text, said] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
        assert_eq!((text.as_str(), said.as_str()), (expected, "No KnativeFleets in any namespace.\n"), "{flags:?}");
        assert!(output.status.success());
    }
}

/// Path of the approvals in the default namespace.
const APPROVALS: &str = "/apis/operator.knative.dev/v1alpha1/namespaces/default/knativefleetapprovals";

/// A fleet that waits for an approval, and whose removal is blocked; and the answer to an approval.
fn waiting(path: &str) -> Value {
    if path.starts_with(APPROVALS) {
        return json!({"apiVersion": "operator.knative.dev/v1alpha1", "kind": "KnativeFleetApproval",
            "metadata": {"name": "prod-1"}, "spec": {"username": "jane"}});
    }
    let mut fleet = fleet("default", "prod");
    fleet["status"]["updateRevision"] = json!("prod-1");
    fleet["status"]["stages"] = json!([{"name": "rest", "state": "AwaitingApproval", "clusters": 2}]);
    fleet["status"]["conditions"] = json!([{"type": "RemovalBlocked", "status": "True", "message": "revision 12ab"}]);
    fleet["status"]["blockedRemoval"] = json!({"name": "12ab", "clusters": 2, "limit": 1});
    fleet
}

#[test]
fn without_a_terminal_an_approval_needs_a_flag() {
    let folder = tempfile::tempdir().unwrap();
    let server = serve(folder.path(), waiting);
    let approvals = || server.requests().iter().filter(|request| request.path.starts_with(APPROVALS)).count();
    let asked = "nobody can be asked: there is no terminal; use --revision REVISION, or --yes";
    let refused: [(&[&str], &str); 4] = [
        (&[], asked),
        (&["--revision", "prod-0"], "the fleet rolls out revision prod-1 now, not prod-0"),
        (&["--removal"], asked),
        (&["--removal", "--revision", "34cd"], "another removal is blocked now: 12ab"),
    ];
    for (flags, expected) in refused {
        let output = run_in(folder.path(), &[&["fleet", "approve", "prod"][..], flags].concat());
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && error.contains(expected), "{flags:?}: {error}");
    }
    assert_eq!(approvals(), 0);
    let approved: [(&[&str], &str); 4] = [
        (&["--yes"], "revision prod-1 approved for stage rest by jane\n"),
        (&["--revision", "prod-1"], "revision prod-1 approved for stage rest by jane\n"),
        (&["--removal", "-y"], "revision 12ab approved for stage removal by jane\n"),
        (&["--removal", "--revision", "12ab"], "revision 12ab approved for stage removal by jane\n"),
    ];
    for (flags, expected) in approved {
        assert_eq!(stdout(folder.path(), &[&["fleet", "approve", "prod"][..], flags].concat()), expected);
    }
    assert_eq!(approvals(), 4);
}
