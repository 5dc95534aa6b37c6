//! Open Cluster Management on a hub, and a spoke that joins it.

use std::time::{Duration, Instant};

use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::kubeconfig::{User, kubeconfig};
use knative_operator_tests::product::NAMESPACE;
use knative_operator_tests::real::{Report, images, ocm, product};
use knative_operator_tests::{Result, recipe};
use serde_json::{Value, json};

/// The document with the manifests and values.
const DOCUMENT: &str = "docs/operate/open-cluster-management.md";
/// Name of the cluster, in the document.
pub const CLUSTER: &str = "cluster1";
/// Namespace of the operators of Open Cluster Management.
const OPERATORS: &str = "open-cluster-management";
/// Namespace of its components on the hub.
const COMPONENTS: &str = "open-cluster-management-hub";
/// Namespace of the add-ons on the hub.
pub const ADD_ONS: &str = "open-cluster-management-addon";
/// Namespace of the accounts on the spoke.
pub const ACCOUNTS: &str = "open-cluster-management-agent-addon";
/// Label of a cluster's requests for certificates.
const REQUESTS: &str = "open-cluster-management.io/cluster-name";
/// A second namespace with ClusterProfiles.
pub const TEAM: &str = "team";
/// Time limit of a step of Open Cluster Management, some of which it repeats each minute.
const STEP: Duration = Duration::from_secs(300);
/// Interval of polls of what is another project's, which has no types here.
const POLL: Duration = Duration::from_millis(500);

/// A hub with Open Cluster Management and the operator, and a spoke.
pub struct Site {
    pub hub: Cluster,
    pub spoke: Cluster,
}

/// Asks until there is an answer; after `limit`, the error has `what` and the last one.
pub async fn until<T>(what: &str, limit: Duration, mut ask: impl AsyncFnMut() -> Result<Option<T>>) -> Result<T> {
    let begun = Instant::now();
    loop {
        let last = match ask().await {
            Ok(Some(answer)) => return Ok(answer),
            Ok(None) => "not yet".to_owned(),
            Err(error) => error.to_string(),
        };
        if begun.elapsed() > limit {
            return Err(format!("{what} after {limit:?}: {last}").into());
        }
        tokio::time::sleep(POLL).await;
    }
}

/// The object or the list that `kubectl get` prints for `arguments`.
pub async fn get(cluster: &Cluster, arguments: &[&str]) -> Result<Value> {
    let text = cluster.kubectl(&[&["get", "-o", "json"][..], arguments].concat(), "").await?;
    Ok(serde_json::from_str(&text)?)
}

/// Waits with kubectl until `resource` has what `condition` says.
pub async fn wait(cluster: &Cluster, resource: &[&str], condition: &str) -> Result<()> {
    let (condition, limit) = (format!("--for={condition}"), format!("--timeout={}s", STEP.as_secs()));
    let condition = [condition.as_str(), limit.as_str()];
    cluster.kubectl(&[&["wait"][..], resource, &condition[..]].concat(), "").await.map(drop)
}

/// Applies `object` as a user does.
pub async fn apply(cluster: &Cluster, object: &Value) -> Result<()> {
    cluster.kubectl(&["apply", "-f", "-"], &object.to_string()).await.map(drop)
}

/// Installs a chart of Open Cluster Management in `namespace`, and waits until its Pods are ready.
async fn install(cluster: &Cluster, name: &str, namespace: &str, values: &Value) -> Result<()> {
    let file = cluster.dir().join(format!("{name}.json"));
    std::fs::write(&file, values.to_string())?;
    let (chart, file) = (ocm::chart(name)?, file.display().to_string());
    let place = ["--namespace", namespace, "--create-namespace", "--values", &file, "--wait", "--timeout", "5m"];
    let arguments = [&["upgrade", "--install", name, &chart][..], &place[..]].concat();
    // A webhook that converts or admits its objects may begin to answer a moment later.
    let done = async || cluster.helm(&arguments).await.map(Some);
    until(&format!("the chart {name} is installed"), STEP, done).await.map(drop)
}

/// The manifests of `kind` in the document.
fn documented(kind: &str) -> Result<Value> {
    let found = recipe::yaml(DOCUMENT)?.into_iter().find(|block| block["kind"] == kind);
    found.ok_or_else(|| format!("{DOCUMENT} has no {kind}").into())
}

