//! Derives from a ClusterProfile and the provider file how to connect to a spoke. Pure.

use std::collections::BTreeMap;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::Uri;
use knative_operator_shared::api::cluster_profile::{AccessCluster, AccessProvider};
use knative_operator_shared::api::{ClusterProfile, ClusterProfileReference};
use knative_operator_shared::reason::Reason;
use knative_operator_shared::rules::name_violation;
use serde_json::{Value, json};

use super::address::{self, Proxy};
use super::provider::{ArgsPolicy, Builtin, EnvPolicy, ExecConfig, Provider, Providers};
use super::unresolved::Unresolved;

const EXEC_EXTENSION: &str = "client.authentication.k8s.io/exec";
const ARGS_EXTENSION: &str = "clusterprofiles.multicluster.x-k8s.io/exec/additional-args";
const ENV_EXTENSION: &str = "clusterprofiles.multicluster.x-k8s.io/exec/additional-envs";

/// Everything that a connection to a spoke depends on: equal values may share a connection.
#[derive(Clone, Debug, PartialEq)]
pub struct Access {
    /// URL of the API server.
    pub server: Uri,
    /// Certificates of its authorities in PEM; `None` for the system's.
    pub authority: Option<Vec<u8>>,
    /// Name to verify its certificate against, if not the host of the URL.
    pub server_name: Option<String>,
    /// Whether to skip the verification of its certificate.
    pub insecure: bool,
    /// The proxy in between.
    pub proxy: Option<Proxy>,
    /// Source of the credential.
    pub source: CredentialSource,
}

/// Source of a credential.
#[derive(Clone, Debug, PartialEq)]
pub enum CredentialSource {
    /// A plugin.
    Plugin(Plugin),
    /// A Secret in the operator's namespace.
    Secret {
        /// Name of the provider, for messages.
        provider: String,
        /// Name of the Secret.
        name: String,
    },
}

impl CredentialSource {
    /// Name of the provider.
    pub fn provider(&self) -> &str {
        match self {
            Self::Plugin(plugin) => &plugin.provider,
            Self::Secret { provider, .. } => provider,
        }
    }
}

/// The command line of a credential plugin.
#[derive(Clone, Debug, PartialEq)]
pub struct Plugin {
    /// Name of the provider, for messages.
    pub provider: String,
    /// The executable.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Its environment, besides the operator's own.
    pub env: BTreeMap<String, String>,
    /// Its version of `ExecCredential`.
    pub api_version: String,
    /// Its input (`KUBERNETES_EXEC_INFO`).
    pub info: Value,
}

/// How to connect to the cluster of `profile` with `providers`. Each call starts with the arguments
/// of the file, so additional arguments of a profile don't accumulate.
pub fn access(
    reference: &ClusterProfileReference,
    profile: &ClusterProfile,
    providers: &Providers,
) -> Result<Access, Unresolved> {
    let status = profile.status.as_ref();
    let healthy = status.and_then(|s| s.conditions.iter().find(|c| c.type_ == "ControlPlaneHealthy"));
    if healthy.is_none_or(|c| c.status != "True") {
        let why = match healthy {
            None => "has no condition ControlPlaneHealthy".to_owned(),
            Some(c) if c.message.is_empty() => format!("has ControlPlaneHealthy={}", c.status),
            Some(c) => format!("has ControlPlaneHealthy={}: {}", c.status, c.message),
        };
        return Err(Unresolved::new(
            Reason::ClusterProfileNotReady,
            format!("ClusterProfile {reference} {why}; its cluster manager has to set it to True"),
        ));
    }
    if providers.providers.is_empty() {
        return Err(Unresolved::new(
            Reason::AccessProviderNotConfigured,
            "the provider file of the operator names no provider; add one to accessProvidersConfig.providers",
        ));
    }
    let offered = offered_providers(profile);
    if offered.is_empty() {
        return Err(Unresolved::new(
            Reason::ClusterProfileUnavailable,
            format!("ClusterProfile {reference} has no status.accessProviders; its cluster manager has to publish one"),
        ));
    }
    let chosen = providers.providers.iter().find_map(|p| offered.get(p.name.as_str()).map(|o| (p, *o)));
    let Some((provider, accessor)) = chosen else {
        let (known, has) = (
            providers.providers.iter().map(|p| p.name.as_str()).collect::<Vec<_>>().join(", "),
            offered.keys().copied().collect::<Vec<_>>().join(", "),
        );
        return Err(Unresolved::new(
            Reason::ClusterProfileUnavailable,
            format!(
                "ClusterProfile {reference} offers the access providers {has}, and the operator's provider file knows {known}; they need one in common"
            ),
        ));
    };
    let invalid = |what: &str, why: String| {
        Unresolved::new(Reason::RemoteClientCreationFailed, format!("ClusterProfile {reference}: {what} {why}"))
    };
    let cluster = &accessor.cluster;
    let server = address::server(&cluster.server).map_err(|why| invalid("server", why))?;
    let proxy = cluster.proxy_url.as_deref().filter(|url| !url.is_empty()).map(address::proxy).transpose();
    let proxy = proxy.map_err(|why| invalid("proxy-url", why))?;
    let authority = match cluster.certificate_authority_data.as_deref().filter(|d| !d.is_empty()) {
        None => None,
        Some(data) => Some(
            BASE64_STANDARD
                .decode(data)
                .map_err(|e| invalid("certificate-authority-data", format!("is not base64: {e}")))?,
        ),
    };
    Ok(Access {
        server,
        authority,
        server_name: cluster.tls_server_name.clone().filter(|n| !n.is_empty()),
        insecure: cluster.insecure_skip_tls_verify,
        proxy,
        source: source(reference, provider, cluster)?,
    })
}

