//! The built-in providers: which Secret has the credential, and what in it is the credential. They
//! read what the official plugins `secretreader` and `kubeconfig-secretreader` read
//! (<https://github.com/kubernetes-sigs/cluster-inventory-api>). Pure.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use knative_operator_base::cluster_profile::ClusterProfileReference;
use knative_operator_base::syntax;
use kube::config::{AuthInfo, Cluster, Kubeconfig};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;

use super::error::{AccessError, Reason};
use super::provider::{Builtin, EXEC_EXTENSION, Provider};

/// Data key of a token.
const TOKEN: &str = "token";

/// The Secret with the credential of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretSource {
    /// Name of the provider, for messages.
    pub provider: String,
    /// Namespace; `None` for that of the program.
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
    /// Data key.
    pub key: String,
    /// What is there.
    pub content: SecretContent,
}

/// What a Secret has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretContent {
    /// A token.
    Token,
    /// A kubeconfig.
    Kubeconfig {
        /// The context that the ClusterProfile names; `None` for the current one.
        context: Option<String>,
    },
}

impl SecretSource {
    /// The token in Secret `name` of the program's namespace.
    pub fn token(provider: &str, name: &str) -> Self {
        let (provider, name, key) = (provider.to_owned(), name.to_owned(), TOKEN.to_owned());
        Self { provider, namespace: None, name, key, content: SecretContent::Token }
    }

    /// Who reads it, for messages.
    pub fn reader(&self) -> &'static str {
        match self.content {
            SecretContent::Token => "built-in provider secretreader",
            SecretContent::Kubeconfig { .. } => "built-in provider kubeconfig-secretreader",
        }
    }

    /// The Secret that `builtin`, with the settings of `provider`, reads for the ClusterProfile
    /// `reference`; `config` is the extension of the profile.
    ///
    /// # Errors
    ///
    /// Neither names a valid Secret.
    pub fn of(
        reference: &ClusterProfileReference,
        provider: &Provider,
        builtin: Builtin,
        config: Option<&Value>,
    ) -> Result<Self, AccessError> {
        let failed = |why: &str| {
            let subject = format!("ClusterProfile {reference}: extension {EXEC_EXTENSION}");
            let message = format!("access provider {}: {subject} {why}", provider.name);
            AccessError::new(Reason::AccessProviderFailed, message)
        };
        let text = |field: &str| config.and_then(|config| config[field].as_str()).filter(|text| !text.is_empty());
        let filled = |template: Option<&str>| {
            let template = template.filter(|template| !template.is_empty())?;
            Some(template.replace("{namespace}", &reference.namespace).replace("{name}", &reference.name))
        };
        // What the file names is not for the author of a profile to change.
        let named = filled(provider.secret_name.as_deref());
        let of_profile = |field: &str| text(field).filter(|_| named.is_none()).map(str::to_owned);
        let field = if builtin == Builtin::SecretReader { "clusterName" } else { "name" };
        let name = named.clone().or_else(|| of_profile(field));
        let name = name.ok_or_else(|| failed(&format!("has no {field}, which names the Secret to read")))?;
        // It becomes part of the path of a request.
        if let Some(why) = syntax::subdomain(&name) {
            return Err(failed(&format!("has a {field} that names no Secret: it {why}")));
        }
        let (namespace, key, content) = match builtin {
            Builtin::SecretReader => (None, Some(TOKEN.to_owned()), SecretContent::Token),
            Builtin::KubeconfigSecretReader => {
                let context = of_profile("context");
                (of_profile("namespace"), of_profile("key"), SecretContent::Kubeconfig { context })
            }
        };
        let namespace = filled(provider.namespace.as_deref()).or(namespace);
        if let Some(why) = namespace.as_deref().and_then(syntax::label) {
            return Err(failed(&format!("has a namespace that is not valid: it {why}")));
        }
        let key = filled(provider.key.as_deref()).or(key);
        let key = key.ok_or_else(|| failed("has no key, which names the data key with the kubeconfig"))?;
        Ok(Self { provider: provider.name.clone(), namespace, name, key, content })
    }
}

/// A token, and a client certificate with its key, in PEM.
pub type Parts = (Option<SecretString>, Option<(String, SecretString)>);

