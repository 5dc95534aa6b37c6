//! What commands print about wrong input: the argument, file or cluster, the problem, and the fix.

use std::path::Path;
use std::process::Command;

use knative_operator_tests::https::{Answer, Server};
use knative_operator_tests::kubeconfig::{User, kubeconfig};
use knative_operator_tests::pki::Authority;
use knative_operator_tests::{environment, tools};

const SERVING: &str =
    "{apiVersion: operator.knative.dev/v1beta1, kind: KnativeServing, metadata: {name: a, namespace: n}}";

/// Exit status and standard error of the command in `folder`, with its kubeconfig; the error
/// without the usage.
fn error(folder: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(tools::binary("knative-operator").unwrap());
    environment::confine(&mut command, folder).current_dir(folder).env("KUBECONFIG", "kubeconfig").args(arguments);
    let output = command.output().unwrap();
    assert!(output.stdout.is_empty(), "{arguments:?} prints an error on stdout");
    let text = String::from_utf8(output.stderr).unwrap();
    let error = text.split("\n\n").next().unwrap();
    (output.status.code(), error.trim_end().to_owned())
}

#[test]
fn errors_name_the_input_the_cluster_and_the_fix() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new("cluster").unwrap();
    // An API server without the operator.
    let server = Server::start(&authority, |_, _| Answer::not_found()).unwrap();
    let url = server.url("");
    let pem = authority.pem();
    let config = kubeconfig("prod", &url, &pem, "default", &User::Token("token"));
    let releases = tools::project().join("tests/release").display().to_string();
    for (name, text) in [
        ("kubeconfig", config.as_str()),
        ("ca.crt", pem.as_str()),
        ("serving.yaml", SERVING),
        ("namespace.yaml", "{apiVersion: v1, kind: Namespace, metadata: {name: n}}"),
        (
            "fleet.yaml",
            "{apiVersion: operator.knative.dev/v1alpha1, kind: KnativeFleet, metadata: {name: a, namespace: n}}",
        ),
        ("broken.yaml", "{"),
        ("empty/note.txt", ""),
        ("apps/below/serving.yaml", SERVING),
    ] {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let cluster = format!("cluster: {url} (context prod, kubeconfig)");
    let bundle = "cannot read /none/knative-serving: No such file or directory (os error 2); \
                  --releases must name a release bundle; to build one, in a clone of the repository: make bundle OUT=bundle";
    let table: [(&[&str], String); 22] = [
        (&["lint"], "the following required arguments were not provided:\n  --filename <FILE>".to_owned()),
        (&["lint", "-f", "none.yaml"], "cannot read none.yaml: No such file or directory (os error 2)".to_owned()),
        (
            &["lint", "-f", "empty"],
            "empty: the folder has no .yaml, .yml or .json file; -R reads the folders in it, too".to_owned(),
        ),
        (&["lint", "-f", "serving.yaml", "--releases", "/none"], bundle.to_owned()),
        (
            &["lint", "-f", "namespace.yaml", "-f", "empty/note.txt", "--releases", &releases],
            "namespace.yaml, empty/note.txt: there is no KnativeServing, KnativeEventing or KnativeFleet".to_owned(),
        ),
        (
            &["render", "-f", "namespace.yaml", "--releases", &releases],
            "namespace.yaml: there is neither a KnativeServing nor a KnativeEventing".to_owned(),
        ),
        (
            &["render", "-f", "fleet.yaml", "--releases", &releases],
            "fleet.yaml: there is neither a KnativeServing nor a KnativeEventing; in place of a KnativeFleet, name a file \
             with a resource that it created, or one with the spec of its template"
                .to_owned(),
        ),
        (&["render", "-f", "serving.yaml", "--releases", "/none"], format!("serving.yaml: KnativeServing a: {bundle}")),
        (
            &["render", "-R", "-f", "apps", "--releases", "/none"],
            format!("apps/below/serving.yaml: KnativeServing a: {bundle}"),
        ),
        (&["versions", "--releases", "/none"], bundle.to_owned()),
        (
            &["status", "-o", "table1"],
            "invalid value 'table1' for '--output <OUTPUT>'\n  [possible values: text, wide, json, yaml]".to_owned(),
        ),
        (
            &["wait", "knativeserving/a", "--timeout", "3"],
            "invalid value '3' for '--timeout <DURATION>': \"3\" is not a duration such as 10s, 1m30s or 500ms"
                .to_owned(),
        ),
        (&["wait", "pod/a"], "the kind must be knativeserving, knativeeventing or knativefleet, not pod".to_owned()),
        (&["wait", "a"], "name one resource as KIND/NAME, such as knativeserving/knative-serving".to_owned()),
        (
            &["status", "--context", "prd"],
            "cannot use the kubeconfig kubeconfig: it lacks a context prd; name one with --context: it has prod"
                .to_owned(),
        ),
        (
            &["status", "--kubeconfig", "none"],
            "cannot use the kubeconfig none: No such file or directory; name another one with --kubeconfig".to_owned(),
        ),
        (&["status", "--as-group", "admins"], "--as-group needs --as, a user of the group".to_owned()),
        (
            &["fleet", "skip", "prod", "eu-1"],
            "invalid value 'eu-1' for '<CLUSTERS>...': name a ClusterProfile as NAMESPACE/NAME, such as fleet-system/eu-1"
                .to_owned(),
        ),
        (
            &["preflight", "fleet-system/a", "--releases", &releases],
            format!(
                "there is no provider file /etc/cluster-inventory/config.json, which leads to the clusters; run the command \
                 in the operator's Pod, name another file with --clusterprofile-provider-file, or check a cluster by its own \
                 kubeconfig, without its name\n{cluster}"
            ),
        ),
        (
            &["debug", "--ca-file", "none.crt", "--token-file", "serving.yaml"],
            "cannot read none.crt: No such file or directory (os error 2)".to_owned(),
        ),
        (
            &["debug", "--ca-file", "serving.yaml", "--token-file", "serving.yaml"],
            "serving.yaml has no certificate".to_owned(),
        ),
        (
            &["fleet", "status"],
            format!(
                "the API server does not serve knativefleets.operator.knative.dev: the operator is not installed there\n{cluster}"
            ),
        ),
    ];
    for (arguments, expected) in table {
        assert_eq!(error(folder.path(), arguments), (Some(2), format!("error: {expected}")), "{arguments:?}");
    }
    let (code, text) = error(folder.path(), &["lint", "-f", "broken.yaml"]);
    assert!(code == Some(2) && text.starts_with("error: broken.yaml: unclosed bracket "), "{text}");
    let unreachable = ["debug", "--ca-file", "ca.crt", "--token-file", "serving.yaml", "--server", "127.0.0.1:1"];
    let (code, text) = error(folder.path(), &unreachable);
    let start = "error: cannot reach 127.0.0.1:1: ";
    assert!(code == Some(2) && text.starts_with(start) && text.contains("Connection refused"), "{text}");
    assert!(text.contains("kubectl port-forward") && text.contains("--server HOST:PORT"), "{text}");
    let (code, text) = error(folder.path(), &["fleet", "status", "a"]);
    let missing = "KnativeFleet default/a does not exist; to list all: knative-operator fleet status -A";
    assert_eq!((code, text), (Some(2), format!("error: {missing}\n{cluster}")));
}

