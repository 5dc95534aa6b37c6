//! Derives from a ClusterProfile and the provider file how to connect to a spoke. Pure.

use std::collections::BTreeMap;
use std::fmt::Display;

use base64::prelude::BASE64_STANDARD;
use base64::{DecodeError, Engine};
use http::Uri;
use knative_operator_base::cluster_profile::{
    AccessCluster, AccessProvider, ClusterProfile, ClusterProfileReference, HEALTHY,
};
use serde_json::{Value, json};

use super::address::{self, AddressError, Proxy};
use super::builtin::SecretSource;
use super::error::{AccessError, Reason};
use super::provider::{ArgsPolicy, EXEC_EXTENSION, EnvPolicy, ExecConfig, Provider, Providers};

/// Names of an extension in KEP-5339: the current one, and the one before cluster-inventory-api
/// v0.1.0, which some producers still write. The first one that a profile has counts.
const ARGS_EXTENSIONS: [&str; 2] = [
    "clusterprofiles.multicluster.x-k8s.io/exec/additional-args",
    "multicluster.x-k8s.io/clusterprofiles/auth/exec/additional-args",
];
const ENV_EXTENSIONS: [&str; 2] = [
    "clusterprofiles.multicluster.x-k8s.io/exec/additional-envs",
    "multicluster.x-k8s.io/clusterprofiles/auth/exec/additional-envs",
];
/// Start of a PEM block, which base64 doesn't have.
const PEM: &str = "-----BEGIN ";

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

impl Access {
    /// Whether the server has no TLS: everybody on the way can read the credential.
    pub fn is_unencrypted(&self) -> bool {
        self.server.scheme_str() == Some("http")
    }

    /// Whether the certificate of the server is verified for another name than the host of its URL.
    pub fn has_other_name(&self) -> bool {
        self.server_name.as_deref().is_some_and(|name| Some(name) != self.server.host())
    }
}

/// Who else can get the credential that is sent to the cluster of `reference`.
pub fn insecurity(reference: &ClusterProfileReference, access: &Access) -> Option<String> {
    let server = &access.server;
    if access.is_unencrypted() {
        return Some(format!(
            "the server {server} in ClusterProfile {reference} has no TLS: everybody on the way can read the credential, and change what \
             is installed; use https"
        ));
    }
    access.insecure.then(|| {
        format!(
            "insecure-skip-tls-verify is set in ClusterProfile {reference}: any server that answers as {server} receives the credential; \
             set certificate-authority-data instead"
        )
    })
}

/// Source of a credential.
#[derive(Clone, Debug, PartialEq)]
pub enum CredentialSource {
    /// A plugin.
    Plugin(Plugin),
    /// A Secret that the program reads itself.
    Secret(SecretSource),
}