/// The values of the operator's chart in the document, for the images of the tests. A second
/// namespace may have profiles.
fn values() -> Result<Value> {
    let of_operator = |block: &Value| block["knative_operator"].is_object();
    let documented = recipe::yaml(DOCUMENT)?.into_iter().find(of_operator).ok_or("no values in the document")?;
    let mut values = product::values();
    values["knative_operator"]["multicluster"] = documented["knative_operator"]["multicluster"].clone();
    values["knative_operator"]["multicluster"]["profileNamespaces"] = json!([NAMESPACE, TEAM]);
    Ok(values)
}

/// Whether the condition `name` of `object` is True.
fn is_true(object: &Value, name: &str) -> bool {
    let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|condition| condition["type"] == name && condition["status"] == "True")
}

impl Site {
    /// Two real nodes, of which only the spoke has a route to the other one.
    pub async fn start(report: &mut Report) -> Result<Self> {
        let registry = images::registry_with_eventing().await?;
        tokio::task::block_in_place(|| ocm::push(registry))?;
        report.line("registry with all images");
        let (hub, spoke) = tokio::try_join!(Cluster::real("hub", registry), Cluster::real("spoke", registry))?;
        spoke.reach(&hub)?;
        assert!(spoke.has_route_to(&hub)? && !hub.has_route_to(&spoke)?, "only the spoke has a route");
        report.line("two control planes and nodes are ready; the hub has no route to the spoke");
        Ok(Self { hub, spoke })
    }

    /// Installs Open Cluster Management, its add-ons and the operator on the hub.
    pub async fn install_hub(&self, report: &mut Report) -> Result<()> {
        let hub = &self.hub;
        let gates: Vec<Value> =
            ["DefaultClusterSet", "ClusterProfile"].map(|feature| json!({"feature": feature, "mode": "Enable"})).into();
        // What `clusteradm init --feature-gates=ClusterProfile=true` installs.
        let values = json!({
            "replicaCount": 1, "images": {"tag": ocm::VERSION}, "createBootstrapSA": true,
            "clusterManager": {"registrationConfiguration": {"featureGates": gates}},
        });
        install(hub, "cluster-manager", OPERATORS, &values).await?;
        wait(hub, &["clustermanager/cluster-manager"], "condition=Applied").await?;
        wait(hub, &["deployment", "--all", "-n", COMPONENTS], "condition=Available").await?;
        wait(hub, &["managedclusterset/global"], "create").await?;
        wait(hub, &["crd/clusterprofiles.multicluster.x-k8s.io"], "condition=Established").await?;
        report.line(&format!("Open Cluster Management {} is installed on the hub", ocm::VERSION));

        let gates = json!({"clusterProfileCredSyncer": true});
        install(hub, "managed-serviceaccount", ADD_ONS, &json!({"featureGates": gates})).await?;
        let gates = json!({"clusterProfileAccessProvider": true});
        let placement = json!({"placementName": "global", "placementNamespace": ADD_ONS});
        let values = json!({"userServer": {"enabled": true}, "enableServiceProxy": true,
            "featureGates": gates, "installByPlacement": placement});
        install(hub, "cluster-proxy", ADD_ONS, &values).await?;
        report.line("cluster-proxy and managed-serviceaccount are installed on the hub");

        hub.namespace(NAMESPACE).await?;
        apply(hub, &documented("ManagedClusterSetBinding")?).await?;
        product::release(hub, &self::values()?).await?;
        report.line("the operator's chart is installed, its Pods are ready");
        Ok(())
    }

    /// Installs the klusterlet on the spoke, and accepts the cluster on the hub, as `clusteradm
    /// join` and `accept` do.
    pub async fn join(&self, report: &mut Report) -> Result<()> {
        let (hub, spoke) = (&self.hub, &self.spoke);
        let token = hub.token(OPERATORS, "agent-registration-bootstrap", 3600).await?;
        let bootstrap = kubeconfig("hub", &hub.url(), hub.authority(), "default", &User::Token(&token));
        let values = json!({
            "images": {"tag": ocm::VERSION}, "klusterlet": {"clusterName": CLUSTER},
            "bootstrapHubKubeConfig": bootstrap,
        });
        install(spoke, "klusterlet", OPERATORS, &values).await?;
        let joined = async || self.accept().await;
        until("the cluster joins", STEP, joined).await?;
        for add_on in ["cluster-proxy", "managed-serviceaccount"] {
            let add_on = format!("managedclusteraddon/{add_on}");
            wait(hub, &[&add_on, "-n", CLUSTER], "create").await?;
            wait(hub, &[&add_on, "-n", CLUSTER], "condition=Available").await?;
        }
        report.line("the cluster has joined, and runs the agents of the add-ons");
        Ok(())
    }

