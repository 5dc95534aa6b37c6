//! Writes one object: server-side apply, with retries, takeover and contended fields.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use knative_operator_runtime::identity::patch_as;
use knative_operator_shared::label::{DIGEST, FIELD_MANAGER, OWNER_DIGEST};
use kube::api::{Patch, PatchParams};
use kube::core::{DynamicObject, ObjectMeta, PartialObjectMeta};
use serde_json::Value;

use super::broken_api;
use super::error::ApplyError;
use super::managed_fields::Path;
use super::takeover::takeover_patch;
use super::target::Target;
use super::{Objects, api, preserve, resolve_kind, served, undiscovered, update_strategy};
use knative_operator_objects::plan::{Item, Phase, Plan};

/// Attempts of a write within one reconcile, if the server asks for a retry.
const MAX_ATTEMPTS: usize = 4;
/// Limits of the delay before such a retry.
const MIN_RETRY_DELAY: Duration = Duration::from_millis(250);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(5);
/// Delay before a write is retried whose webhook can't be called yet.
const WEBHOOK_DELAY: Duration = Duration::from_secs(1);
/// Time after which such a write is not retried in the same reconcile.
const WEBHOOK_LIMIT: Duration = Duration::from_secs(5);
/// Time limit of a binding's wait for its role, which is written at the same time.
const ROLE_TIMEOUT: Duration = Duration::from_secs(2);

/// Applies one object (server-side apply). Returns its metadata.
pub async fn apply_object(target: &Target<'_>, item: &Item) -> Result<ObjectMeta, ApplyError> {
    let planned_kind = target.plan.kinds().get(&item.gvk);
    let found = if planned_kind.is_some() {
        planned_kind
    } else {
        let found = resolve_kind(target.client, target.kinds, &item.gvk).await;
        found.map_err(|error| undiscovered(&item.gvk.kind, &item.gvk.group, &error))?
    };
    let kind = found.ok_or_else(|| ApplyError::no_kind(&item.gvk))?;
    let api = api(target.client, &kind, &item.id);
    let has_contended_fields = preserve::has_contended_fields(&item.id.kind, &item.id.name);
    let claim = if has_contended_fields { Claim::Unowned } else { Claim::All };
    let mut request = apply_request(&api, target, item, claim)?;
    if item.phase().is_custom() {
        served::wait_until_established(target, &kind).await?;
    }
    let started = Instant::now();
    let (mut attempts, mut has_claimed_rolling_update) = (0, false);
    let mut go_operator_fields = target.observed.has_go_operator_fields(&item.id);
    loop {
        attempts += 1;
        let response = async {
            if go_operator_fields {
                take_over_fields(&api, &item.id.name).await?;
                go_operator_fields = false;
            }
            match target.client.request::<PartialObjectMeta<DynamicObject>>(request.clone()).await {
                Err(error) if has_contended_fields && preserve::is_conflict(&error) => {
                    request = request_without_others_fields(&api, target, item).await?;
                    target.client.request(request.clone()).await
                }
                response => response,
            }
        };
        match response.await {
            Ok(object) => return Ok(object.metadata),
            Err(error) if served::is_not_served(&error) => {
                attempts -= 1;
                served::wait_until_served(target.client, &kind, started).await?;
            }
            Err(error) if item.is_binding() && is_role_missing(&error) && started.elapsed() < ROLE_TIMEOUT => {
                attempts -= 1;
                tokio::time::sleep(served::PAUSE).await;
            }
            Err(error) if is_invalid(&error) && !has_claimed_rolling_update => {
                has_claimed_rolling_update = true;
                let Some(claim) = rolling_update_request(&api, target.plan, item) else { return Err(error.into()) };
                let claimed = target.client.request::<PartialObjectMeta<DynamicObject>>(claim?);
                claimed.await.map_err(|_| error)?;
            }
            Err(error) => {
                // A webhook that hangs takes its own time.
                let late = webhook_delay(item, &error).filter(|_| started.elapsed() < WEBHOOK_LIMIT);
                let asked = retry_delay(&error).or(late);
                let Some(delay) = asked.filter(|_| attempts < MAX_ATTEMPTS) else {
                    if is_unreachable(target, item, &error).await {
                        target.unreachable.store(true, Ordering::Relaxed);
                    }
                    return Err(error.into());
                };
                if has_contended_fields && delay.is_zero() {
                    // The object changed after the request was built.
                    request = apply_request(&api, target, item, Claim::Unowned)?;
                }
                tokio::time::sleep(delay).await;
            }
        }
    }
}

