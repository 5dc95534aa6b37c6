//! The built-in providers find the credential that the official plugins find, or refuse the same
//! Secret. The plugins are those that cluster-inventory-api publishes.

use std::process::Command;
use std::time::Duration;

use base64::{Engine, prelude::BASE64_STANDARD};
use knative_operator_cluster_access::profile::{self, CredentialSource};
use knative_operator_cluster_access::provider::Providers;
use knative_operator_cluster_access::secret::SecretReader;
use knative_operator_cluster_access::{Annotations, ClusterProfile};
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::{Result, tools};
use secrecy::ExposeSecret;
use serde_json::{Value, json};

use crate::support::{apply, run};

const V1: &str = "client.authentication.k8s.io/v1";
const EXEC: &str = "client.authentication.k8s.io/exec";
/// Time limit of a request.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Token, certificate and key; `None` if the Secret was refused.
type Found = Option<[String; 3]>;

/// What the official plugin `name` finds on `hub`, whose program reads Secrets in `default`.
fn by_plugin(hub: &Cluster, name: &str, config: &Value) -> Result<(Found, String)> {
    let cluster = json!({"server": "https://h:1", "config": config});
    let info = json!({"apiVersion": V1, "kind": "ExecCredential", "spec": {"interactive": false, "cluster": cluster}});
    let mut command = Command::new(tools::control_plane(&format!("{name}-plugin"))?);
    command.env("KUBECONFIG", hub.kubeconfig()).env("KUBERNETES_EXEC_INFO", info.to_string());
    let output = command.env_remove("KUBERNETES_SERVICE_HOST").output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        return Ok((None, said));
    }
    let credential: Value = serde_json::from_slice(&output.stdout)?;
    let status = &credential["status"];
    let text = |field: &str| status[field].as_str().unwrap_or_default().to_owned();
    Ok((Some([text("token"), text("clientCertificateData"), text("clientKeyData")]), said))
}

/// What the built-in provider `name` finds, and why it refused the Secret.
async fn by_builtin(hub: &Cluster, name: &str, config: &Value) -> Result<(Found, String)> {
    let providers: Providers = serde_json::from_value(json!({"providers": [{"name": "p", "builtin": name}]}))?;
    let cluster = json!({"server": "https://h:1", "extensions": [{"name": EXEC, "extension": config}]});
    let object = json!({"apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ClusterProfile",
        "metadata": {"name": "east", "namespace": "fleet"}, "spec": {},
        "status": {"accessProviders": [{"name": "p", "cluster": cluster}]}});
    let profile = ClusterProfile::read(&serde_json::from_value(object)?);
    let reference = profile.reference();
    let access = match profile::access(&reference, &profile, &providers, false) {
        Ok(access) => access,
        Err(refused) => return Ok((None, refused.message)),
    };
    let CredentialSource::Secret(source) = &access.source else { return Err("it is built in".into()) };
    let annotations = Annotations {
        profiles: "example.com/cluster-profile",
        servers: "example.com/server",
        sent_to: "example.com/sent-to",
    };
    let (hub, namespace) = (hub.client(), "default".to_owned());
    let reader = SecretReader { hub, namespace, requires_binding: false, annotations, program: "example" };
    let (credential, _) = match reader.read(source, &reference, &access, TIMEOUT).await {
        Ok(found) => found,
        Err(refused) => return Ok((None, refused.message)),
    };
    let token = credential.token.map(|token| token.expose_secret().to_owned()).unwrap_or_default();
    let identity = credential.identity.map(|(certificate, key)| (certificate, key.expose_secret().to_owned()));
    let (certificate, key) = identity.unwrap_or_default();
    Ok((Some([token, certificate, key]), String::new()))
}

/// Metadata of a Secret for the ClusterProfile.
fn secret(name: &str) -> Value {
    json!({"name": name, "namespace": "default", "annotations": {"example.com/cluster-profile": "fleet/east"}})
}

/// A kubeconfig with `user` in its current context, and a second context with the token `second`.
fn kubeconfig(user: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Config", "current-context": "first",
        "clusters": [{"name": "c", "cluster": {"server": "https://h:1"}}],
        "contexts": [{"name": "first", "context": {"cluster": "c", "user": "u"}},
            {"name": "second", "context": {"cluster": "c", "user": "v"}},
            {"name": "lost", "context": {"cluster": "c", "user": "nobody"}}],
        "users": [{"name": "u", "user": user}, {"name": "v", "user": {"token": "second"}}]})
}

