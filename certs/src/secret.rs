//! The Secret that holds the certificates, shared by all replicas.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use knative_operator_runtime::identity::post_as;
use kube::Api;
use kube::api::ObjectMeta;

use crate::material::{Authority, Material};

/// The bundle that the API server trusts, for whoever looks; what it consists of is in the other fields.
pub const BUNDLE: &str = "ca.crt";
/// The certificate of the server.
pub const LEAF: &str = "tls.crt";
/// The key of the server.
pub const LEAF_KEY: &str = "tls.key";
const AUTHORITY: &str = "authority.crt";
const AUTHORITY_KEY: &str = "ca.key";
const NEXT: &str = "next.crt";
const NEXT_KEY: &str = "next.key";
const OLD: &str = "old.crt";

/// The text in field `key` of `secret`, if it is there and not empty.
pub fn field(secret: &Secret, key: &str) -> Option<String> {
    String::from_utf8(secret.data.as_ref()?.get(key)?.0.clone()).ok().filter(|text| !text.trim().is_empty())
}

/// What is in the Secret, if all of it is there.
pub fn material(secret: &Secret) -> Option<Material> {
    let field = |key: &str| field(secret, key);
    let authority =
        |certificate: &str, key: &str| Some(Authority { certificate: field(certificate)?, key: field(key)? });
    Some(Material {
        authority: authority(AUTHORITY, AUTHORITY_KEY)?,
        next: authority(NEXT, NEXT_KEY),
        old: field(OLD).unwrap_or_default(),
        leaf: field(LEAF)?,
        leaf_key: field(LEAF_KEY)?,
    })
}

/// Stores `material` in place of what `seen` holds. With two writers one gets a conflict (409) and reads again:
/// the write carries the resourceVersion that was read, or creates.
pub async fn store(
    secrets: &Api<Secret>,
    name: &str,
    manager: &str,
    seen: Option<Secret>,
    material: &Material,
) -> kube::Result<Secret> {
    let (next, next_key) = material.next.as_ref().map_or(("", ""), |next| (&next.certificate, &next.key));
    let bundle = material.bundle();
    let values: [(&str, &str); 8] = [
        (BUNDLE, &bundle),
        (AUTHORITY, &material.authority.certificate),
        (AUTHORITY_KEY, &material.authority.key),
        (NEXT, next),
        (NEXT_KEY, next_key),
        (OLD, &material.old),
        (LEAF, &material.leaf),
        (LEAF_KEY, &material.leaf_key),
    ];
    let data: BTreeMap<String, ByteString> = values
        .iter()
        .filter(|(_, v)| !v.is_empty())
        .map(|(k, v)| ((*k).to_owned(), ByteString(v.as_bytes().to_vec())))
        .collect();
    let params = post_as(manager);
    if let Some(mut secret) = seen {
        // The Go operator's webhook keeps its own keys in this Secret, and writes them again when they are gone: both may run for a while.
        let mut all = secret.data.take().unwrap_or_default();
        all.retain(|key, _| !values.iter().any(|(ours, _)| ours == key));
        all.extend(data);
        secret.data = Some(all);
        secret.metadata.managed_fields = None;
        secrets.replace(name, &params, &secret).await
    } else {
        let metadata = ObjectMeta { name: Some(name.to_owned()), ..Default::default() };
        secrets.create(&params, &Secret { metadata, data: Some(data), ..Default::default() }).await
    }
}
