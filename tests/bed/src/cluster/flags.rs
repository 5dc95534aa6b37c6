//! Command lines of the control plane.

use super::{Cluster, pool, state};
use crate::{Result, admission, audit, ports, stages, tools};

/// Controllers of volumes, certificates of nodes, addresses of Services (simulated Pods don't
/// answer) and others that no test needs: each has watches, which cost processor time in each
/// control plane.
const UNUSED_CONTROLLERS: [&str; 18] = [
    "bootstrap-signer-controller",
    "certificatesigningrequest-approving-controller",
    "certificatesigningrequest-cleaner-controller",
    "certificatesigningrequest-signing-controller",
    "daemonset-controller",
    "endpoints-controller",
    "endpointslice-controller",
    "ephemeral-volume-controller",
    "legacy-serviceaccount-token-cleaner-controller",
    "node-lifecycle-controller",
    "persistentvolume-attach-detach-controller",
    "persistentvolume-binder-controller",
    "persistentvolume-expander-controller",
    "persistentvolume-protection-controller",
    "persistentvolumeclaim-protection-controller",
    "replicationcontroller-controller",
    "token-cleaner-controller",
    "ttl-controller",
];

/// The same, of the default version of Kubernetes: others may not know their names.
const MORE_UNUSED_CONTROLLERS: [&str; 8] = [
    "device-taint-eviction-controller",
    "disruption-controller",
    "endpointslice-mirroring-controller",
    "resourceclaim-controller",
    "storageversion-garbage-collector-controller",
    "taint-eviction-controller",
    "validatingadmissionpolicy-status-controller",
    "volumeattributesclass-protection-controller",
];

/// What an API server of the default version does for other API servers, for its metrics, and to
/// check itself: it reads and writes etcd again and again, also at rest.
const UNUSED_FEATURES: [&str; 5] = [
    "APIServerIdentity",
    "DetectCacheInconsistency",
    "ListFromCacheSnapshot",
    "SizeBasedListCostEstimate",
    "UnknownVersionInteroperabilityProxy",
];

/// Needed by the few tests that ask for it ([`super::Setup::autoscaling`]).
const AUTOSCALER: &str = "horizontal-pod-autoscaler-controller";

/// The controllers of a cluster with a simulated node.
fn used_controllers(is_default_version: bool, autoscaling: bool) -> String {
    let more: &[&str] = if is_default_version { &MORE_UNUSED_CONTROLLERS } else { &[] };
    let autoscaler: &[&str] = if autoscaling { &[] } else { &[AUTOSCALER] };
    format!("*,-{}", [&UNUSED_CONTROLLERS[..], more, autoscaler].concat().join(",-"))
}

/// Feature gates of the API server.
fn features(is_default_version: bool) -> String {
    let unused: &[&str] = if is_default_version { &UNUSED_FEATURES } else { &[] };
    // On by default from 1.35 on.
    unused.iter().fold("ImageVolume=true".to_owned(), |all, feature| format!("{all},{feature}=false"))
}

impl Cluster {
    fn file(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }

    pub(super) fn etcd(&self) -> Vec<String> {
        let url = |port: u16| format!("https://{}:{port}", self.subnet.address(2));
        let (client, peer) = (url(ports::ETCD), url(ports::ETCD_PEERS));
        let mut flags = vec![
            format!("--data-dir={}", self.file("etcd")),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster=default={peer}"),
            "--unsafe-no-fsync".to_owned(),
            // After a crash, etcd takes what is not in its database from its log.
            "--backend-batch-interval=1s".to_owned(),
            "--log-level=error".to_owned(),
        ];
        for of in ["", "peer-"] {
            flags.extend([
                format!("--{of}cert-file={}", self.file("etcd.crt")),
                format!("--{of}key-file={}", self.file("etcd.key")),
                format!("--{of}trusted-ca-file={}", self.file(state::AUTHORITY)),
                format!("--{of}client-cert-auth"),
            ]);
        }
        flags
    }

