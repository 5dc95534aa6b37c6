//! `knative-operator` without a subcommand, outside of a Pod.

use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use knative_operator_tests::{environment, kubeconfig, tools, wait};

/// Time limit of the first connection of an operator.
const LIMIT: Duration = wait::LIMIT;

#[test]
fn bare_command_prints_help_and_connects_to_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let authority = knative_operator_tests::pki::Authority::new("cluster").unwrap();
    let server = format!("https://{}", listener.local_addr().unwrap());
    let user = kubeconfig::User::Token("token");
    let file = folder.path().join("kubeconfig");
    std::fs::write(&file, kubeconfig::kubeconfig("x", &server, &authority.pem(), "default", &user)).unwrap();
    let command = |arguments: &[&str]| {
        let mut command = Command::new(tools::binary("knative-operator").unwrap());
        environment::confine(&mut command, folder.path())
            .env("KUBECONFIG", &file)
            .env("METRICS_PORT", "0")
            .args(arguments);
        command
    };

    let output = command(&[]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.contains("Usage:") && text.contains("run "), "{text}");
    assert!(listener.accept().is_err(), "the command without a subcommand connected to a cluster");

    let mut operator = command(&["run"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let begun = Instant::now();
    // Polled: nothing reports a connection to a listener without a runtime.
    while listener.accept().is_err() && begun.elapsed() < LIMIT {
        std::thread::sleep(Duration::from_millis(20));
    }
    let took = begun.elapsed();
    operator.kill().unwrap();
    operator.wait().unwrap();
    assert!(took < LIMIT, "knative-operator run did not connect to the cluster of KUBECONFIG");
}
