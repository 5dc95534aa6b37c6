//! Events about applied, repaired, adopted and pruned objects.

use knative_operator_shared::api::Knative;
use knative_operator_shared::text::and_more;

use super::context::Context;
use super::events::Events;
use knative_operator_apply::claim::Anchor;
use knative_operator_apply::engine::ApplyOutcome;
use knative_operator_apply::observed::Drift;
use knative_operator_objects::ObjectId;

/// Maximum number of objects named in an event.
const MAX_NAMED: usize = 8;

/// Publishes what an apply repaired, adopted, and found contended.
pub fn publish(events: &Events, resource: &Knative, applied: &ApplyOutcome) {
    if !applied.repaired.is_empty() {
        let repaired = |(id, drift): &(ObjectId, Option<Drift>)| format!("{id}: {}", describe(drift.as_ref()));
        events.normal(resource, "DriftRepaired", format!("Repaired {}", join(&applied.repaired, "; ", repaired)));
    }
    if !applied.adopted.is_empty() {
        let adopted = |(id, manager): &(ObjectId, String)| format!("{id} (managed by \"{manager}\")");
        let note = format!(
            "Took ownership of objects that existed before the installation: {}",
            join(&applied.adopted, ", ", adopted)
        );
        // Who applies a resource usually creates its namespace first.
        let is_prepared = |(id, _): &(ObjectId, String)| id.group.is_empty() && id.kind == "Namespace";
        if applied.adopted.iter().all(is_prepared) {
            events.normal(resource, "Adopted", note);
        } else {
            events.warning(resource, "Adopted", note);
        }
    }
    for note in fights(&applied.contended) {
        events.warning(resource, "DriftFight", note);
    }
}

/// The notes about `contended` objects: of the first few, and how many others there are. A cluster
/// may change all of them.
fn fights(contended: &[(ObjectId, Option<Drift>)]) -> Vec<String> {
    let fight = |(id, drift): &(ObjectId, Option<Drift>)| {
        let drift = drift.as_ref();
        let manager = drift.and_then(|d| d.manager.as_ref());
        let manager = manager.map_or_else(|| "Another client".to_owned(), |m| format!("Field manager \"{m}\""));
        let field = drift.and_then(|d| d.field.as_ref()).map(|f| format!(" (field {f})")).unwrap_or_default();
        format!("{manager} keeps changing {id}{field}; from now on the operator repairs it at most five times a minute")
    };
    let mut notes: Vec<String> = contended.iter().take(MAX_NAMED).map(fight).collect();
    if let others @ 1.. = contended.len() - notes.len() {
        notes.push(format!(
            "{others} more objects keep being changed; from now on the operator repairs each at most five times a minute"
        ));
    }
    notes
}

/// Publishes the objects that were deleted because they are no longer part of the installation.
pub fn publish_pruned(events: &Events, resource: &Knative, deleted: &[ObjectId]) {
    if !deleted.is_empty() {
        let names = join(deleted, ", ", ToString::to_string);
        events.normal(
            resource,
            "Pruned",
            format!("Deleted objects that are no longer part of the installation: {names}"),
        );
    }
}

/// Publishes the objects that are not deleted with the installation, since they are not part of it.
pub fn publish_left(cx: &Context, resource: &Knative, left: &[(ObjectId, &'static str)]) {
    if !left.is_empty() {
        cx.metrics.objects_left(resource, left.len());
        let named = |(id, why): &(ObjectId, &'static str)| format!("{id} ({why})");
        let note =
            format!("Left objects in the inventory that are not part of the installation: {}", join(left, ", ", named));
        cx.events.warning(resource, "ObjectsLeft", note);
    }
}

/// Reports `anchor`, which claims the installation of `resource` without right.
pub fn publish_ignored(events: &Events, resource: &Knative, anchor: &Anchor) {
    let Anchor { namespace, name, .. } = anchor;
    let note = format!(
        "ConfigMap {namespace}/{name} on the cluster says that {} there belongs to another owner. It is ignored, since this resource \
         installed it; delete the ConfigMap",
        resource.component()
    );
    events.warning(resource, "ClaimIgnored", note);
}

/// What happened to a repaired object.
fn describe(drift: Option<&Drift>) -> String {
    let Some(Drift { manager, field }) = drift else { return "it was deleted".to_owned() };
    let field = field.as_ref().map_or_else(|| "it".to_owned(), |field| format!("field {field}"));
    let manager = manager.as_ref().map(|manager| format!(" by {manager}")).unwrap_or_default();
    format!("{field} was changed{manager}")
}

/// Joins the first few of `all`.
fn join<T>(all: &[T], separator: &str, name: impl Fn(&T) -> String) -> String {
    let shown: Vec<_> = all.iter().take(MAX_NAMED).map(name).collect();
    shown.join(separator) + &and_more(all.len().saturating_sub(MAX_NAMED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_that_all_keep_being_changed_have_few_notes() {
        let id = ObjectId::new("apps", "Deployment", "n", "a");
        let drift = Drift { manager: Some("kubectl".to_owned()), field: Some("spec.replicas".to_owned()) };
        let notes = |count: usize| fights(&vec![(id.clone(), Some(drift.clone())); count]);
        assert!(notes(0).is_empty());
        let one = "Field manager \"kubectl\" keeps changing Deployment n/a (field spec.replicas); from now on the operator repairs it at most five times a minute";
        assert_eq!(notes(1), [one]);
        assert_eq!(notes(MAX_NAMED).len(), MAX_NAMED);
        let many = notes(5000);
        assert_eq!(many.len(), MAX_NAMED + 1);
        assert!(many[MAX_NAMED].starts_with("4992 more objects "), "{many:?}");
    }

    #[test]
    fn repair_names_field_and_manager() {
        let drift = |manager: Option<&str>, field: Option<&str>| {
            describe(Some(&Drift { manager: manager.map(str::to_owned), field: field.map(str::to_owned) }))
        };
        let cases = [
            (drift(Some("kubectl-scale"), Some("spec.replicas")), "field spec.replicas was changed by kubectl-scale"),
            (drift(None, Some("spec.replicas")), "field spec.replicas was changed"),
            (drift(Some("kubectl"), None), "it was changed by kubectl"),
            (describe(None), "it was deleted"),
        ];
        for (described, expected) in cases {
            assert_eq!(described, expected);
        }
    }
}
