//! A ClusterProfile gets the credential of a Secret that names it, for the server that the Secret
//! names. Other authors of ClusterProfiles, who name the Secret and a server of their own, don't.

use std::time::Duration;

use base64::{Engine, prelude::BASE64_STANDARD};
use k8s_openapi::api::core::v1::Event;
use knative_operator_shared::api::{Component, KnativeStatus};
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::https::{Answer, Server};
use knative_operator_tests::pki::Authority;
use knative_operator_tests::product::{self, FLEET, NAMESPACE, Product};
use knative_operator_tests::{Result, releases, tools, wait};
use kube::Api;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{apply, condition, has_condition, namespace, nothing_to_install, resource, run, status};

const LIMIT: Duration = wait::LIMIT;
/// Namespace in which a tenant may write ClusterProfiles.
const TENANT: &str = "tenant";

/// A resource for ClusterProfile `name` in `place`.
fn asking(place: &str, name: &str) -> Value {
    let own_name = format!("{place}-{name}");
    let mut asking = resource(Component::Eventing, "credentials", &own_name, None, nothing_to_install());
    asking["spec"]["clusterProfileRef"] = json!({"name": name, "namespace": place});
    asking
}

/// Access to `server` by the built-in provider, with the token in Secret `secret`.
fn access(server: &str, authority: &str, secret: &str) -> Value {
    json!([{"name": "builtin", "cluster": {
        "server": server,
        "certificate-authority-data": BASE64_STANDARD.encode(authority),
        "extensions": [{"name": "client.authentication.k8s.io/exec", "extension": {"clusterName": secret}}],
    }}])
}

async fn resolved(hub: &Cluster, resource: &Value) -> Result<()> {
    let resolved = |s: &KnativeStatus| condition(s, "TargetClusterResolved").is_some_and(|c| c.status == "True");
    status(hub, resource, LIMIT, "resolved", resolved).await.map(drop)
}

async fn refused(hub: &Cluster, resource: &Value, reason: &str, part: &str) -> Result<()> {
    has_condition(hub, resource, "TargetClusterResolved", reason, part).await
}

/// Waits for the warning about a Secret that names no ClusterProfile; returns the command in it.
async fn command_of_warning(hub: &Cluster) -> Result<String> {
    let events = Api::<Event>::namespaced(hub.client(), "credentials");
    let command = |event: &Event| {
        let message = event.message.as_deref().filter(|_| event.reason.as_deref() == Some("SecretUnbound"))?;
        message.split("bind it: ").nth(1).map(str::to_owned)
    };
    let is_there = |all: &[Event]| all.iter().any(|event| command(event).is_some());
    let all = wait::until_all(&events, "", LIMIT, "SecretUnbound", is_there).await?;
    all.iter().find_map(command).ok_or_else(|| "no command".into())
}