/// Name of a case, text under the key `value` of its Secret, and what the plugin should find.
type Case = (&'static str, String, Option<[&'static str; 3]>);

fn kubeconfigs() -> Vec<Case> {
    let data = |text: &str| BASE64_STANDARD.encode(text);
    let (certificate, key) = ("-----BEGIN CERTIFICATE-----\n", "-----BEGIN PRIVATE KEY-----\n");
    let token = json!({"token": "t"});
    let identity = json!({"client-certificate-data": data(certificate), "client-key-data": data(key)});
    let mut both = identity.clone();
    both["token"] = json!("t");
    let with = |user: &Value, field: &str, value: Value| {
        let mut config = kubeconfig(user);
        config[field] = value;
        config.to_string()
    };
    let of = |user: &Value| kubeconfig(user).to_string();
    let exec = json!({"exec": {"apiVersion": V1, "command": "aws", "interactiveMode": "Never"}});
    vec![
        ("token", of(&token), Some(["t", "", ""])),
        ("identity", of(&identity), Some(["", certificate, key])),
        ("both", of(&both), Some(["t", certificate, key])),
        ("exec", of(&exec), None),
        ("password", of(&json!({"username": "a", "password": "b"})), None),
        ("files", of(&json!({"client-certificate": "/a", "client-key": "/b"})), None),
        ("no-key", of(&json!({"client-certificate-data": data(certificate)})), None),
        ("no-certificate", of(&json!({"client-key-data": data(key)})), None),
        ("not-base64", of(&json!({"client-certificate-data": "!", "client-key-data": "!"})), None),
        ("no-context", with(&token, "current-context", json!("")), None),
        ("other-context", with(&token, "current-context", json!("missing")), None),
        ("lost-user", with(&token, "current-context", json!("lost")), None),
        ("extensions", with(&token, "extensions", json!([{"name": "e", "extension": {"a": "b"}}])), None),
        ("no-yaml", "users: [".to_owned(), None),
    ]
}

#[test]
fn builtin_providers_find_what_the_official_plugins_find() {
    run(async {
        let hub = Cluster::hub("builtin-providers").await?;
        let mut cases = Vec::new();
        for (name, text, expected) in kubeconfigs() {
            let meta = secret(name);
            let data = json!({"value": text, "token": "of-secretreader"});
            apply(&hub, &json!({"apiVersion": "v1", "kind": "Secret", "metadata": meta, "stringData": data})).await?;
            cases.push(("kubeconfig-secretreader", json!({"name": name, "key": "value"}), expected));
        }
        apply(&hub, &json!({"apiVersion": "v1", "kind": "Secret", "metadata": secret("empty")})).await?;
        let reads = "kubeconfig-secretreader";
        cases.extend([
            (reads, json!({"name": "token", "key": "value", "namespace": "default"}), Some(["t", "", ""])),
            (reads, json!({"name": "token", "key": "value", "context": "second"}), Some(["second", "", ""])),
            (reads, json!({"name": "token", "key": "value", "context": "missing"}), None),
            (reads, json!({"name": "token", "key": "other"}), None),
            (reads, json!({"name": "missing", "key": "value"}), None),
            (reads, json!({"name": "token"}), None),
            (reads, json!({"key": "value"}), None),
            (reads, json!({"name": "../token", "key": "value"}), None),
            ("secretreader", json!({"clusterName": "token"}), Some(["of-secretreader", "", ""])),
            ("secretreader", json!({"clusterName": "empty"}), None),
            ("secretreader", json!({"clusterName": "missing"}), None),
            ("secretreader", json!({}), None),
        ]);
        for (provider, config, expected) in cases {
            let expected = expected.map(|parts| parts.map(str::to_owned));
            let (plugin, said) = by_plugin(&hub, provider, &config)?;
            let (builtin, refused) = by_builtin(&hub, provider, &config).await?;
            println!("{provider} {config}: {}\n  plugin: {}\n  built in: {refused}", expected.is_some(), said.trim());
            assert_eq!(plugin, expected, "{provider} {config}: {said}");
            assert_eq!(builtin, expected, "{provider} {config}: {refused}");
        }
        Ok(())
    });
}
