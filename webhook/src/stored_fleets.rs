//! KnativeFleets, as the API server has them at the time of a review.

use knative_operator_rules as rules;
use knative_operator_rules::Violation;
use knative_operator_runtime::untyped::api_resource;
use knative_operator_shared::api::{Kind, KnativeFleet};
use kube::Api;
use kube::core::DynamicObject;
use serde_json::json;

use crate::approval::{CURRENT, UNAVAILABLE};
use crate::lifetime::missing_owner;
use crate::live::{Live, ReadError};

/// The fleet called `name` in `namespace`.
///
/// # Errors
///
/// The violation of an approval whose fleet does not exist or can't be read.
pub async fn get(live: &Live, namespace: &str, name: &str) -> Result<KnativeFleet, Violation> {
    match read(live, namespace, name).await {
        Ok(Some(fleet)) => rules::parse_fleet(&json!(fleet)),
        Ok(None) => {
            let message = format!("KnativeFleet {namespace}/{name} does not exist");
            Err(CURRENT.at("spec.fleet", message, "name a KnativeFleet in the namespace of the approval"))
        }
        Err(why) => Err(unavailable("spec.fleet", namespace, name, &why)),
    }
}

/// The violation if the fleet called `name` in `namespace` doesn't exist with `uid`, or can't be
/// read.
pub async fn check_owner(live: &Live, namespace: &str, name: &str, uid: &str) -> Option<Violation> {
    match read(live, namespace, name).await {
        Ok(Some(fleet)) if fleet.metadata.uid.as_deref() == Some(uid) => None,
        Ok(_) => Some(missing_owner(name, uid)),
        Err(why) => Some(unavailable("metadata.ownerReferences", namespace, name, &why)),
    }
}

fn unavailable(field: &str, namespace: &str, name: &str, why: &ReadError) -> Violation {
    UNAVAILABLE.at(field, format!("cannot read KnativeFleet {namespace}/{name}: {why}"), "try again")
}

async fn read(live: &Live, namespace: &str, name: &str) -> Result<Option<DynamicObject>, ReadError> {
    // Both come from the review.
    if !is_name(namespace) || !is_name(name) {
        return Ok(None);
    }
    let read = async |client| {
        Api::<DynamicObject>::namespaced_with(client, namespace, &api_resource(Kind::Fleet)).get(name).await
    };
    live.read(read).await
}

/// Whether `name` is one of an object, and no path.
fn is_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with('.')
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_is_no_name() {
        assert!(is_name("prod") && is_name("prod.eu-1"));
        for path in ["", "a/b", "../secrets/a", "..", "a?b", "a%2fb", "A", "a b", "ä"] {
            assert!(!is_name(path), "{path}");
        }
    }

    #[tokio::test]
    async fn namespace_of_a_review_is_no_path() {
        for (namespace, name, is_read) in
            [("n", "a", true), ("../secrets", "a", false), ("n/x?", "a", false), ("n", "../a", false)]
        {
            // Without an API server, everything that is read is unavailable.
            let fleet = get(&Live::none(), namespace, name).await.unwrap_err().to_string();
            let owner = check_owner(&Live::none(), namespace, name, "u").await.unwrap().to_string();
            for message in [fleet, owner] {
                assert_eq!(message.contains("there is no API server"), is_read, "{message}");
            }
        }
    }
}
