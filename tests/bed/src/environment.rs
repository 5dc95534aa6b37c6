//! The environment of what the fixture starts: no proxy, no cluster and no setting of the machine.

use std::path::Path;
use std::process::Command;

/// Variables of this machine's user that would change what tests do, in upper case.
const OF_MACHINE: [&str; 8] = [
    "ALL_PROXY",
    "FTP_PROXY",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "KUBECONFIG",
    "KUBERNETES_SERVICE_HOST",
    "KUBERNETES_SERVICE_PORT",
    "NO_PROXY",
];
/// Beginnings of such names.
const FAMILIES: [&str; 4] = ["HELM_", "KUBECTL_", "KUBERNETES_PORT", "OTEL_"];

fn is_of_machine(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    OF_MACHINE.contains(&name.as_str()) || FAMILIES.iter().any(|family| name.starts_with(family))
}

/// Removes proxies, clusters and settings of tools from the environment of `command`.
pub fn clean(command: &mut Command) -> &mut Command {
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_of_machine)) {
        command.env_remove(name);
    }
    command
}

/// Leaves only `PATH` in the environment of `command`. Its home and its temporary files are in
/// `folder`.
pub fn confine<'a>(command: &'a mut Command, folder: &Path) -> &'a mut Command {
    let path = std::env::var_os("PATH").unwrap_or_default();
    command.env_clear().env("PATH", path).env("HOME", folder).env("TMPDIR", folder)
}

#[cfg(test)]
mod tests {
    use super::is_of_machine;

    #[test]
    fn proxies_and_clusters_of_the_machine_are_removed() {
        for name in ["HTTPS_PROXY", "http_proxy", "All_Proxy", "KUBECONFIG", "HELM_KUBECONTEXT", "OTEL_SDK_DISABLED"] {
            assert!(is_of_machine(name), "{name}");
        }
        for name in ["KUBERNETES", "PATH", "HOME", "KNATIVE_IMAGES", "CARGO_HTTP_TIMEOUT"] {
            assert!(!is_of_machine(name), "{name}");
        }
    }
}