    pub(super) fn apiserver(&self) -> Vec<String> {
        let mut off = Vec::new();
        if !self.setup.webhooks {
            off.extend(["MutatingAdmissionWebhook", "ValidatingAdmissionWebhook"]);
        }
        let services = self.machine.as_ref().map_or_else(|| self.subnet.services(), |machine| machine.net().services());
        let mut flags = vec![
            format!("--etcd-servers=https://{}:{}", self.subnet.address(2), ports::ETCD),
            format!("--etcd-cafile={}", self.file(state::AUTHORITY)),
            format!("--etcd-certfile={}", self.file("etcd.crt")),
            format!("--etcd-keyfile={}", self.file("etcd.key")),
            format!("--bind-address={}", self.server),
            format!("--advertise-address={}", self.server),
            format!("--secure-port={}", ports::API_SERVER),
            format!("--tls-cert-file={}", self.file("server.crt")),
            format!("--tls-private-key-file={}", self.file("server.key")),
            format!("--client-ca-file={}", self.file("ca.crt")),
            format!("--service-cluster-ip-range={services}"),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            format!("--service-account-key-file={}", self.file("sa.pub")),
            format!("--service-account-signing-key-file={}", self.file("sa.key")),
            "--allow-privileged=true".to_owned(),
            format!("--admission-control-config-file={}", self.file(admission::FILE)),
            format!("--disable-http2-serving={}", !self.setup.http2),
            format!("--audit-policy-file={}", self.file(audit::POLICY)),
            format!("--audit-log-path={}", self.file("audit.log")),
            "--audit-log-mode=batch".to_owned(),
            // It is emptied when another test takes the control plane (see `pool`).
            "--audit-log-maxsize=10000".to_owned(),
            format!("--feature-gates={}", features(tools::is_default_kubernetes())),
            // Nobody reads its metrics.
            "--etcd-count-metric-poll-period=0".to_owned(),
        ];
        // A bench limits requests by it.
        if pool::is_open() {
            flags.push("--enable-priority-and-fairness=false".to_owned());
            flags.push("--runtime-config=flowcontrol.apiserver.k8s.io/v1=false".to_owned());
        }
        if self.machine.is_some() {
            flags.extend([
                "--authorization-mode=Node,RBAC".to_owned(),
                "--enable-admission-plugins=NodeRestriction".to_owned(),
                // For logs, exec and port-forward.
                "--kubelet-preferred-address-types=InternalIP".to_owned(),
                format!("--kubelet-certificate-authority={}", self.file("ca.crt")),
                format!("--kubelet-client-certificate={}", self.file("admin.crt")),
                format!("--kubelet-client-key={}", self.file("admin.key")),
            ]);
        } else {
            off.push("TaintNodesByCondition");
            flags.extend(["--authorization-mode=RBAC".to_owned(), "--endpoint-reconciler-type=none".to_owned()]);
        }
        if !off.is_empty() {
            flags.push(format!("--disable-admission-plugins={}", off.join(",")));
        }
        flags
    }

    /// The controllers, and what simulates the node if no real one is wanted.
    pub(super) fn controllers(&self) -> Result<Vec<(&'static str, Vec<String>)>> {
        let address = self.subnet.address(2);
        let kubeconfig = format!("--kubeconfig={}", self.file(audit::KUBECONFIG));
        let mut controllers = vec![
            (
                "kube-controller-manager",
                vec![
                    kubeconfig.clone(),
                    format!("--service-account-private-key-file={}", self.file("sa.key")),
                    format!("--root-ca-file={}", self.file("ca.crt")),
                    "--leader-elect=false".to_owned(),
                    format!("--bind-address={address}"),
                    "--concurrent-gc-syncs=10".to_owned(),
                    // They don't wait for their limits when much is deleted.
                    "--kube-api-qps=500".to_owned(),
                    "--kube-api-burst=1000".to_owned(),
                ],
            ),
            (
                "kube-scheduler",
                vec![kubeconfig.clone(), "--leader-elect=false".to_owned(), format!("--bind-address={address}")],
            ),
        ];
        if self.machine.is_some() {
            // Agents of cluster managers request their certificates.
            controllers[0].1.push(format!("--cluster-signing-cert-file={}", self.file("ca.crt")));
            controllers[0].1.push(format!("--cluster-signing-key-file={}", self.file("ca.key")));
        } else {
            let used = used_controllers(tools::is_default_kubernetes(), self.setup.autoscaling);
            controllers[0].1.push(format!("--controllers={used}"));
            let stages = stages::file(self.dir.path(), self.setup.real_namespaces)?;
            controllers.push((
                "kwok",
                vec![
                    kubeconfig,
                    format!("--config=\"{}\"", stages.display()), // a list, with commas
                    "--manage-all-nodes=true".to_owned(),
                    // No Leases of nodes: no controller reads them.
                    "--node-lease-duration-seconds=0".to_owned(),
                ],
            ));
        }
        Ok(controllers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_versions_of_kubernetes_get_no_names_that_they_may_not_know() {
        assert_eq!(features(false), "ImageVolume=true");
        assert!(features(true).ends_with(",UnknownVersionInteroperabilityProxy=false"), "{}", features(true));
        assert!(used_controllers(false, true).ends_with(",-ttl-controller"));
        assert!(used_controllers(true, false).contains(",-ttl-controller,-device-taint-eviction-controller,-"));
        assert!(used_controllers(false, false).ends_with(",-horizontal-pod-autoscaler-controller"));
    }
}
