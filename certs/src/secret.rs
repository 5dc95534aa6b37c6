//! The Secret with the certificates, shared by all replicas.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use knative_operator_runtime::identity::post_as;
use kube::Api;
use kube::api::ObjectMeta;

use crate::material::{Authority, Material};

/// Data key of the CA bundle, for users; the other keys have its parts.
pub const BUNDLE: &str = "ca.crt";
/// Data key of the server certificate.
pub const LEAF: &str = "tls.crt";
/// Data key of the server key.
pub const LEAF_KEY: &str = "tls.key";
const AUTHORITY: &str = "authority.crt";
const AUTHORITY_KEY: &str = "ca.key";
const NEXT: &str = "next.crt";
const NEXT_KEY: &str = "next.key";
const OLD: &str = "old.crt";

/// The value of `key` in `secret`, if present and not empty.
pub fn field(secret: &Secret, key: &str) -> Option<String> {
    String::from_utf8(secret.data.as_ref()?.get(key)?.0.clone()).ok().filter(|text| !text.trim().is_empty())
}

/// The certificates in the Secret, if complete.
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

/// Stores `material` in place of the contents of `stored`. Of two writers one gets a conflict (409)
/// and reads again: the write has the resourceVersion that was read, or creates.
pub async fn store(
    secrets: &Api<Secret>,
    name: &str,
    manager: &str,
    stored: Option<Secret>,
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
    if let Some(mut secret) = stored {
        // The Go operator's webhook has keys of its own in this Secret and recreates missing ones,
        // so they are kept: both may run for a while.
        let mut all = secret.data.take().unwrap_or_default();
        all.retain(|key, _| !values.iter().any(|(own, _)| own == key));
        all.extend(data);
        secret.data = Some(all);
        secret.metadata.managed_fields = None;
        secrets.replace(name, &params, &secret).await
    } else {
        let metadata = ObjectMeta { name: Some(name.to_owned()), ..Default::default() };
        secrets.create(&params, &Secret { metadata, data: Some(data), ..Default::default() }).await
    }
}
