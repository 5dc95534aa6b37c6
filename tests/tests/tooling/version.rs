//! What `knative-operator version` prints without a cluster, and about an installation whose parts
//! don't fit together; and the release bundle that the command has beside itself.

use std::path::Path;
use std::process::Command;

use knative_operator_tests::https::{Answer, Server};
use knative_operator_tests::kubeconfig::{User, kubeconfig};
use knative_operator_tests::pki::Authority;
use knative_operator_tests::{environment, tools};
use serde_json::{Value, json};

const OWN: &str = env!("CARGO_PKG_VERSION");

/// Exit status, standard output and standard error of the command with `arguments`.
fn version(folder: &Path, kubeconfig: Option<&str>, arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(tools::binary("knative-operator").unwrap());
    environment::confine(&mut command, folder).current_dir(folder).arg("version").args(arguments);
    command.envs(kubeconfig.map(|path| ("KUBECONFIG", path)));
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn version_of_the_command_needs_no_cluster() {
    let folder = tempfile::tempdir().unwrap();
    let own = format!("PART     VERSION\nclient   {OWN}\n");
    let (code, text, hint) = version(folder.path(), None, &[]);
    assert_eq!((code, &text), (Some(0), &own));
    assert!(hint.starts_with("warning: there is no kubeconfig") && hint.contains("--kubeconfig"), "{hint}");
    assert_eq!(hint.lines().count(), 1, "{hint}");
    for kubeconfig in [None, Some("none")] {
        assert_eq!(version(folder.path(), kubeconfig, &["--client"]), (Some(0), own.clone(), String::new()));
    }
    // A kubeconfig that the user named is no reason to show less.
    let error =
        "error: cannot use the kubeconfig none: No such file or directory; name another one with --kubeconfig\n";
    assert_eq!(version(folder.path(), Some("none"), &[]), (Some(2), String::new(), error.to_owned()));
}

/// A Deployment with the image `image`.
fn deployment(name: &str, image: &str) -> Value {
    let container = json!({"name": name, "image": image});
    json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "labels": {"helm.sh/chart": "knative-operator-9.1.0"}},
        "spec": {"selector": {}, "template": {"spec": {"containers": [container]}}}})
}

#[test]
fn parts_that_are_too_far_apart_are_warnings() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new("cluster").unwrap();
    let catalog = json!({"versions": {"KnativeServing": ["1.9.0", "1.10.0"]}, "names": {}}).to_string();
    let server = Server::start(&authority, move |request, _| {
        let found = match request.path.split('?').next().unwrap_or_default() {
            "/apis/apps/v1/namespaces/knative-operator/deployments/knative-operator" => {
                deployment("knative-operator", "a.io/operator:9.1.2")
            }
            "/apis/apps/v1/namespaces/knative-operator/deployments/operator-webhook" => {
                deployment("operator-webhook", "a.io/webhook:9.0.2")
            }
            "/api/v1/namespaces/knative-operator/configmaps/knative-operator-releases" => {
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "knative-operator-releases"},
                    "data": {"releases.json": catalog}})
            }
            _ => return Answer::not_found(),
        };
        Answer::json("200 OK", &found)
    })
    .unwrap();
    let config = kubeconfig("prod", &server.url(""), &authority.pem(), "default", &User::Token("token"));
    std::fs::write(folder.path().join("kubeconfig"), config).unwrap();
    let (code, text, warnings) = version(folder.path(), Some("kubeconfig"), &[]);
    let rows = format!(
        "client                   {OWN}\noperator                 9.1.2\nwebhook                  9.0.2\n\
         chart                    9.1.0\nnewest knative-serving   1.10.0\n"
    );
    assert!(code == Some(0) && text.ends_with(&rows), "{text}");
    for warning in [
        format!("warning: the command has version {OWN}, and the operator 9.1.2: "),
        "warning: the webhook has version 9.0.2, and the operator 9.1.2: ".to_owned(),
    ] {
        assert!(warnings.contains(&warning), "{warnings}");
    }
    assert_eq!(warnings.lines().count(), 2, "{warnings}");
    let (code, text, warnings) = version(folder.path(), Some("kubeconfig"), &["-n", "elsewhere", "-o", "json"]);
    let value: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((code, &value["server"]), (Some(0), &json!({"namespace": "elsewhere", "releases": {}})));
    assert!(
        warnings.starts_with("warning: there is no Deployment knative-operator in namespace elsewhere"),
        "{warnings}"
    );
}

#[test]
fn bundle_beside_the_command_is_the_default() {
    let binary = tools::binary("knative-operator").unwrap();
    // A link to it, such as krew makes, is another folder.
    let [folder, links] = [(); 2].map(|()| tempfile::tempdir_in(binary.parent().unwrap()).unwrap());
    std::fs::hard_link(&binary, folder.path().join("knative-operator")).unwrap();
    let link = links.path().join("kubectl-knative_operator");
    std::os::unix::fs::symlink(folder.path().join("knative-operator"), &link).unwrap();
    let versions = || {
        let mut command = Command::new(&link);
        let output = environment::confine(&mut command, links.path()).arg("versions").output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    assert_eq!(versions(), (Some(2), String::new()));
    std::os::unix::fs::symlink(tools::project().join("tests/release"), folder.path().join("bundle")).unwrap();
    let (code, text) = versions();
    assert!(code == Some(0) && text.contains("\nknative-serving "), "{text}");
}
