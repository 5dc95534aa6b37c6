//! The Secret that holds the certificates, shared by all replicas.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{ObjectMeta, PostParams};

use crate::issue::Material;

const KEYS: [&str; 4] = ["ca.crt", "ca.key", "tls.crt", "tls.key"];

/// What is in the Secret, if all of it is there.
pub fn material(secret: &Secret) -> Option<Material> {
    let field = |key: &str| String::from_utf8(secret.data.as_ref()?.get(key)?.0.clone()).ok();
    Some(Material { authority: field(KEYS[0])?, authority_key: field(KEYS[1])?, leaf: field(KEYS[2])?, leaf_key: field(KEYS[3])? })
}

/// Stores `material` in place of what `seen` holds. With two writers one gets a conflict (409) and reads again:
/// the write carries the resourceVersion that was read, or creates.
pub async fn store(secrets: &Api<Secret>, name: &str, seen: Option<Secret>, material: &Material) -> kube::Result<Secret> {
    let values = [&material.authority, &material.authority_key, &material.leaf, &material.leaf_key];
    let data: BTreeMap<_, _> = KEYS.iter().zip(values).map(|(k, v)| ((*k).to_owned(), ByteString(v.clone().into_bytes()))).collect();
    if let Some(mut secret) = seen {
        secret.data.get_or_insert_default().extend(data);
        secret.metadata.managed_fields = None;
        secrets.replace(name, &PostParams::default(), &secret).await
    } else {
        let metadata = ObjectMeta { name: Some(name.to_owned()), ..Default::default() };
        secrets.create(&PostParams::default(), &Secret { metadata, data: Some(data), ..Default::default() }).await
    }
}
