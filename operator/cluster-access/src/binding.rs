//! Decides whether a ClusterProfile gets the credential in a Secret. The author of a ClusterProfile
//! chooses the name of the Secret, the server, its authority and the proxy. So only the Secret,
//! which administrators of the hub write, can say who gets its credential: by annotations. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Secret;
use knative_operator_base::cluster_profile::ClusterProfileReference;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::address;
use super::profile::Access;

/// Data key of the authority of the cluster, as in the Secrets of ServiceAccounts.
const AUTHORITY: &str = "ca.crt";

/// Value of [`Annotations::sent_to`]: by ClusterProfile, where the credential was sent first.
type Sent = BTreeMap<String, String>;

/// Names of the annotations of a Secret with a credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Annotations {
    /// The ClusterProfiles that get the credential, as `NAMESPACE/NAME`, separated by commas.
    pub profiles: &'static str,
    /// The servers that it is sent to, as URLs, separated by commas; by default, the first one that
    /// each ClusterProfile had.
    pub servers: &'static str,
    /// By ClusterProfile, where it was sent first. It is sent nowhere else, unless
    /// [`Self::servers`] says so.
    pub sent_to: &'static str,
}

/// Why a ClusterProfile does not get the credential in a Secret, with what its administrator has to
/// do; the sentence begins with the name of the Secret.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotBound(String);

/// On which conditions a ClusterProfile gets the credential in a Secret.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Binding {
    /// What its administrator has to do, if the Secret names no ClusterProfile.
    pub remedy: Option<String>,
    /// The new value of [`Annotations::sent_to`], if the credential is sent to a server for the
    /// first time.
    pub record: Option<String>,
}

/// Whether the ClusterProfile of `reference` gets the credential in `secret`, to send it to the
/// server of `access`. `strict`: only if the Secret names the ClusterProfile.
pub fn check(
    names: &Annotations,
    secret: &Secret,
    reference: &ClusterProfileReference,
    access: &Access,
    strict: bool,
) -> Result<Binding, NotBound> {
    let (meta, server) = (&secret.metadata, &access.server);
    let Annotations { profiles: profiles_annotation, servers: servers_annotation, sent_to } = *names;
    let annotation = |name: &str| meta.annotations.as_ref().and_then(|all| all.get(name)).map(String::as_str);
    let names_servers = annotation(servers_annotation).is_some();
    if let Some(servers) = annotation(servers_annotation) {
        let authority = secret.data.as_ref().and_then(|data| data.get(AUTHORITY));
        check_server((servers_annotation, servers), authority.map(|bytes| bytes.0.as_slice()), access)?;
    }
    let (namespace, name) = (meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default());
    let annotate = |what: &str| format!("kubectl annotate secret {name} -n {namespace} {what}");
    let (own, destination) = (reference.to_string(), destination(access));
    let sent = annotation(sent_to).map_or_else(|| Ok(Sent::new()), serde_json::from_str::<Sent>);
    let sent = sent.map_err(|_| {
        let remove = annotate(&format!("{sent_to}-"));
        NotBound(format!(
            "has an annotation {sent_to} that this version can't read; if {server} is the cluster of the Secret, remove it: {remove}"
        ))
    });
    let record = |sent: &Sent| {
        let mut sent = sent.clone();
        sent.insert(own.clone(), destination.clone());
        Some(json!(sent).to_string())
    };
    if let Some(profiles) = annotation(profiles_annotation) {
        if !entries(profiles).any(|name| name == own) {
            return Err(NotBound(format!(
                "is not bound to ClusterProfile {reference}; if {server} is the cluster of the Secret, add {reference} to its annotation {profiles_annotation}"
            )));
        }
        if names_servers {
            return Ok(Binding::default());
        }
        let sent = sent?;
        return match sent.get(&own) {
            None => Ok(Binding { remedy: None, record: record(&sent) }),
            Some(before) if *before == destination => Ok(Binding::default()),
            Some(_) => Err(NotBound(format!(
                "was sent to another server for ClusterProfile {reference} before, or by another proxy; if {server} is the cluster of the Secret now, permit it: {}; or name its servers in the annotation {servers_annotation}",
                annotate(&format!("{sent_to}-"))
            ))),
        };
    }
    let bind = |more: &str| {
        let bind = annotate(&format!("{profiles_annotation}={reference}{more}"));
        format!("if {server} is the cluster of the Secret, bind it: {bind}")
    };
    if strict {
        return Err(NotBound(format!("names no ClusterProfile, as the operator requires; {}", bind(""))));
    }
    let sent = if names_servers { Sent::new() } else { sent? };
    if sent.values().any(|before| *before != destination) {
        return Err(NotBound(format!(
            "names no ClusterProfile, and its credential was sent to another server before, or by another proxy; {}",
            bind(&format!(" {sent_to}-"))
        )));
    }
    let remedy = format!(
        "Secret {namespace}/{name} names no ClusterProfile, so the author of any ClusterProfile can name it; {}",
        bind("")
    );
    let record = if sent.is_empty() && !names_servers { record(&sent) } else { None };
    Ok(Binding { remedy: Some(remedy), record })
}