/// Why a Secret has no credential. The text has nothing of the Secret but names of contexts and
/// users.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoCredential {
    /// It is not text.
    #[error("has no UTF-8 text")]
    NotText,
    /// It can't be parsed. The error of the parser could quote it.
    #[error("is not a kubeconfig")]
    NotKubeconfig,
    /// It has extensions.
    #[error("is a kubeconfig with extensions, which are not supported")]
    Extensions,
    /// No context is chosen.
    #[error("is a kubeconfig without current-context")]
    NoContext,
    /// There is no such context.
    #[error("is a kubeconfig without the context \"{0}\"")]
    MissingContext(String),
    /// The context is of another cluster than that of the ClusterProfile.
    #[error(
        "is a kubeconfig for several clusters, whose context \"{0}\" is for another server than that of the ClusterProfile, or one that a proxy or tls-server-name could replace; name the context of that server, or put a kubeconfig for one cluster into the Secret"
    )]
    OtherCluster(String),
    /// There is no such user.
    #[error("is a kubeconfig without the user \"{0}\"")]
    MissingUser(String),
    /// The user has one of them only.
    #[error("has a client certificate without its key, or a key without its certificate")]
    HalfIdentity,
    /// The user names files.
    #[error(
        "names files with a client certificate, which the program doesn't have; use client-certificate-data and client-key-data"
    )]
    Files,
    /// The data is not base64 of PEM.
    #[error("has a client certificate or key that is not base64 of PEM")]
    NotPem,
    /// The user runs a program.
    #[error(
        "gets its credential from a program (exec or auth-provider), which a Secret may not start; use execConfig of the provider file"
    )]
    Exec,
    /// The user has nothing that can be used.
    #[error("has neither a token nor a client certificate")]
    Nothing,
}

/// The credential in `bytes`, the value in a Secret. `is_of_profile` says whether a cluster of a
/// kubeconfig is that of the ClusterProfile.
pub fn credential(
    content: &SecretContent,
    is_of_profile: impl Fn(&Cluster) -> bool,
    bytes: Vec<u8>,
) -> Result<Parts, NoCredential> {
    let text = String::from_utf8(bytes).map_err(|_| NoCredential::NotText)?;
    match content {
        SecretContent::Token => Ok((Some(SecretString::from(text)), None)),
        SecretContent::Kubeconfig { context } => in_kubeconfig(&text, context.as_deref(), is_of_profile),
    }
}

fn in_kubeconfig(
    text: &str,
    chosen: Option<&str>,
    is_of_profile: impl Fn(&Cluster) -> bool,
) -> Result<Parts, NoCredential> {
    let config = Kubeconfig::from_yaml(text).map_err(|_| NoCredential::NotKubeconfig)?;
    if config.extensions.as_ref().is_some_and(|extensions| !extensions.is_empty()) {
        return Err(NoCredential::Extensions);
    }
    let current = config.current_context.as_deref();
    let name = chosen.or(current).filter(|name| !name.is_empty());
    let name = name.ok_or(NoCredential::NoContext)?;
    let context = config.contexts.iter().find(|context| context.name == name).and_then(|named| named.context.as_ref());
    let context = context.ok_or_else(|| NoCredential::MissingContext(shown(name)))?;
    // The author of the ClusterProfile must not send another cluster's credential to their own.
    // Who writes the Secret may give one cluster another address, such as that of a tunnel.
    let is_only =
        config.contexts.iter().filter_map(|named| named.context.as_ref()).all(|c| c.cluster == context.cluster);
    let cluster = config.clusters.iter().find(|cluster| cluster.name == context.cluster);
    if !is_only && !cluster.and_then(|named| named.cluster.as_ref()).is_some_and(is_of_profile) {
        return Err(NoCredential::OtherCluster(shown(name)));
    }
    let name = context.user.as_deref().unwrap_or_default();
    let user = config.auth_infos.iter().find(|user| user.name == name).and_then(|named| named.auth_info.as_ref());
    of_user(user.ok_or_else(|| NoCredential::MissingUser(shown(name)))?)
}

/// The beginning of a name in a kubeconfig.
fn shown(name: &str) -> String {
    name.chars().filter(|c| !c.is_control()).take(100).collect()
}

fn of_user(user: &AuthInfo) -> Result<Parts, NoCredential> {
    let is_set = |text: Option<&str>| text.is_some_and(|text| !text.is_empty());
    let exposed = |secret: &SecretString| secret.expose_secret().to_owned();
    let token = user.token.as_ref().map(exposed).filter(|token| !token.is_empty());
    let (certificate, key) = (user.client_certificate_data.clone(), user.client_key_data.as_ref().map(exposed));
    let has_data = (is_set(certificate.as_deref()), is_set(key.as_deref()));
    let has_certificate = has_data.0 || is_set(user.client_certificate.as_deref());
    let has_key = has_data.1 || is_set(user.client_key.as_deref());
    let identity = match (certificate, key) {
        _ if has_certificate != has_key => return Err(NoCredential::HalfIdentity),
        _ if !has_certificate => None,
        (Some(certificate), Some(key)) if has_data == (true, true) => {
            Some((pem(&certificate)?, SecretString::from(pem(&key)?)))
        }
        _ => return Err(NoCredential::Files),
    };
    if token.is_none() && identity.is_none() {
        let is_exec = user.exec.is_some() || user.auth_provider.is_some();
        return Err(if is_exec { NoCredential::Exec } else { NoCredential::Nothing });
    }
    Ok((token.map(SecretString::from), identity))
}