/// Fields that an apply claims.
enum Claim<'a> {
    /// All fields, regardless of their owners.
    All,
    /// All fields; the API server answers with a conflict if another manager owns one with another
    /// value.
    Unowned,
    /// All but these fields, of an object with this resourceVersion.
    Except(&'a BTreeSet<Path>, Option<String>),
}

/// Builds the request that applies `item`. Serialized immediately, since many requests wait at the
/// same time.
fn apply_request(
    api: &Objects,
    target: &Target<'_>,
    item: &Item,
    claim: Claim<'_>,
) -> kube::Result<http::Request<Vec<u8>>> {
    let mut object = target.plan.object_of(item);
    object["metadata"]["annotations"][DIGEST] = target.plan.digest(item).to_string().into();
    object["metadata"]["annotations"][OWNER_DIGEST] = target.mark.into();
    let mut params = PatchParams::apply(FIELD_MANAGER);
    params.force = !matches!(claim, Claim::Unowned);
    if let Claim::Except(others_fields, version) = claim {
        preserve::remove_fields(&mut object, others_fields);
        object["metadata"]["resourceVersion"] = version.into();
    }
    kube::core::Request::new(api.resource_url())
        .patch_metadata(&item.id.name, &params, &Patch::Apply(&object))
        .map_err(kube::Error::BuildRequest)
}

/// Builds the request that claims `rollingUpdate`, if the update strategy of `item` needs that.
fn rolling_update_request(api: &Objects, plan: &Plan, item: &Item) -> Option<kube::Result<http::Request<Vec<u8>>>> {
    let object = update_strategy::claiming_rolling_update(&plan.object_of(item))?;
    let params = PatchParams::apply(FIELD_MANAGER).force();
    let request =
        kube::core::Request::new(api.resource_url()).patch_metadata(&item.id.name, &params, &Patch::Apply(&object));
    Some(request.map_err(kube::Error::BuildRequest))
}

/// Builds the request that applies `item` without the fields that Knative's controllers wrote. The
/// operator gives up its ownership first: an apply without an owned field removes that field.
async fn request_without_others_fields(
    api: &Objects,
    target: &Target<'_>,
    item: &Item,
) -> kube::Result<http::Request<Vec<u8>>> {
    let mut meta = api.get_metadata(&item.id.name).await?.metadata;
    let others_fields = preserve::others_fields(&item.id.kind, &meta);
    if let Some(patch) = preserve::relinquish(&meta, &others_fields) {
        let fields: Vec<_> = others_fields.iter().map(preserve::display_path).collect();
        tracing::info!(object = %item.id, fields = fields.join(", "), "relinquished fields to the controller that writes them");
        meta = patch_managed_fields(api, &item.id.name, patch).await?;
    }
    apply_request(api, target, item, Claim::Except(&others_fields, meta.resource_version))
}

/// Delay before the same write is retried: none after a conflict, as asked for after 429 and 503.
/// Other errors wait for the next reconcile.
fn retry_delay(error: &kube::Error) -> Option<Duration> {
    let kube::Error::Api(status) = error else { return None };
    match status.code {
        409 => Some(Duration::ZERO),
        429 | 503 => {
            let asked = status.details.as_ref().map_or(1, |d| d.retry_after_seconds);
            Some(Duration::from_secs(u64::from(asked)).clamp(MIN_RETRY_DELAY, MAX_RETRY_DELAY))
        }
        _ => None,
    }
}