    /// Approves what the agent of the cluster requests; returns whether the cluster is available.
    async fn accept(&self) -> Result<Option<()>> {
        let label = format!("{REQUESTS}={CLUSTER}");
        let requests = get(&self.hub, &["csr", "-l", &label]).await?;
        for request in requests["items"].as_array().into_iter().flatten() {
            // Those of add-ons are approved by Open Cluster Management.
            let is_own = request["metadata"]["labels"]["open-cluster-management.io/addon-name"].is_null();
            let is_new = is_own && request["status"]["conditions"].is_null();
            if let Some(name) = request["metadata"]["name"].as_str().filter(|_| is_new) {
                self.hub.kubectl(&["certificate", "approve", name], "").await?;
            }
        }
        let cluster = get(&self.hub, &["managedcluster", CLUSTER]).await?;
        if cluster["spec"]["hubAcceptsClient"] != true {
            let accept = json!({"spec": {"hubAcceptsClient": true}}).to_string();
            self.hub.kubectl(&["patch", "managedcluster", CLUSTER, "--type=merge", "-p", &accept], "").await?;
        }
        let is_there = ["ManagedClusterJoined", "ManagedClusterConditionAvailable"];
        Ok(is_there.iter().all(|name| is_true(&cluster, name)).then_some(()))
    }

    /// Gives the operator its account on the spoke, and waits until the token is on the hub.
    pub async fn permit(&self) -> Result<()> {
        for kind in ["ManagedServiceAccount", "ManifestWork"] {
            apply(&self.hub, &documented(kind)?).await?;
        }
        wait(&self.hub, &["manifestwork/knative-permissions", "-n", CLUSTER], "condition=Applied").await?;
        until("the token is copied", STEP, async || self.copied_token(NAMESPACE).await).await.map(drop)
    }

    /// The token that is copied to `namespace`, in base64.
    pub async fn copied_token(&self, namespace: &str) -> Result<Option<String>> {
        let secret = self.hub.object("secret", namespace, &format!("{CLUSTER}-knative")).find().await?;
        Ok(secret.and_then(|secret| secret["data"]["token"].as_str().map(str::to_owned)))
    }

    /// Detaches the cluster on the hub, and removes the klusterlet from the spoke, as `clusteradm
    /// unjoin` does.
    pub async fn detach(&self) -> Result<()> {
        let limit = format!("--timeout={}s", STEP.as_secs());
        self.hub.kubectl(&["delete", "managedcluster", CLUSTER, &limit], "").await?;
        self.spoke.kubectl(&["delete", "klusterlet", "klusterlet", &limit], "").await?;
        let uninstall = ["uninstall", "klusterlet", "--namespace", OPERATORS, "--wait", "--timeout", "3m"];
        self.spoke.helm(&uninstall).await.map(drop)
    }

    /// What there is, for an error.
    pub async fn state(&self) -> String {
        let kinds = "managedclusters,managedclusteraddons,manifestworks,managedserviceaccounts,clusterprofiles,csr,\
            knativeservings,knativeeventings,knativefleets";
        let (_, objects) = self.hub.kubectl_output(&["get", kinds, "-A", "-o", "wide"], "").await;
        let mut all = format!(
            "hub:\n{objects}\n{}\nspoke:\n{}",
            product::pods(&self.hub).await,
            product::pods(&self.spoke).await
        );
        let logs = [
            (&self.hub, NAMESPACE, "knative-operator"),
            (&self.hub, ADD_ONS, "cluster-proxy"),
            (&self.hub, ADD_ONS, "cluster-proxy-addon-manager"),
            (&self.hub, ADD_ONS, "cluster-proxy-addon-user"),
            (&self.hub, ADD_ONS, "managed-serviceaccount-addon-manager"),
            (&self.hub, COMPONENTS, "cluster-manager-registration-controller"),
            (&self.spoke, "open-cluster-management-agent", "klusterlet-agent"),
            (&self.spoke, "open-cluster-management-cluster-proxy", "cluster-proxy-proxy-agent"),
            (&self.spoke, ACCOUNTS, "managed-serviceaccount-addon-agent"),
        ];
        for (cluster, namespace, name) in logs {
            let name = format!("deployment/{name}");
            let arguments = ["logs", &name, "-n", namespace, "--all-containers", "--tail=30"];
            let (_, log) = cluster.kubectl_output(&arguments, "").await;
            all = format!("{all}\n==> {} {name}\n{log}", cluster.name());
        }
        all
    }
}