impl CredentialSource {
    /// Name of the provider.
    pub fn provider(&self) -> &str {
        match self {
            Self::Plugin(plugin) => &plugin.provider,
            Self::Secret(secret) => &secret.provider,
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
    /// Its environment, besides that of the program.
    pub env: BTreeMap<String, String>,
    /// Its version of `ExecCredential`.
    pub api_version: String,
    /// Its input (`KUBERNETES_EXEC_INFO`).
    pub info: Value,
}

/// How to connect to the cluster of `profile` with `providers`. Each call starts with the arguments
/// of the file, so additional arguments of a profile don't accumulate. `allows_http`: also to a
/// server without TLS.
pub fn access(
    reference: &ClusterProfileReference,
    profile: &ClusterProfile,
    providers: &Providers,
    allows_http: bool,
) -> Result<Access, AccessError> {
    check_health(reference, profile)?;
    let (provider, accessor) = choose(reference, profile, providers)?;
    let invalid = |what: &str, why: &dyn Display| {
        AccessError::new(Reason::RemoteClientCreationFailed, format!("ClusterProfile {reference}: {what} {why}"))
    };
    let cluster = &accessor.cluster;
    if cluster.server.is_empty() {
        return Err(AccessError::new(
            Reason::ClusterProfileUnavailable,
            format!(
                "ClusterProfile {reference}: access provider {} has no server; its cluster manager has to publish the URL of the API server",
                accessor.name
            ),
        ));
    }
    let server = address::server(&cluster.server, allows_http).map_err(|why| match why {
        AddressError::Unencrypted(_) => {
            AccessError::new(Reason::ServerWithoutTls, format!("ClusterProfile {reference}: server {why}"))
        }
        why => invalid("server", &why),
    })?;
    let has_tls_settings = cluster.certificate_authority_data.as_deref().is_some_and(|data| !data.is_empty())
        || cluster.tls_server_name.as_deref().is_some_and(|name| !name.is_empty());
    if server.scheme_str() == Some("http") && has_tls_settings {
        let why = "is http, but certificate-authority-data or tls-server-name is set; use https, or remove them";
        return Err(invalid("server", &why));
    }
    let proxy = cluster.proxy_url.as_deref().filter(|url| !url.is_empty()).map(address::proxy).transpose();
    let proxy = proxy.map_err(|why| invalid("proxy-url", &why))?;
    let data = cluster.certificate_authority_data.as_deref().filter(|data| !data.is_empty());
    let uses_authority = !cluster.insecure_skip_tls_verify && server.scheme_str() != Some("http");
    if uses_authority && data.is_none() && cluster.certificate_authority.as_deref().is_some_and(|file| !file.is_empty())
    {
        let why =
            "names a file, which the operator doesn't have; set certificate-authority-data to its content in base64";
        return Err(invalid("certificate-authority", &why));
    }
    let authority = data.map(authority).transpose();
    let authority = authority
        .map_err(|e| invalid("certificate-authority-data", &format_args!("is neither base64 nor PEM: {e}")))?;
    let source = source(reference, provider, cluster, authority.as_deref())?;
    Ok(Access {
        server,
        authority,
        server_name: cluster.tls_server_name.clone().filter(|n| !n.is_empty()),
        insecure: cluster.insecure_skip_tls_verify,
        proxy,
        source,
    })
}

/// Fails if the cluster of `profile` is not healthy, as its cluster manager says.
fn check_health(reference: &ClusterProfileReference, profile: &ClusterProfile) -> Result<(), AccessError> {
    let not_ready =
        |why: String| AccessError::new(Reason::ClusterProfileNotReady, format!("ClusterProfile {reference} {why}"));
    match profile.health() {
        Some(healthy) if healthy.status == "True" => Ok(()),
        Some(healthy) => {
            let message = if healthy.message.is_empty() { String::new() } else { format!(": {}", healthy.message) };
            let why = format!("has {HEALTHY}={}{message}; its cluster manager has to set it to True", healthy.status);
            Err(not_ready(why))
        }
        // Nobody vouches for the cluster, so the connection decides.
        None if profile.has_access() => Ok(()),
        None => Err(not_ready(format!(
            "has neither status.accessProviders nor the condition {HEALTHY}; its cluster manager has to publish them"
        ))),
    }
}

/// The first of `providers` that `profile` offers, and what the profile says about it.
fn choose<'a>(
    reference: &ClusterProfileReference,
    profile: &'a ClusterProfile,
    providers: &'a Providers,
) -> Result<(&'a Provider, &'a AccessProvider), AccessError> {
    if providers.providers.is_empty() {
        return Err(AccessError::new(Reason::AccessProviderNotConfigured, "the provider file names no provider"));
    }
    let offered = offered_providers(profile);
    if offered.is_empty() {
        return Err(AccessError::new(
            Reason::ClusterProfileUnavailable,
            format!(
                "ClusterProfile {reference} has no status.accessProviders; its cluster manager has to publish one \
                 (v1alpha2 of ClusterProfile has no credentialProviders)"
            ),
        ));
    }
    let chosen = providers.providers.iter().find_map(|p| offered.get(p.name.as_str()).map(|o| (p, *o)));
    chosen.ok_or_else(|| {
        let (known, has) = (
            providers.providers.iter().map(|p| p.name.as_str()).collect::<Vec<_>>().join(", "),
            offered.keys().copied().collect::<Vec<_>>().join(", "),
        );
        AccessError::new(
            Reason::ClusterProfileUnavailable,
            format!(
                "ClusterProfile {reference} offers the access providers {has}, and the provider file knows {known}; they need one in common"
            ),
        )
    })
}

/// The certificates in `data`, which is base64 of PEM, as in a kubeconfig, or the PEM itself, which
/// some producers write.
fn authority(data: &str) -> Result<Vec<u8>, DecodeError> {
    if data.contains(PEM) {
        return Ok(data.as_bytes().to_vec());
    }
    // As Go does, which ignores the line breaks of `base64`.
    let data: String = data.chars().filter(|c| !c.is_ascii_whitespace()).collect();
    BASE64_STANDARD.decode(data)
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
    authority: Option<&[u8]>,
) -> Result<CredentialSource, AccessError> {
    let Some(builtin) = provider.builtin else {
        return plugin(reference, provider, cluster, authority).map(CredentialSource::Plugin);
    };
    let config = cluster.extensions.iter().find(|e| e.name == EXEC_EXTENSION).map(|e| &e.extension);
    SecretSource::of(reference, provider, builtin, config).map(CredentialSource::Secret)
}

fn plugin(
    reference: &ClusterProfileReference,
    provider: &Provider,
    cluster: &AccessCluster,
    authority: Option<&[u8]>,
) -> Result<Plugin, AccessError> {
    let failed = |why: String| {
        AccessError::new(Reason::AccessProviderFailed, format!("access provider {}: {why}", provider.name))
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
    let named = |names: [&'static str; 2]| names.into_iter().find_map(|name| Some((name, extension(name)?)));
    let mut args = exec.args.clone().unwrap_or_default();
    if let Some((name, additional)) = named(ARGS_EXTENSIONS).filter(|_| provider.args_policy == ArgsPolicy::Append) {
        let additional: Vec<String> = serde_json::from_value(additional.clone()).map_err(|e| {
            failed(format!("ClusterProfile {reference}: extension {name} is not a list of strings: {e}"))
        })?;
        args.extend(additional);
    }
    let mut env: BTreeMap<String, String> =
        exec.env.iter().flatten().map(|v| (v.name.clone(), v.value.clone())).collect();
    if let Some((name, additional)) = named(ENV_EXTENSIONS).filter(|_| provider.env_policy != EnvPolicy::Ignore) {
        let additional: BTreeMap<String, String> = serde_json::from_value(additional.clone()).map_err(|e| {
            failed(format!("ClusterProfile {reference}: extension {name} is not a map of strings: {e}"))
        })?;
        for (name, value) in additional {
            match provider.env_policy {
                EnvPolicy::Replace => drop(env.insert(name, value)),
                _ => drop(env.entry(name).or_insert(value)),
            }
        }
    }
    let info = info(exec, cluster, authority, extension(EXEC_EXTENSION));
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
fn info(exec: &ExecConfig, cluster: &AccessCluster, authority: Option<&[u8]>, config: Option<&Value>) -> Value {
    let mut spec = json!({"interactive": false});
    if exec.provide_cluster_info {
        let mut described = json!({"server": cluster.server});
        let optional = [
            ("tls-server-name", cluster.tls_server_name.as_ref().map(|v| json!(v))),
            ("insecure-skip-tls-verify", cluster.insecure_skip_tls_verify.then_some(json!(true))),
            ("certificate-authority-data", authority.map(|v| json!(BASE64_STANDARD.encode(v)))),
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
mod tests;