/// The PEM in `data`, which is base64 of it.
fn pem(data: &str) -> Result<String, NoCredential> {
    let data: String = data.chars().filter(|c| !c.is_ascii_whitespace()).collect();
    let bytes = BASE64_STANDARD.decode(data).map_err(|_| NoCredential::NotPem)?;
    String::from_utf8(bytes).ok().filter(|text| text.contains("-----BEGIN ")).ok_or(NoCredential::NotPem)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(provider: &Value, config: Option<&Value>) -> Result<SecretSource, AccessError> {
        let mut settings = json!({"name": "p"});
        settings.as_object_mut().unwrap().extend(provider.as_object().unwrap().clone());
        let provider: Provider = serde_json::from_value(settings).unwrap();
        let reference = ClusterProfileReference { name: "east".to_owned(), namespace: "fleet".to_owned() };
        SecretSource::of(&reference, &provider, provider.builtin.unwrap(), config)
    }

    /// Namespace, name, key and context.
    fn all(source: &SecretSource) -> (Option<&str>, &str, &str, Option<&str>) {
        let context = match &source.content {
            SecretContent::Token => None,
            SecretContent::Kubeconfig { context } => context.as_deref(),
        };
        (source.namespace.as_deref(), &source.name, &source.key, context)
    }

    #[test]
    fn provider_file_or_profile_names_the_secret() {
        let token = json!({"builtin": "secretreader"});
        let kubeconfig = json!({"builtin": "kubeconfig-secretreader"});
        let of_cluster_api = json!({"builtin": "kubeconfig-secretreader", "secretName": "{name}-kubeconfig", "namespace": "{namespace}", "key": "value"});
        let of_ocm = json!({"builtin": "secretreader", "secretName": "{name}-knative"});
        let config = json!({"clusterName": "c", "name": "n", "key": "k", "namespace": "other", "context": "x"});
        for (provider, config, expected) in [
            (&token, Some(&config), (None, "c", "token", None)),
            (&kubeconfig, Some(&config), (Some("other"), "n", "k", Some("x"))),
            (&kubeconfig, Some(&json!({"name": "n", "key": "k"})), (None, "n", "k", None)),
            // The profile doesn't change what the file says.
            (&of_cluster_api, Some(&config), (Some("fleet"), "east-kubeconfig", "value", None)),
            (&of_cluster_api, None, (Some("fleet"), "east-kubeconfig", "value", None)),
            (&of_ocm, Some(&config), (None, "east-knative", "token", None)),
        ] {
            assert_eq!(all(&of(provider, config).unwrap()), expected, "{provider}");
        }
        let nameless = json!({"key": "k"});
        let keyless = json!({"name": "n"});
        let invalid = json!({"name": "../n", "key": "k"});
        let elsewhere = json!({"name": "n", "key": "k", "namespace": "a/b"});
        for (provider, config, part) in [
            (&token, None, "has no clusterName"),
            (&kubeconfig, Some(&nameless), "has no name"),
            (&kubeconfig, Some(&keyless), "has no key"),
            (&kubeconfig, Some(&invalid), "that names no Secret"),
            (&kubeconfig, Some(&elsewhere), "has a namespace that is not valid"),
        ] {
            let error = of(provider, config).unwrap_err();
            assert!(error.reason == Reason::AccessProviderFailed && error.message.contains(part), "{error}");
        }
    }

    /// A token, and a certificate with its key.
    type Found = (Option<String>, Option<(String, String)>);

    /// Whether it is the cluster of the ClusterProfile.
    fn is_own(cluster: &Cluster) -> bool {
        cluster.server.as_deref() == Some("https://own:6443")
    }

    /// What is found in a kubeconfig with this user.
    fn found(user: &Value, more: &Value) -> Result<Found, NoCredential> {
        let mut config = json!({"apiVersion": "v1", "kind": "Config", "clusters": [],
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}], "current-context": "c",
            "users": [{"name": "u", "user": user}]});
        config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let content = SecretContent::Kubeconfig { context: None };
        let (token, identity) = credential(&content, is_own, config.to_string().into_bytes())?;
        let shown = |secret: &SecretString| secret.expose_secret().to_owned();
        Ok((token.as_ref().map(shown), identity.map(|(certificate, key)| (certificate, shown(&key)))))
    }

    #[test]
    fn credentials_of_kubeconfigs_are_found_or_refused_with_a_reason() {
        let none = json!({});
        let data = |name: &str| BASE64_STANDARD.encode(format!("-----BEGIN {name}-----\n"));
        let pem = |name: &str| format!("-----BEGIN {name}-----\n");
        assert_eq!(found(&json!({"token": "t"}), &none), Ok((Some("t".to_owned()), None)));
        let both =
            json!({"token": "t", "client-certificate-data": data("CERTIFICATE"), "client-key-data": data("KEY")});
        let expected = (Some("t".to_owned()), Some((pem("CERTIFICATE"), pem("KEY"))));
        assert_eq!(found(&both, &none), Ok(expected));
        let exec = json!({"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "aws"}});
        for (user, more, expected) in [
            (exec, none.clone(), NoCredential::Exec),
            (json!({"username": "a", "password": "b"}), none.clone(), NoCredential::Nothing),
            (json!({"tokenFile": "/token"}), none.clone(), NoCredential::Nothing),
            (json!({"client-certificate": "/a", "client-key": "/b"}), none.clone(), NoCredential::Files),
            (json!({"client-certificate-data": data("CERTIFICATE")}), none.clone(), NoCredential::HalfIdentity),
            (json!({"client-certificate-data": "!", "client-key-data": "!"}), none.clone(), NoCredential::NotPem),
            (json!({"token": "t"}), json!({"current-context": ""}), NoCredential::NoContext),
            (json!({"token": "t"}), json!({"current-context": "x"}), NoCredential::MissingContext("x".to_owned())),
            (json!({"token": "t"}), json!({"users": []}), NoCredential::MissingUser("u".to_owned())),
            (json!({"token": "t"}), json!({"extensions": [{"name": "e", "extension": {}}]}), NoCredential::Extensions),
        ] {
            assert_eq!(found(&user, &more), Err(expected), "{user} {more}");
        }
        let content = SecretContent::Kubeconfig { context: None };
        for bytes in [b"s3cret: [".to_vec(), b"- s3cret".to_vec(), vec![0xff]] {
            let refused = credential(&content, |_| false, bytes).unwrap_err().to_string();
            assert!(!refused.contains("s3cret"), "{refused}");
        }
    }

    #[test]
    fn profile_gets_no_credential_of_another_cluster() {
        let context = |name: &str, cluster: &str, user: &str| json!({"name": name, "context": {"cluster": cluster, "user": user}});
        let cluster = |name: &str, server: &str| json!({"name": name, "cluster": {"server": server}});
        let user = |name: &str| json!({"name": name, "user": {"token": name}});
        let found = |clusters: &[&str], current: &str, chosen: Option<&str>| {
            let contexts: Vec<_> = clusters
                .iter()
                .enumerate()
                .map(|(i, cluster)| context(&format!("c{i}"), cluster, &format!("u{i}")))
                .collect();
            let config = json!({"apiVersion": "v1", "kind": "Config", "current-context": current, "contexts": contexts,
                "clusters": [cluster("own", "https://own:6443"), cluster("other", "https://other:6443")],
                "users": [user("u0"), user("u1")]});
            let content = SecretContent::Kubeconfig { context: chosen.map(str::to_owned) };
            let (token, _) = credential(&content, is_own, config.to_string().into_bytes())?;
            Ok::<_, NoCredential>(token.unwrap().expose_secret().to_owned())
        };
        let other = |name: &str| Err(NoCredential::OtherCluster(name.to_owned()));
        // Of several clusters, only that of the profile, also if it is not named: its author may
        // remove the context from the profile.
        for (current, chosen, expected) in [
            ("c0", None, Ok("u0".to_owned())),
            ("c1", Some("c0"), Ok("u0".to_owned())),
            ("c1", None, other("c1")),
            ("c0", Some("c1"), other("c1")),
            ("c1", Some("c1"), other("c1")),
        ] {
            assert_eq!(found(&["own", "other"], current, chosen), expected, "{current} {chosen:?}");
        }
        assert_eq!(found(&["own", "none"], "c1", None), other("c1"));
        // Of one cluster, its author may have another address, such as that of a tunnel.
        for clusters in [&["other"][..], &["other", "other"]] {
            assert_eq!(found(clusters, "c0", None), Ok("u0".to_owned()), "{clusters:?}");
        }
        assert_eq!(found(&["other", "other"], "c0", Some("c1")), Ok("u1".to_owned()));
    }
}