/// Whether `secret` names the ClusterProfile of `reference`.
pub fn is_named(names: &Annotations, secret: &Secret, reference: &ClusterProfileReference) -> bool {
    let profiles = secret.metadata.annotations.as_ref().and_then(|all| all.get(names.profiles));
    profiles.is_some_and(|profiles| entries(profiles).any(|name| name == reference.to_string()))
}

/// Checks that the server of `access` is one of `servers`, the value of `annotation`, and that its
/// certificate is verified, with `authority` if there is one: a proxy of the ClusterProfile could
/// answer in its place.
fn check_server(
    (annotation, servers): (&str, &str),
    authority: Option<&[u8]>,
    access: &Access,
) -> Result<(), NotBound> {
    let server = &access.server;
    if access.is_unencrypted() {
        return Err(NotBound(format!(
            "is bound to a server by the annotation {annotation}, so its certificate must be verified, and {server} has none; use https"
        )));
    }
    if !entries(servers)
        .filter_map(|url| address::server(url, false).ok())
        .any(|bound| address::is_same(&bound, server))
    {
        return Err(NotBound(format!(
            "is not bound to the server {server}; if the server moved, add its URL to the annotation {annotation} of the Secret"
        )));
    }
    if access.insecure {
        return Err(NotBound(format!(
            "is bound to a server by the annotation {annotation}, so its certificate must be verified; remove insecure-skip-tls-verify from the ClusterProfile"
        )));
    }
    if access.has_other_name() {
        return Err(NotBound(format!(
            "is bound to a server by the annotation {annotation}, so its certificate must be for that host; remove tls-server-name from the ClusterProfile"
        )));
    }
    if authority.is_none() && access.proxy.is_some() {
        return Err(NotBound(format!(
            "is bound to a server, which its ClusterProfile reaches by a proxy; put the authority of the server into the Secret, with the key \"{AUTHORITY}\""
        )));
    }
    let differs = |own: &[u8]| access.authority.as_deref().is_none_or(|given| given.trim_ascii() != own.trim_ascii());
    if authority.is_some_and(differs) {
        return Err(NotBound(format!(
            "has another authority under the key \"{AUTHORITY}\" than the ClusterProfile; replace the one that is wrong"
        )));
    }
    Ok(())
}

/// The entries of a list separated by commas.
fn entries(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim).filter(|entry| !entry.is_empty())
}

/// Where the credential is sent, in a form to record: the server, and a digest of what leads to
/// another one. Without a proxy, not the authority, which cluster managers rotate.
fn destination(access: &Access) -> String {
    let proxy = access.proxy.as_ref().map(|proxy| format!("{:?} {}", proxy.scheme, proxy.url));
    // With a proxy, whose owner could answer in the place of the server, also the authority.
    let authority = access.authority.as_ref().filter(|_| proxy.is_some());
    let all = json!([access.server.to_string(), authority, access.server_name, access.insecure, proxy]);
    format!("{} {}", access.server, digest(&all.to_string()))
}