/// Refuses Secrets that name no ClusterProfile, and the ClusterProfiles of tenants.
async fn restrict(hub: &Cluster, product: &mut Product) -> Result<()> {
    let chart = tools::project().join("charts/knative-operator").display().to_string();
    let file = hub.dir().join("values.json").display().to_string();
    let namespaces = format!(r#"knative_operator.multicluster.profileNamespaces=["{FLEET}"]"#);
    let arguments = [
        "upgrade",
        "knative-operator",
        &chart,
        "--namespace",
        NAMESPACE,
        "--values",
        &file,
        "--set",
        "knative_operator.multicluster.requireBoundSecrets=true",
        "--set-json",
        &namespaces,
        "--wait",
        "--timeout",
        "2m",
    ];
    hub.helm(&arguments).await?;
    product.restart_operator(hub, Signal::TERM).await
}

#[test]
fn credential_is_given_to_profiles_and_servers_of_its_secret() {
    run(async {
        let (hub, spoke) = tokio::try_join!(Cluster::hub("credentials"), Cluster::spoke("credentials-spoke"))?;
        let (releases, plugins) = (releases::small(), tempfile::tempdir()?);
        let values = product::values(&[json!({"name": "builtin", "builtin": "secretreader"})]);
        let mut product = Product::install(&hub, &releases, values, plugins.path()).await?;
        for name in ["credentials", TENANT] {
            namespace(&hub, name).await?;
        }
        let authority = Authority::new("tenant")?;
        let theirs = Server::start(&authority, |_, _| Answer::With("403 Forbidden", Vec::new(), Vec::new()))?;
        let (url, pem) = spoke.pod_endpoint();
        let ours = |secret: &str| access(&url, &pem, secret);
        let away = |secret: &str| access(&theirs.url(""), &authority.pem(), secret);

        // The Secret of prod names its ClusterProfile. A tenant gives another one the same name.
        product::register(&hub, &spoke, "prod").await?;
        product::profile(&hub, "prod", &ours("prod")).await?;
        product::profile_in(&hub, TENANT, "prod", &away("prod")).await?;
        let (prod, of_tenant) = (asking(FLEET, "prod"), asking(TENANT, "prod"));
        apply(&hub, &prod).await?;
        apply(&hub, &of_tenant).await?;
        resolved(&hub, &prod).await?;
        refused(&hub, &of_tenant, "CredentialNotBound", "is not bound to ClusterProfile tenant/prod").await?;

        // It is sent to the first server only, until an administrator permits another one.
        product::status_in(&hub, FLEET, "prod", "True", &away("prod")).await?;
        refused(&hub, &prod, "CredentialNotBound", "was sent to another server").await?;
        product::status_in(&hub, FLEET, "prod", "True", &ours("prod")).await?;
        resolved(&hub, &prod).await?;

        // It names the server, too. The ClusterProfile moves to another one, and back.
        let server = format!("operator.knative.dev/server={url}");
        hub.kubectl(&["annotate", "secret", "prod", "-n", NAMESPACE, &server], "").await?;
        product::status_in(&hub, FLEET, "prod", "True", &away("prod")).await?;
        refused(&hub, &prod, "CredentialNotBound", "is not bound to the server").await?;
        product::status_in(&hub, FLEET, "prod", "True", &ours("prod")).await?;
        resolved(&hub, &prod).await?;

        // A Secret of an earlier version names nothing. Its credential stays with its first server.
        let token = spoke.token("kube-system", "knative-hub", 24 * 3600).await?;
        let meta = json!({"name": "old", "namespace": NAMESPACE});
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": meta, "stringData": {"token": token}});
        apply(&hub, &secret).await?;
        product::profile(&hub, "old", &ours("old")).await?;
        let old = asking(FLEET, "old");
        apply(&hub, &old).await?;
        resolved(&hub, &old).await?;
        let command = command_of_warning(&hub).await?;
        product::profile_in(&hub, TENANT, "old", &away("old")).await?;
        let old_of_tenant = asking(TENANT, "old");
        apply(&hub, &old_of_tenant).await?;
        refused(&hub, &old_of_tenant, "CredentialNotBound", "was sent to another server before").await?;
        product::status_in(&hub, FLEET, "old", "True", &away("old")).await?;
        refused(&hub, &old, "CredentialNotBound", "was sent to another server before").await?;
        product::status_in(&hub, FLEET, "old", "True", &ours("old")).await?;
        resolved(&hub, &old).await?;

        // With all restrictions, it is refused until somebody runs the command of the warning.
        restrict(&hub, &mut product).await?;
        refused(&hub, &old, "CredentialNotBound", "does not name ClusterProfile fleet-system/old").await?;
        for one in [&of_tenant, &old_of_tenant] {
            refused(&hub, one, "ClusterProfileNotPermitted", "namespace tenant is not permitted").await?;
        }
        hub.kubectl(&command.split(' ').skip(1).collect::<Vec<_>>(), "").await?;
        resolved(&hub, &old).await?;
        // The other one is connected again, too.
        product::status_in(&hub, FLEET, "prod", "False", &ours("prod")).await?;
        refused(&hub, &prod, "ClusterProfileNotReady", "").await?;
        product::status_in(&hub, FLEET, "prod", "True", &ours("prod")).await?;
        resolved(&hub, &prod).await?;

        let received = theirs.requests();
        assert!(received.is_empty(), "the server of the tenant received {received:?}");
        Ok(())
    });
}