/// Commands that read a release bundle, each with one that does not exist.
const WITH_BUNDLE: [&[&str]; 7] = [
    &["render", "-f", "serving.yaml"],
    &["lint", "-f", "serving.yaml"],
    &["images"],
    &["versions"],
    &["spoke-role"],
    &["spoke-role", "--versions", "1.22"],
    &["preflight"],
];

#[test]
fn commands_without_a_release_bundle_say_in_the_same_words_how_to_get_one() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new("cluster").unwrap();
    let server = Server::start(&authority, |_, _| Answer::not_found()).unwrap();
    let config = kubeconfig("prod", &server.url(""), &authority.pem(), "default", &User::Token("token"));
    std::fs::write(folder.path().join("kubeconfig"), config).unwrap();
    std::fs::write(folder.path().join("serving.yaml"), SERVING).unwrap();
    let hint =
        "; --releases must name a release bundle; to build one, in a clone of the repository: make bundle OUT=bundle";
    for arguments in WITH_BUNDLE {
        let (code, text) = error(folder.path(), &[arguments, &["--releases", "/none"]].concat());
        assert!(text.contains("cannot read /none/knative-") && text.contains(hint), "{arguments:?}: {text}");
        assert_eq!(code, Some(2), "{arguments:?}: {text}");
    }
}

#[test]
fn lint_without_a_release_bundle_says_what_it_does_not_check() {
    let binary = tools::binary("knative-operator").unwrap();
    // Nothing is beside it.
    let folder = tempfile::tempdir_in(binary.parent().unwrap()).unwrap();
    let own = folder.path().join("knative-operator");
    std::fs::hard_link(&binary, &own).unwrap();
    std::fs::write(folder.path().join("serving.yaml"), SERVING).unwrap();
    let mut command = Command::new(own);
    environment::confine(&mut command, folder.path()).current_dir(folder.path());
    let output = command.args(["lint", "-f", "serving.yaml"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let summary = "1 resource, 0 errors (without a release bundle: versions, patches, and names of workloads, containers, \
                   Services and ConfigMaps are not checked; --releases must name a release bundle; ";
    assert!(text.contains(summary), "{text}");
    assert_eq!(output.status.code(), Some(0), "{text}");
}

#[test]
fn wrong_values_of_flags_are_errors_that_name_the_flag() {
    let folder = tempfile::tempdir().unwrap();
    for (arguments, flag, why) in [
        (
            &["render", "-f", "a.yaml", "--kubernetes-min-version", "foo"][..],
            "invalid value 'foo' for '--kubernetes-min-version <VERSION>'",
            "\"foo\" is not a full version such as v1.34.0",
        ),
        (
            &["images", "--version", "abc"][..],
            "invalid value 'abc' for '--version <VERSION>'",
            "\"abc\" is not a version such as 1.22.1, 1.22 or latest",
        ),
        (
            &["spoke-role", "--versions", "1.22,abc"][..],
            "invalid value 'abc' for '--versions <VERSION>'",
            "\"abc\" is not a version such as 1.22.1, 1.22 or latest",
        ),
        (
            &["debug", "--ca-file", "ca.crt", "--server", "https://127.0.0.1:9090"][..],
            "invalid value 'https://127.0.0.1:9090' for '--server <HOST:PORT>'",
            "is not HOST:PORT, such as 127.0.0.1:9090",
        ),
        (
            &["debug", "--ca-file", "ca.crt", "--server", "127.0.0.1"][..],
            "invalid value '127.0.0.1' for '--server <HOST:PORT>'",
            "is not HOST:PORT, such as 127.0.0.1:9090",
        ),
    ] {
        let (code, text) = error(folder.path(), arguments);
        assert!(code == Some(2) && text.contains(flag) && text.contains(why), "{code:?}: {text}");
    }
}
