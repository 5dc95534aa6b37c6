//! A user with few rights, by impersonation.

use knative_operator_tests::Result;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::cluster::apply::Terms;
use serde_json::{Value, json};

use crate::authorization::binding;

/// The output of an admitted request, or the message with which it was refused.
pub type Attempt = std::result::Result<String, String>;

/// Words in the messages with which an API server or a webhook refuses a request for lack of
/// permission, and not for an invalid object.
const REFUSALS: [&str; 2] = ["Forbidden", "forbidden"];

/// Whether permissions are not enforced, to see what each attack gets then.
pub fn is_permitted() -> bool {
    std::env::var("ATTACKS").is_ok_and(|value| value == "off")
}

/// The mode of the chart in which everything is attacked.
pub fn mode() -> &'static str {
    if is_permitted() { "off" } else { "enforce" }
}

/// A user of a cluster.
#[derive(Clone, Copy)]
pub struct Attacker<'a> {
    cluster: &'a Cluster,
    user: &'a str,
}

impl<'a> Attacker<'a> {
    /// The user called `user` of `cluster`.
    pub fn new(cluster: &'a Cluster, user: &'a str) -> Self {
        Self { cluster, user }
    }

    /// Runs kubectl as the user; returns whether it succeeded, and all output.
    pub async fn output(&self, arguments: &[&str], stdin: &str) -> (bool, String) {
        let arguments = [arguments, &["--as", self.user][..]].concat();
        self.cluster.kubectl_output(&arguments, stdin).await
    }

    /// Runs kubectl as the user. An error is a failure that has nothing to do with permissions: it
    /// would look like a prevented attack.
    pub async fn kubectl(&self, arguments: &[&str], stdin: &str) -> Result<Attempt> {
        self.attempt(self.output(arguments, stdin).await, &arguments.join(" "))
    }

    /// Applies `object` as the user.
    pub async fn apply(&self, object: &Value) -> Result<Attempt> {
        let terms = Terms { is_dry_run: false, user: Some((self.user, &[])) };
        self.attempt(self.cluster.try_apply(object, terms).await, "apply")
    }

    fn attempt(&self, (is_admitted, output): (bool, String), what: &str) -> Result<Attempt> {
        if is_admitted {
            return Ok(Ok(output));
        }
        let refusal = output.lines().find(|line| REFUSALS.iter().any(|word| line.contains(word)));
        match refusal {
            Some(refusal) => Ok(Err(refusal.to_owned())),
            None => Err(format!("{}: kubectl {what}: {output}", self.user).into()),
        }
    }
}

/// A Role called `name` in `namespace` with one rule, and its binding to `user`.
pub fn role(name: &str, namespace: &str, rule: &Value, user: &str) -> [Value; 2] {
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": {"name": name, "namespace": namespace}, "rules": [rule]});
    let mut bound = binding(name, namespace, &[user]);
    bound["roleRef"]["kind"] = json!("Role");
    [role, bound]
}

/// The rule that permits to use the ClusterProfile `name`.
pub fn to_use(name: &str) -> Value {
    json!({"apiGroups": ["multicluster.x-k8s.io"], "resources": ["clusterprofiles"], "resourceNames": [name], "verbs": ["use"]})
}
