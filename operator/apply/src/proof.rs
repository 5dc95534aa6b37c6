//! Whether an installation may delete an object: the object itself must show that its owner applied
//! it. An inventory, which others may write, only says where to look. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use knative_operator_shared::api::Component;
use knative_operator_shared::label::{APP_NAME, DIGEST, OWNER_DIGEST};

use super::managed_fields::{has_go_operator_fields, owned_fields};
use super::takeover::CREATED_ANNOTATION;

/// Why an object without the mark of an owner and without the label of a component stays: other
/// operators have the field manager of the Go operator, too.
pub const UNLABELED: &str = "it has neither the mark of an owner nor the label app.kubernetes.io/name of the component";

/// What an object of an installation shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proof {
    /// The owner's mark, and those of the owners that it replaced.
    pub marks: Vec<String>,
    /// The marks of the owners that it replaced, on objects that the anchor owns.
    pub former: Vec<String>,
    /// The component.
    pub component: Component,
    /// Uid of the owner of the namespaced objects: the anchor, or the custom resource.
    pub owner: String,
    /// Whether objects without a mark count: an earlier version or the Go operator installed them.
    pub unmarked: bool,
    /// Whether those count, too, that lack the label of the component: a release that was installed
    /// has them. The Go operator adds no label.
    pub unlabeled: bool,
}

impl Proof {
    /// Why the object of `kind` with `meta` is not part of the installation; `None` if it is.
    pub fn objection(&self, kind: &str, meta: &ObjectMeta) -> Option<&'static str> {
        let annotation = |name: &str| meta.annotations.as_ref().and_then(|annotations| annotations.get(name));
        // Between the transfer of the Go operator's fields and the first apply, an object has the
        // annotation of the Go operator still.
        let (created, value) = CREATED_ANNOTATION;
        let is_transferred = annotation(created).is_some_and(|found| found == value);
        let is_applied = owned_fields(meta).is_some() && (annotation(DIGEST).is_some() || is_transferred);
        if !is_applied && !has_go_operator_fields(meta) {
            return Some("the operator did not apply it");
        }
        let is_owned = !self.owner.is_empty()
            && meta.owner_references.iter().flatten().any(|reference| reference.uid == self.owner);
        let label = meta.labels.as_ref().and_then(|labels| labels.get(APP_NAME));
        let has_label_of_another = label.is_some_and(|name| name != self.component.canonical());
        let mark = annotation(OWNER_DIGEST);
        // A Job is not written again after another owner took over its anchor. The mark of another
        // owner on any other object shows that this one was replaced.
        let is_known = |mark: &String| self.marks.contains(mark) || self.former.contains(mark);
        let is_of_another = mark.is_some_and(|mark| !is_known(mark)) && kind != "Job";
        match mark {
            _ if is_owned && !is_of_another => None,
            _ if has_label_of_another => Some("it is part of another component"),
            Some(mark) if self.marks.contains(mark) => None,
            Some(_) => Some("it is part of another installation"),
            None if !self.unmarked => Some("nothing shows that this resource installed it"),
            None if label.is_none() && !self.unlabeled => Some(UNLABELED),
            None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use knative_operator_shared::label::FIELD_MANAGER;
    use serde_json::{Value, json};

    use super::*;

    fn meta(manager: &str, operation: &str, annotations: &Value, owner: &str) -> ObjectMeta {
        serde_json::from_value(json!({
            "annotations": annotations,
            "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "anchor", "uid": owner}],
            "managedFields": [{"manager": manager, "operation": operation, "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {}}],
        }))
        .unwrap()
    }

    #[test]
    fn only_what_the_owner_applied_is_deleted() {
        let strict = Proof {
            marks: vec!["me".to_owned()],
            former: vec!["before".to_owned()],
            component: Component::Serving,
            owner: "anchor-1".to_owned(),
            unmarked: false,
            unlabeled: false,
        };
        let lenient = Proof { unmarked: true, unlabeled: true, ..strict.clone() };
        let own = json!({DIGEST: "1", OWNER_DIGEST: "me"});
        let replaced = json!({DIGEST: "1", OWNER_DIGEST: "before"});
        let (unmarked, foreign) = (json!({DIGEST: "1"}), json!({DIGEST: "1", OWNER_DIGEST: "other"}));
        let (none, transferred) = (json!({}), json!({"manifestival": "new"}));
        for (manager, operation, annotations, owner, is_ours, is_ours_unmarked) in [
            (FIELD_MANAGER, "Apply", &own, "", true, true),
            (FIELD_MANAGER, "Apply", &unmarked, "", false, true),
            (FIELD_MANAGER, "Apply", &unmarked, "anchor-1", true, true),
            (FIELD_MANAGER, "Apply", &foreign, "", false, false),
            (FIELD_MANAGER, "Apply", &replaced, "", false, false),
            (FIELD_MANAGER, "Apply", &replaced, "anchor-1", true, true),
            // Another owner took over the anchor, and applied it.
            (FIELD_MANAGER, "Apply", &foreign, "anchor-1", false, false),
            // Without the digest: the webhook's configuration, of which the operator sets a field.
            (FIELD_MANAGER, "Apply", &none, "", false, false),
            // The operator ended between the transfer of the Go operator's fields and the apply.
            (FIELD_MANAGER, "Apply", &transferred, "", false, true),
            ("kubectl", "Apply", &transferred, "", false, false),
            (FIELD_MANAGER, "Update", &own, "", false, false),
            // Anybody can write annotations and owner references.
            ("kubectl", "Apply", &own, "anchor-1", false, false),
            ("manifestival", "Update", &none, "", false, true),
            ("manifestival", "Update", &none, "anchor-1", true, true),
        ] {
            let meta = meta(manager, operation, annotations, owner);
            let found = [&strict, &lenient].map(|proof| proof.objection("Deployment", &meta).is_none());
            assert_eq!(found, [is_ours, is_ours_unmarked], "{manager} {operation} {annotations} {owner}");
        }
        for (owner, is_ours) in [("anchor-1", true), ("", false)] {
            let job = meta(FIELD_MANAGER, "Apply", &foreign, owner);
            assert_eq!(strict.objection("Job", &job).is_none(), is_ours, "a Job of {owner}");
        }
    }

    #[test]
    fn unmarked_object_needs_the_label_of_the_component() {
        let proof = Proof {
            marks: vec!["me".to_owned()],
            former: Vec::new(),
            component: Component::Serving,
            owner: "anchor-1".to_owned(),
            unmarked: true,
            unlabeled: false,
        };
        let in_release = Proof { unlabeled: true, ..proof.clone() };
        let created = json!({"manifestival": "new"});
        for (label, owner, is_ours, is_ours_in_release) in [
            (Some("knative-serving"), "", true, true),
            (Some("knative-eventing"), "", false, false),
            (Some("tekton"), "", false, false),
            // A ClusterRole of another operator, in a forged inventory; or one of a source that the
            // Go operator installed.
            (None, "", false, true),
            (None, "anchor-1", true, true),
        ] {
            let mut found = meta("manifestival", "Update", &created, owner);
            found.labels = label.map(|label| [(APP_NAME.to_owned(), label.to_owned())].into());
            let is_part = [&proof, &in_release].map(|proof| proof.objection("ClusterRole", &found).is_none());
            assert_eq!(is_part, [is_ours, is_ours_in_release], "{label:?} {owner}");
        }
        let applied = meta(FIELD_MANAGER, "Apply", &json!({DIGEST: "1"}), "");
        assert_eq!(proof.objection("ClusterRole", &applied), Some(UNLABELED));
    }
}
