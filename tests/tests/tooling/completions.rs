//! What kubectl completes for its plugin, with the link that the documents name.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use knative_operator_tests::kubeconfig::{User, kubeconfig};
use knative_operator_tests::pki::Authority;
use knative_operator_tests::{environment, tools};

/// What `kubectl` prints about the words after the name of the plugin.
fn completed(folder: &Path, words: &[&str]) -> String {
    let mut command = Command::new(tools::control_plane("kubectl").unwrap());
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default());
    environment::confine(&mut command, folder).env("PATH", path).env("KUBECONFIG", folder.join("kubeconfig"));
    let output = command.current_dir(folder).args(["__complete", "knative-operator"]).args(words).output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn kubectl_completes_its_plugin() {
    let folder = tempfile::tempdir().unwrap();
    let binary = tools::binary("knative-operator").unwrap();
    symlink(binary, folder.path().join("kubectl-knative_operator")).unwrap();
    symlink("kubectl-knative_operator", folder.path().join("kubectl_complete-knative_operator")).unwrap();
    let authority = Authority::new("cluster").unwrap();
    let config = kubeconfig("prod", "https://127.0.0.1:1", &authority.pem(), "default", &User::Token("token"));
    std::fs::write(folder.path().join("kubeconfig"), config).unwrap();
    for (words, line) in [
        (&["sta"][..], "status\tShows the state of all fleets, clusters and components of a hub, "),
        (&["fleet", "pau"], "pause\t"),
        (&["status", "-o", "y"], "yaml"),
        (&["status", "--context", ""], "prod"),
        (&["completions", "fi"], "fish"),
    ] {
        let text = completed(folder.path(), words);
        assert!(text.lines().any(|found| found.starts_with(line)) && text.ends_with(":4\n"), "{words:?}: {text}");
    }
    // Commands that people don't use are hidden.
    let all = completed(folder.path(), &[""]);
    assert!(all.contains("\nlint\t") && !all.contains("\ncheck\t"), "{all}");
    // The shell completes files. A cluster that does not answer has no names.
    assert_eq!(completed(folder.path(), &["lint", "-f", ""]), ":0\n");
    let flags = completed(folder.path(), &["fleet", "status", ""]);
    assert!(flags.lines().all(|line| line.starts_with('-') || line == ":4"), "{flags}");
}