/// The access providers of a profile by name; the deprecated field counts for names that the new
/// one lacks.
fn offered_providers(profile: &ClusterProfile) -> BTreeMap<&str, &AccessProvider> {
    let Some(status) = &profile.status else { return BTreeMap::new() };
    status.credential_providers.iter().chain(&status.access_providers).map(|p| (p.name.as_str(), p)).collect()
}

fn source(
    reference: &ClusterProfileReference,
    provider: &Provider,
    cluster: &AccessCluster,
) -> Result<CredentialSource, Unresolved> {
    let Some(Builtin::SecretReader) = provider.builtin else {
        return plugin(reference, provider, cluster).map(CredentialSource::Plugin);
    };
    let failed = |why: &str| {
        let subject = format!("ClusterProfile {reference}: extension {EXEC_EXTENSION}");
        Unresolved::new(Reason::AccessProviderFailed, format!("access provider {}: {subject} {why}", provider.name))
    };
    let config = cluster.extensions.iter().find(|e| e.name == EXEC_EXTENSION).map(|e| &e.extension);
    let name = config.and_then(|c| c["clusterName"].as_str()).filter(|name| !name.is_empty());
    let name = name.ok_or_else(|| failed("has no clusterName, which names the Secret to read"))?;
    // It becomes part of the path of a request.
    if let Some(why) = name_violation(name) {
        return Err(failed(&format!("has a clusterName that names no Secret: it {why}")));
    }
    Ok(CredentialSource::Secret { provider: provider.name.clone(), name: name.to_owned() })
}