/// Delay before the same write is retried, if a webhook of Knative could not be called: the nodes
/// learn a little later than the operator that its Pods are ready.
fn webhook_delay(item: &Item, error: &kube::Error) -> Option<Duration> {
    let kube::Error::Api(status) = error else { return None };
    let is_late = item.phase() == Phase::Dependents && status.message.contains("failed calling webhook");
    is_late.then_some(WEBHOOK_DELAY)
}

/// Whether the API server refused a binding because its role does not exist. It reads the role to
/// compare permissions, unless the operator may `bind` it.
fn is_role_missing(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    let kind = status.details.as_ref().map(|details| details.kind.as_str());
    status.code == 404 && matches!(kind, Some("roles" | "clusterroles"))
}

/// Whether the API server refused the object because it would be invalid.
fn is_invalid(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 422)
}

/// Whether `error`, about `item`, means that the cluster can't be reached, rather than being an
/// answer of its API server, or of an API server behind it.
async fn is_unreachable(target: &Target<'_>, item: &Item, error: &kube::Error) -> bool {
    match error {
        kube::Error::Service(_) | kube::Error::HyperError(_) | kube::Error::ReadEvents(_) => true,
        kube::Error::Api(_) => broken_api::is_of_proxy(target.client, &item.id.group, error).await,
        _ => false,
    }
}

/// Transfers the fields that the Go operator applied to this operator.
async fn take_over_fields(api: &Objects, name: &str) -> kube::Result<()> {
    let Some(found) = api.get_metadata_opt(name).await? else { return Ok(()) };
    let Some(patch) = takeover_patch(&found.metadata) else { return Ok(()) };
    patch_managed_fields(api, name, patch).await.map(drop)
}

/// Sends a JSON patch of managed fields; returns the new metadata.
async fn patch_managed_fields(api: &Objects, name: &str, patch: Value) -> kube::Result<ObjectMeta> {
    let patch = serde_json::from_value(patch).map_err(kube::Error::SerdeError)?;
    Ok(api.patch_metadata(name, &patch_as(FIELD_MANAGER), &Patch::<()>::Json(patch)).await?.metadata)
}

#[cfg(test)]
mod tests {
    use kube::core::Status;
    use serde_json::json;

    use super::*;
    use knative_operator_objects::CompactObject;

    #[test]
    fn what_webhooks_of_knative_admit_waits_for_them() {
        let item = |api: &str, kind: &str| {
            Item::new(CompactObject::new(&json!({"apiVersion": api, "kind": kind, "metadata": {"name": "a"}})))
        };
        let error = |message: &str| {
            let status = json!({"status": "Failure", "message": message, "reason": "InternalError", "code": 500});
            kube::Error::Api(Box::new(serde_json::from_value(status).unwrap()))
        };
        let failed =
            error("Internal error occurred: failed calling webhook \"webhook.serving.knative.dev\": no endpoints");
        let certificate = item("networking.internal.knative.dev/v1alpha1", "Certificate");
        assert_eq!(webhook_delay(&certificate, &failed), Some(WEBHOOK_DELAY));
        assert_eq!(webhook_delay(&certificate, &error("denied")), None);
        // A webhook of somebody else may never answer.
        assert_eq!(webhook_delay(&item("v1", "ConfigMap"), &failed), None);
    }

    #[test]
    fn binding_waits_for_missing_role_only() {
        for (code, kind, is_missing) in [
            (404, "clusterroles", true),
            (404, "roles", true),
            (404, "namespaces", false),
            (403, "clusterrolebindings", false),
        ] {
            let status =
                json!({"status": "Failure", "message": "m", "reason": "r", "code": code, "details": {"kind": kind}});
            let status: Status = serde_json::from_value(status).unwrap();
            assert_eq!(is_role_missing(&kube::Error::Api(Box::new(status))), is_missing, "{code} {kind}");
        }
    }
}
