//! How commands connect: kubeconfigs, the Pod's ServiceAccount, and an API server that can't be
//! reached.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use knative_operator_tests::https::{Answer, Server};
use knative_operator_tests::kubeconfig::{User, kubeconfig};
use knative_operator_tests::pki::Authority;
use knative_operator_tests::{environment, tools};

const SERVING: &str =
    "{apiVersion: operator.knative.dev/v1beta1, kind: KnativeServing, metadata: {name: a, namespace: n}}";

/// A command with only `variables` in its environment.
fn command(program: impl AsRef<std::ffi::OsStr>, folder: &Path, variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(program);
    environment::confine(&mut command, folder).envs(variables.iter().copied());
    command
}

fn operator(folder: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let binary = tools::binary("knative-operator").unwrap();
    command(binary, folder, variables).args(arguments).output().unwrap()
}

/// Writes `text` to the file `name`.
fn write(folder: &Path, name: &str, text: &str) -> PathBuf {
    let file = folder.join(name);
    std::fs::write(&file, text).unwrap();
    file
}

/// The flags of `diff` for [`SERVING`].
fn diff(folder: &Path) -> Vec<String> {
    let file = write(folder, "serving.yaml", SERVING).display().to_string();
    let releases = tools::project().join("tests/release").display().to_string();
    ["diff", "-f", &file, "--releases", &releases].map(str::to_owned).to_vec()
}

#[test]
fn unreachable_api_server_is_named_with_its_context_and_no_credentials() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new("cluster").unwrap().pem();
    let config = |name: &str| {
        let url = "https://user:hunter2@127.0.0.1:1";
        write(folder.path(), name, &kubeconfig(name, url, &authority, "default", &User::Token("hunter3")))
    };
    let paths = format!("{}:{}", config("one").display(), config("two").display());
    let difference = diff(folder.path());
    let difference: Vec<&str> = difference.iter().map(String::as_str).collect();
    let bundle = tools::project().join("tests/release").display().to_string();
    let commands: [&[&str]; 10] = [
        &difference,
        &["status"],
        &["wait", "knativeserving/a"],
        &["audit"],
        &["upgrade", "plan", "--releases", &bundle],
        &["take-over"],
        &["ui", "--no-open"],
        &["fleet", "status", "a"],
        &["fleet", "history", "a"],
        &["version"],
    ];
    for arguments in commands {
        let output =
            operator(folder.path(), &[arguments, &["--context", "two"]].concat(), &[("KUBECONFIG", paths.as_str())]);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        let expected = format!(
            "cannot reach the API server https://127.0.0.1:1 (context two, {paths}): Connection refused; \
             if it is the wrong context: kubectl config get-contexts lists them\n"
        );
        assert!(error.starts_with("error: ") && error.ends_with(&expected), "{arguments:?}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
        for noise in ["hunter", "initial object list", "tcp connect error"] {
            assert!(!error.contains(noise), "{arguments:?}: {error}");
        }
    }
}

#[test]
fn command_in_a_pod_uses_its_service_account() {
    let folder = tempfile::tempdir().unwrap();
    let pod = [("KUBERNETES_SERVICE_HOST", "127.0.0.1"), ("KUBERNETES_SERVICE_PORT", "1")];
    let difference = diff(folder.path());
    let difference: Vec<&str> = difference.iter().map(String::as_str).collect();
    for arguments in [&difference[..], &["status"]] {
        let error = String::from_utf8(operator(folder.path(), arguments, &pod).stderr).unwrap();
        // A machine that is itself a Pod has a ServiceAccount.
        let is_of_pod = error.contains("ServiceAccount of the Pod") || error.contains("the cluster of this Pod");
        assert!(is_of_pod, "{error}");
        let error = String::from_utf8(operator(folder.path(), arguments, &[]).stderr).unwrap();
        assert!(error.contains("cannot use the kubeconfig"), "{error}");
    }
}

#[test]
fn no_color_has_an_effect_on_the_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new("cluster").unwrap();
    let server = Server::start(&authority, |_, _| Answer::not_found()).unwrap();
    let text = kubeconfig("x", &server.url(""), &authority.pem(), "default", &User::Token("token"));
    let file = write(folder.path(), "kubeconfig", &text).display().to_string();
    let binary = tools::binary("knative-operator").unwrap().display().to_string();
    let line = format!("{binary} {} --kubeconfig {file}", diff(folder.path()).join(" "));
    let colored = |variables: &[(&str, &str)]| {
        // A terminal with a width.
        let script = format!("stty cols 120 rows 40; {line}");
        let mut command = command("script", folder.path(), variables);
        let output = command.args(["-qec", &script, "/dev/null"]).env("TERM", "xterm").output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains("+++ planned/"), "{text}");
        text.contains("\u{1b}[")
    };
    assert!(colored(&[]));
    assert!(!colored(&[("NO_COLOR", "1")]));
}