fn plugin(
    reference: &ClusterProfileReference,
    provider: &Provider,
    cluster: &AccessCluster,
) -> Result<Plugin, Unresolved> {
    let failed = |why: String| {
        Unresolved::new(Reason::AccessProviderFailed, format!("access provider {}: {why}", provider.name))
    };
    let exec = provider.exec_config.as_ref().filter(|e| !e.command.is_empty());
    let exec =
        exec.ok_or_else(|| failed("the provider file gives it neither execConfig.command nor builtin".to_owned()))?;
    if !matches!(exec.api_version.as_str(), "client.authentication.k8s.io/v1" | "client.authentication.k8s.io/v1beta1")
    {
        return Err(failed(format!(
            "execConfig.apiVersion \"{}\" is neither client.authentication.k8s.io/v1 nor …/v1beta1",
            exec.api_version
        )));
    }
    let extension = |name: &str| cluster.extensions.iter().find(|e| e.name == name).map(|e| &e.extension);
    let mut args = exec.args.clone().unwrap_or_default();
    if let Some(additional) = extension(ARGS_EXTENSION).filter(|_| provider.args_policy == ArgsPolicy::Append) {
        let additional: Vec<String> = serde_json::from_value(additional.clone()).map_err(|e| {
            failed(format!("ClusterProfile {reference}: extension {ARGS_EXTENSION} is not a list of strings: {e}"))
        })?;
        args.extend(additional);
    }
    let mut env: BTreeMap<String, String> =
        exec.env.iter().flatten().map(|v| (v.name.clone(), v.value.clone())).collect();
    if let Some(additional) = extension(ENV_EXTENSION).filter(|_| provider.env_policy != EnvPolicy::Ignore) {
        let additional: BTreeMap<String, String> = serde_json::from_value(additional.clone()).map_err(|e| {
            failed(format!("ClusterProfile {reference}: extension {ENV_EXTENSION} is not a map of strings: {e}"))
        })?;
        for (name, value) in additional {
            match provider.env_policy {
                EnvPolicy::Replace => drop(env.insert(name, value)),
                _ => drop(env.entry(name).or_insert(value)),
            }
        }
    }
    let info = info(exec, cluster, extension(EXEC_EXTENSION));
    Ok(Plugin {
        provider: provider.name.clone(),
        command: exec.command.clone(),
        args,
        env,
        api_version: exec.api_version.clone(),
        info,
    })
}