/// The first 128 bits of SHA-256 over a format version and `text`.
fn digest(text: &str) -> String {
    let hash = Sha256::new_with_prefix("1").chain_update(text).finalize();
    hash.iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::prelude::BASE64_STANDARD;
    use serde_json::Value;

    use super::*;
    use crate::same_cluster::tests::{OWN, access};

    const CLUSTER_PROFILE: &str = "example.com/cluster-profile";
    const SERVER: &str = "example.com/server";
    const SENT_TO: &str = "example.com/sent-to";
    const NAMES: Annotations = Annotations { profiles: CLUSTER_PROFILE, servers: SERVER, sent_to: SENT_TO };

    fn reference(namespace: &str, name: &str) -> ClusterProfileReference {
        ClusterProfileReference { name: name.to_owned(), namespace: namespace.to_owned() }
    }

    fn secret(annotations: &Value, authority: Option<&str>) -> Secret {
        let mut data = json!({"token": BASE64_STANDARD.encode("t")});
        if let Some(authority) = authority {
            data[AUTHORITY] = json!(BASE64_STANDARD.encode(authority));
        }
        let meta = json!({"name": "prod", "namespace": "knative-operator", "annotations": annotations});
        serde_json::from_value(json!({"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": data})).unwrap()
    }

    /// Why `annotations` refuse `profile` in namespace `fleet` with `access`; empty if they don't.
    fn refusal(annotations: &Value, profile: &str, access: &Access) -> String {
        let refused = check(&NAMES, &secret(annotations, None), &reference("fleet", profile), access, true).err();
        refused.map(|why| why.0).unwrap_or_default()
    }

    #[test]
    fn secret_is_given_to_profiles_that_it_names() {
        for (profiles, profile, expected) in [
            ("fleet/prod", "prod", true),
            ("fleet/other, fleet/prod", "prod", true),
            ("fleet/prod", "other", false),
            ("tenant/prod", "prod", false),
            ("prod", "prod", false),
            ("fleet/*", "prod", false),
            // An empty list names nobody.
            ("", "prod", false),
            (",", "prod", false),
        ] {
            for strict in [true, false] {
                let bound = secret(&json!({CLUSTER_PROFILE: profiles}), None);
                let outcome = check(&NAMES, &bound, &reference("fleet", profile), &access(OWN), strict);
                match outcome {
                    Ok(binding) => assert!(expected && binding.remedy.is_none(), "{profiles}"),
                    Err(NotBound(why)) => {
                        assert!(!expected && why.starts_with("is not bound to ClusterProfile fleet/"), "{why}");
                    }
                }
            }
        }
    }

    #[test]
    fn secret_is_sent_to_servers_that_it_names() {
        let bound = |servers: &str| json!({CLUSTER_PROFILE: "fleet/prod", SERVER: servers});
        for (servers, server, expected) in [
            (OWN, "https://prod.example:6443/", true),
            ("https://old.example, https://PROD.example:6443/", OWN, true),
            ("https://prod.example", "https://prod.example:443", true),
            ("https://prod.example/k8s/c-1", "https://prod.example/k8s/c-1/", true),
            ("https://prod.example/k8s/c-1", "https://prod.example/k8s/c-2", false),
            (OWN, "https://tenant.example:6443", false),
            (OWN, "https://prod.example", false),
            (OWN, "https://prod.example.tenant.example:6443", false),
            // Invalid and empty ones name no server.
            ("prod.example:6443", OWN, false),
            ("", OWN, false),
        ] {
            let why = refusal(&bound(servers), "prod", &access(server));
            assert_eq!(why.is_empty(), expected, "{servers} {server}: {why}");
        }
        // A server that it names is not recorded.
        let named = secret(&bound(OWN), None);
        assert_eq!(check(&NAMES, &named, &reference("fleet", "prod"), &access(OWN), true), Ok(Binding::default()));
        // The server restricts a Secret that names no profile, too.
        let unbound = secret(&json!({SERVER: OWN}), None);
        let check = |server: &str| check(&NAMES, &unbound, &reference("fleet", "prod"), &access(server), false);
        assert!(check(OWN).is_ok() && check("https://tenant.example").is_err());
    }

    #[test]
    fn bound_server_is_verified() {
        let bound = json!({CLUSTER_PROFILE: "fleet/prod", SERVER: OWN});
        let insecure = Access { insecure: true, ..access(OWN) };
        assert!(refusal(&bound, "prod", &insecure).contains("insecure-skip-tls-verify"));
        assert!(refusal(&bound, "prod", &access("http://prod.example:6443")).contains("use https"));
        let check = |authority: &str, access: &Access| {
            check(&NAMES, &secret(&bound, Some(authority)), &reference("fleet", "prod"), access, true)
        };
        assert_eq!(check("authority", &access(OWN)), Ok(Binding::default()));
        for wrong in [access(OWN), Access { authority: None, ..access(OWN) }] {
            let NotBound(why) = check("another authority", &wrong).unwrap_err();
            assert!(why.contains("has another authority"), "{why}");
        }
    }

    #[test]
    fn secret_without_profile_is_sent_to_one_server_and_refused_if_strict() {
        let unbound = |sent: Option<&str>, access: &Access, strict: bool| {
            let annotations = sent.map_or_else(|| json!({}), |sent| json!({SENT_TO: sent}));
            check(&NAMES, &secret(&annotations, None), &reference("fleet", "prod"), access, strict)
        };
        let Ok(Binding { remedy: Some(remedy), record: Some(sent) }) = unbound(None, &access(OWN), false) else {
            unreachable!("it is sent for the first time")
        };
        let command = "kubectl annotate secret prod -n knative-operator example.com/cluster-profile=fleet/prod";
        assert!(remedy.ends_with(command), "{remedy}");
        // As former versions recorded it.
        assert_eq!(sent, r#"{"fleet/prod":"https://prod.example:6443/ df06c00c1335bf062a851c520257ccee"}"#);
        let again = Binding { remedy: Some(remedy), record: None };
        assert_eq!(unbound(Some(&sent), &access(OWN), false), Ok(again));
        for other in [
            access("https://tenant.example:6443"),
            Access { server_name: Some("another".to_owned()), ..access(OWN) },
            Access { insecure: true, ..access(OWN) },
            Access { proxy: address::proxy("socks5://tenant.example").ok(), ..access(OWN) },
        ] {
            let NotBound(why) = unbound(Some(&sent), &other, false).unwrap_err();
            let renewed = format!("{command} example.com/sent-to-");
            assert!(why.contains("was sent to another server before") && why.ends_with(&renewed), "{why}");
        }
        for sent in [None, Some(sent.as_str())] {
            let NotBound(why) = unbound(sent, &access(OWN), true).unwrap_err();
            assert!(why.contains("names no ClusterProfile") && why.ends_with(command), "{why}");
        }
    }

    #[test]
    fn bound_secret_is_sent_to_the_first_server_of_each_profile() {
        let bound = |sent: Option<&str>, profile: &str, access: &Access| {
            let mut annotations = json!({CLUSTER_PROFILE: "fleet/prod,fleet/second"});
            if let Some(sent) = sent {
                annotations[SENT_TO] = json!(sent);
            }
            check(&NAMES, &secret(&annotations, None), &reference("fleet", profile), access, true)
        };
        let first = bound(None, "prod", &access(OWN)).unwrap().record.unwrap();
        assert_eq!(bound(Some(&first), "prod", &access(OWN)), Ok(Binding::default()));
        for other in [
            access("https://tenant.example"),
            Access { insecure: true, ..access(OWN) },
            Access { server_name: Some("another".to_owned()), ..access(OWN) },
        ] {
            let NotBound(why) = bound(Some(&first), "prod", &other).unwrap_err();
            let remove = "kubectl annotate secret prod -n knative-operator example.com/sent-to-";
            assert!(why.contains("was sent to another server") && why.contains(remove), "{why}");
        }
        // The authority may change, as cluster managers rotate it.
        let rotated = Access { authority: Some(b"next".to_vec()), ..access(OWN) };
        assert_eq!(bound(Some(&first), "prod", &rotated), Ok(Binding::default()));
        // Another profile that the Secret names has a server of its own.
        let both = bound(Some(&first), "second", &access("https://second.example")).unwrap().record.unwrap();
        assert_eq!(bound(Some(&both), "prod", &access(OWN)), Ok(Binding::default()));
        assert!(bound(Some(&both), "second", &access(OWN)).is_err());
        // What this version can't read is not guessed.
        for unreadable in ["https://prod.example:6443/ 0", "[]", r#"{"fleet/prod":7}"#] {
            let NotBound(why) = bound(Some(unreadable), "prod", &access(OWN)).unwrap_err();
            assert!(why.contains("that this version can't read"), "{why}");
        }
    }
}
