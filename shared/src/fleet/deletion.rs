//! The deletion of a fleet is the removal of all its clusters: beyond `spec.removal.maxAtOnce`, it
//! must be confirmed for their number. So must a component that the fleet drops.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use super::stage::limit;
use crate::api::Component;
use crate::api::fleet::{Removal, RemovalPolicy};
use crate::label::CONFIRM_REMOVAL;

/// Percentage of the clusters that may leave within a day, by default.
pub const MAX_AT_ONCE: usize = 10;

/// Number of `clusters` from which `removal` lets something be uninstalled without a confirmation.
fn allowed(removal: &Removal, clusters: usize) -> usize {
    limit(removal.max_at_once.as_ref(), clusters.saturating_mul(MAX_AT_ONCE) / 100, clusters)
}

/// What the deletion of the fleet with `meta` does, and what to do, if it would uninstall from more
/// of its `clusters` than `removal` allows and nobody confirmed that. After the deletion has begun,
/// `--cascade=orphan` would come too late.
pub fn unconfirmed(meta: &ObjectMeta, removal: &Removal, clusters: usize) -> Option<(String, String)> {
    let limit = allowed(removal, clusters);
    if removal.policy != RemovalPolicy::Delete || clusters <= limit || confirmed(meta).is_some_and(|n| n >= clusters) {
        return None;
    }
    let (name, namespace) = (meta.name.as_deref().unwrap_or_default(), meta.namespace.as_deref().unwrap_or_default());
    let from = if clusters == 1 { "1 cluster".to_owned() } else { format!("{clusters} clusters") };
    let message = format!("would uninstall from {from}, more than {limit} (spec.removal.maxAtOnce)");
    let fix = format!(
        "to confirm: knative-operator fleet delete {name} -n {namespace}, or kubectl annotate knativefleet {name} -n {namespace} \
         {CONFIRM_REMOVAL}={clusters} --overwrite; to keep the installations: set spec.removal.policy to Orphan"
    );
    Some((message, fix))
}

/// The same for a fleet without its former template of `component`, which is uninstalled from all
/// its clusters, also with the policy `Orphan`. The number is confirmed for that component, and in
/// the same change: `before` is what the stored fleet confirms, which is of another time.
pub fn unconfirmed_drop(
    meta: &ObjectMeta,
    (removal, before): (&Removal, Option<&str>),
    component: Component,
    clusters: usize,
) -> Option<(String, String)> {
    let limit = allowed(removal, clusters);
    let field = field(component);
    let recorded = meta.annotations.as_ref().and_then(|all| all.get(CONFIRM_REMOVAL));
    let recorded = recorded.filter(|recorded| Some(recorded.as_str()) != before);
    let number = recorded.and_then(|text| text.strip_prefix(field)?.strip_prefix('=')?.parse::<usize>().ok());
    if clusters <= limit || number.is_some_and(|confirmed| confirmed >= clusters) {
        return None;
    }
    let from = if clusters == 1 { "1 cluster".to_owned() } else { format!("up to {clusters} clusters") };
    let message = format!(
        "is no longer set, which would uninstall {component} from {from}, more than {limit} (spec.removal.maxAtOnce)"
    );
    let (name, namespace) = (meta.name.as_deref().unwrap_or_default(), meta.namespace.as_deref().unwrap_or_default());
    let fix = format!(
        "set it again; to confirm, in the same change: set the annotation {CONFIRM_REMOVAL} of KnativeFleet {namespace}/{name} to {field}={clusters}"
    );
    Some((message, fix))
}

/// The field of a fleet's spec with the template of `component`.
pub fn field(component: Component) -> &'static str {
    match component {
        Component::Serving => "serving",
        Component::Eventing => "eventing",
    }
}

/// The number of clusters with an installation in the stored `status` of a fleet. An earlier
/// version recorded no other number than that of the selected clusters.
pub fn installed(status: &Value) -> usize {
    let number = |field: &str| status[field].as_u64().and_then(|number| usize::try_from(number).ok());
    number("installed").or_else(|| number("clusters")).unwrap_or_default()
}

/// The number of clusters from which the deletion of the fleet with `meta` may uninstall, as
/// somebody confirmed it.
fn confirmed(meta: &ObjectMeta) -> Option<usize> {
    meta.annotations.as_ref()?.get(CONFIRM_REMOVAL)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

    use super::*;

    #[test]
    fn deletion_is_confirmed_for_the_number_of_clusters() {
        let meta = |confirmed: &str| ObjectMeta {
            name: Some("prod".to_owned()),
            namespace: Some("platform".to_owned()),
            annotations: Some(BTreeMap::from([(CONFIRM_REMOVAL.to_owned(), confirmed.to_owned())])),
            ..ObjectMeta::default()
        };
        let percent = |text: &str| Some(IntOrString::String(text.to_owned()));
        for (confirmed, policy, max_at_once, clusters, is_confirmed) in [
            ("", RemovalPolicy::Delete, None, 0, true),
            // By default, also the last one must be confirmed.
            ("", RemovalPolicy::Delete, None, 1, false),
            ("1", RemovalPolicy::Delete, None, 1, true),
            ("40", RemovalPolicy::Delete, None, 40, true),
            // While it is deleted, there are fewer.
            ("40", RemovalPolicy::Delete, None, 7, true),
            ("40", RemovalPolicy::Delete, None, 41, false),
            ("true", RemovalPolicy::Delete, None, 2, false),
            ("-1", RemovalPolicy::Delete, None, 2, false),
            ("", RemovalPolicy::Delete, None, usize::MAX, false),
            ("", RemovalPolicy::Orphan, None, 40, true),
            ("", RemovalPolicy::Delete, percent("100%"), 40, true),
            ("", RemovalPolicy::Delete, percent("99%"), 40, false),
            ("", RemovalPolicy::Delete, Some(IntOrString::Int(2)), 2, true),
            ("", RemovalPolicy::Delete, Some(IntOrString::Int(2)), 3, false),
        ] {
            let removal = Removal { policy, max_at_once, ..Removal::default() };
            let found = unconfirmed(&meta(confirmed), &removal, clusters);
            assert_eq!(found.is_none(), is_confirmed, "{confirmed:?} {removal:?} {clusters}: {found:?}");
        }
        for (confirmed, before, clusters, is_confirmed) in [
            ("", None, 0, true),
            ("", None, 2, false),
            ("eventing=2", None, 2, true),
            ("eventing=2", Some("eventing=1"), 2, true),
            ("eventing=2", Some("eventing=2"), 2, false),
            ("eventing=2", None, 3, false),
            ("2", None, 2, false),
            ("serving=2", None, 2, false),
        ] {
            // The policy is about clusters that leave.
            let removal = Removal { policy: RemovalPolicy::Orphan, ..Removal::default() };
            let found = unconfirmed_drop(&meta(confirmed), (&removal, before), Component::Eventing, clusters);
            assert_eq!(found.is_none(), is_confirmed, "{confirmed:?} {clusters}: {found:?}");
        }
        let (message, fix) = unconfirmed(&meta(""), &Removal::default(), 25).unwrap();
        assert_eq!(message, "would uninstall from 25 clusters, more than 2 (spec.removal.maxAtOnce)");
        assert!(
            fix.contains("kubectl annotate knativefleet prod -n platform operator.knative.dev/confirm-removal=25"),
            "{fix}"
        );
    }
}