/// `KUBERNETES_EXEC_INFO` as `client.authentication.k8s.io` defines it.
fn info(exec: &ExecConfig, cluster: &AccessCluster, config: Option<&Value>) -> Value {
    let mut spec = json!({"interactive": false});
    if exec.provide_cluster_info {
        let mut described = json!({"server": cluster.server});
        let optional = [
            ("tls-server-name", cluster.tls_server_name.as_ref().map(|v| json!(v))),
            ("insecure-skip-tls-verify", cluster.insecure_skip_tls_verify.then_some(json!(true))),
            ("certificate-authority-data", cluster.certificate_authority_data.as_ref().map(|v| json!(v))),
            ("proxy-url", cluster.proxy_url.as_ref().map(|v| json!(v))),
            ("config", config.cloned()),
        ];
        for (key, value) in optional {
            if let Some(value) = value {
                described[key] = value;
            }
        }
        spec["cluster"] = described;
    }
    json!({"apiVersion": exec.api_version, "kind": "ExecCredential", "spec": spec})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reference() -> ClusterProfileReference {
        ClusterProfileReference { name: "spoke".into(), namespace: "fleet".into() }
    }

    fn profile(status: &Value) -> ClusterProfile {
        serde_json::from_value(json!({"apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ClusterProfile", "metadata": {"name": "spoke"}, "spec": {}, "status": status})).unwrap()
    }

    fn providers(file: &Value) -> Providers {
        serde_json::from_value(file.clone()).unwrap()
    }

    fn file(extra: &Value) -> Providers {
        let mut provider = json!({"name": "b", "execConfig": {"apiVersion": "client.authentication.k8s.io/v1", "command": "/p", "args": ["own"], "env": [{"name": "A", "value": "own"}], "provideClusterInfo": true}});
        provider.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        providers(
            &json!({"providers": [{"name": "a", "execConfig": {"apiVersion": "client.authentication.k8s.io/v1", "command": "/a"}}, provider]}),
        )
    }

    fn healthy(access: &Value) -> Value {
        json!({"conditions": [{"type": "ControlPlaneHealthy", "status": "True"}], "accessProviders": access})
    }

    fn accessor(name: &str) -> Value {
        json!([{"name": name, "cluster": {"server": "https://h:1", "certificate-authority-data": "QQ==", "extensions": [
            {"name": EXEC_EXTENSION, "extension": {"clusterName": "c"}},
            {"name": ARGS_EXTENSION, "extension": ["more"]},
            {"name": ENV_EXTENSION, "extension": {"A": "theirs", "B": "theirs"}},
        ]}}])
    }

    #[test]
    fn each_failure_has_its_reason() {
        let unhealthy =
            json!({"conditions": [{"type": "ControlPlaneHealthy", "status": "False", "message": "on fire"}]});
        let two = file(&json!({}));
        for (status, providers, reason, part) in [
            (json!({}), &two, Reason::ClusterProfileNotReady, "no condition ControlPlaneHealthy"),
            (unhealthy, &two, Reason::ClusterProfileNotReady, "on fire"),
            (healthy(&accessor("a")), &Providers::default(), Reason::AccessProviderNotConfigured, "names no provider"),
            (healthy(&json!([])), &two, Reason::ClusterProfileUnavailable, "no status.accessProviders"),
            (healthy(&accessor("z")), &two, Reason::ClusterProfileUnavailable, "knows a, b"),
            (
                healthy(&json!([{"name": "a", "cluster": {"server": "nonsense"}}])),
                &two,
                Reason::RemoteClientCreationFailed,
                "is not a URL",
            ),
            (
                healthy(&json!([{"name": "a", "cluster": {"server": "https://h", "certificate-authority-data": "!"}}])),
                &two,
                Reason::RemoteClientCreationFailed,
                "base64",
            ),
        ] {
            let error = access(&reference(), &profile(&status), providers).unwrap_err();
            assert_eq!(error.reason, reason, "{error}");
            assert!(error.message.contains(part), "{error}");
        }
    }

    #[test]
    fn builtin_provider_reads_secret_named_by_profile() {
        let own = providers(&json!({"providers": [{"name": "b", "builtin": "secretreader"}]}));
        let source = access(&reference(), &profile(&healthy(&accessor("b"))), &own).unwrap().source;
        assert_eq!(source, CredentialSource::Secret { provider: "b".to_owned(), name: "c".to_owned() });
        let nameless = json!([{"name": "b", "cluster": {"server": "https://h"}}]);
        let error = access(&reference(), &profile(&healthy(&nameless)), &own).unwrap_err();
        assert!(error.reason == Reason::AccessProviderFailed && error.message.contains("clusterName"), "{error}");
        for path in ["../../kube-system/secrets/c", "c/status", "c?watch=1", "c%2F", "C"] {
            let mut invalid = accessor("b");
            invalid[0]["cluster"]["extensions"][0]["extension"]["clusterName"] = json!(path);
            let error = access(&reference(), &profile(&healthy(&invalid)), &own).unwrap_err();
            assert!(error.message.contains("that names no Secret"), "{path}: {error}");
        }
    }

    #[test]
    fn provider_file_decides_order_and_deprecated_field_is_read() {
        let mut both = accessor("b");
        both.as_array_mut().unwrap().extend(accessor("a").as_array().unwrap().clone());
        assert_eq!(access(&reference(), &profile(&healthy(&both)), &file(&json!({}))).unwrap().source.provider(), "a");
        let old = json!({"conditions": [{"type": "ControlPlaneHealthy", "status": "True"}], "credentialProviders": accessor("b")});
        assert_eq!(access(&reference(), &profile(&old), &file(&json!({}))).unwrap().source.provider(), "b");
    }

    #[test]
    fn profile_additions_follow_policies() {
        let plugin = |extra: &Value| match access(&reference(), &profile(&healthy(&accessor("b"))), &file(extra))
            .unwrap()
            .source
        {
            CredentialSource::Plugin(plugin) => plugin,
            CredentialSource::Secret { .. } => unreachable!("a plugin is configured"),
        };
        let env = |plugin: &Plugin| plugin.env.iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>();
        let ignored = plugin(&json!({}));
        assert_eq!((ignored.args.clone(), env(&ignored)), (vec!["own".to_owned()], vec!["A=own".to_owned()]));
        let appended = plugin(
            &json!({"profileSourcedCLIArgsPolicy": "Append", "profileSourcedEnvVarsPolicy": "AppendIfNotExists"}),
        );
        assert_eq!(
            (appended.args.clone(), env(&appended)),
            (vec!["own".to_owned(), "more".to_owned()], vec!["A=own".to_owned(), "B=theirs".to_owned()])
        );
        assert_eq!(env(&plugin(&json!({"profileSourcedEnvVarsPolicy": "Replace"}))), ["A=theirs", "B=theirs"]);
        assert_eq!(ignored.info["spec"]["cluster"]["config"]["clusterName"], "c");
    }
}
