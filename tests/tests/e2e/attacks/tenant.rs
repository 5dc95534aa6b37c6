//! What users of a namespace try, and authors of ClusterProfiles: a hub and a spoke.

use knative_operator_tests::Result;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::product::{self, FLEET, Product};
use knative_operator_tests::releases::{self, Releases};
use knative_operator_tests::tools;
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::attacker::{mode, role, to_use};
use crate::authorization::binding;
use crate::support::{apply, namespace};

/// The tenant's namespace.
pub const TEAM: &str = "team-a";
/// Namespace of the author of ClusterProfiles.
pub const PROFILES: &str = "team-p";
/// May edit resources in [`TEAM`], and use ClusterProfile `spoke`.
pub const TENANT: &str = "tenant";
/// May edit everything in [`TEAM`] that Kubernetes' role `edit` permits, and resources.
pub const DEVELOPER: &str = "developer";
/// Like [`DEVELOPER`]; may also write the status of resources, and use ClusterProfile `later`.
pub const WRITER: &str = "status-writer";
/// May write ClusterProfiles and edit resources in [`PROFILES`].
pub const AUTHOR: &str = "profile-author";
/// ClusterProfiles of the spoke. Only the first is for the tenant.
pub const SPOKES: [&str; 3] = ["spoke", "reserved", "later"];

/// A hub with the operator, and a spoke.
pub struct Site {
    product: Product,
    /// The hub.
    pub hub: Cluster,
    /// The spoke.
    pub spoke: Cluster,
    /// What is installed.
    pub releases: Releases,
    _plugins: TempDir,
}

fn values(mode: &str) -> Value {
    let mut values = product::values(&[json!({"name": "builtin", "builtin": "secretreader"})]);
    values["knative_operator"]["operator_webhook"]["authorization"] = json!(mode);
    values
}

impl Site {
    /// Starts everything. Permissions are not enforced yet.
    pub async fn start() -> Result<Self> {
        let (hub, spoke) = tokio::try_join!(Cluster::hub("attacks"), Cluster::spoke("attacked"))?;
        let (releases, plugins) = (releases::best(), tempfile::tempdir()?);
        let product = Product::install(&hub, &releases, values("warn"), plugins.path()).await?;
        product::register(&hub, &spoke, SPOKES[0]).await?;
        for name in &SPOKES[1..] {
            product::profile(&hub, name, &product::access(&spoke, SPOKES[0])).await?;
        }
        for place in [TEAM, PROFILES, "knative-eventing"] {
            namespace(&hub, place).await?;
        }
        let mut items = vec![
            binding("knative-operator-editor", TEAM, &[TENANT, DEVELOPER, WRITER]),
            binding("knative-operator-editor", PROFILES, &[AUTHOR]),
            binding("edit", TEAM, &[DEVELOPER, WRITER]),
        ];
        let status = json!({"apiGroups": ["operator.knative.dev"],
            "resources": ["knativeservings/status", "knativeeventings/status"], "verbs": ["get", "patch", "update"]});
        let author = json!({"apiGroups": ["multicluster.x-k8s.io"],
            "resources": ["clusterprofiles", "clusterprofiles/status"], "verbs": ["create", "get", "list", "patch", "update", "use"]});
        items.extend(role("use-spoke", FLEET, &to_use(SPOKES[0]), TENANT));
        items.extend(role("use-later", FLEET, &to_use(SPOKES[2]), WRITER));
        items.extend(role("write-status", TEAM, &status, WRITER));
        items.extend(role("write-profiles", PROFILES, &author, AUTHOR));
        apply(&hub, &json!({"apiVersion": "v1", "kind": "List", "items": items})).await?;
        Ok(Self { product, hub, spoke, releases, _plugins: plugins })
    }

    /// Enforces permissions from now on, with the chart's defaults apart from that.
    pub async fn enforce(&mut self) -> Result<()> {
        self.upgrade(values(mode())).await
    }

    /// The arguments of the webhook after `helm upgrade` to this chart, with the values that the
    /// release has: a mode that somebody chose stays.
    pub async fn arguments_after_upgrade(&self) -> Result<String> {
        let chart = tools::project().join("charts/knative-operator").display().to_string();
        let upgrade = ["upgrade", "knative-operator", &chart, "--namespace", product::NAMESPACE, "--dry-run=server"];
        let mut all = String::new();
        for reuse in ["--reset-then-reuse-values", "--reuse-values"] {
            let rendered = self.hub.helm(&[&upgrade[..], &[reuse]].concat()).await?;
            let is_argument =
                |line: &&str| line.contains("--authorization=") || line.contains("--enforce-authorization");
            all.extend(rendered.lines().filter(is_argument).map(|line| format!("{}\n", line.trim())));
        }
        Ok(all)
    }

    /// Restricts, in addition, what administrators can: used namespaces, and ClusterProfiles.
    pub async fn restrict(&mut self) -> Result<()> {
        let mut values = values(mode());
        values["knative_operator"]["multicluster"]["refuseUsedNamespaces"] = json!(true);
        values["knative_operator"]["multicluster"]["profileNamespaces"] = json!([product::FLEET]);
        self.upgrade(values).await
    }

    async fn upgrade(&mut self, mut values: Value) -> Result<()> {
        let bundled = product::bundled(&self.hub);
        values["knative_operator"]["operator_webhook"]["servicePort"] =
            bundled["knative_operator"]["operator_webhook"]["servicePort"].clone();
        Product::upgrade_release(&self.hub, &values).await?;
        self.product.start_webhook(&self.hub).await?;
        self.product.restart_operator(&self.hub, Signal::TERM).await
    }
}
