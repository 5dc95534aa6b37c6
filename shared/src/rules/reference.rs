//! `spec.clusterProfileRef`: where a component lives never changes.

use super::Problem;
use crate::api::{ClusterProfileReference, Knative};
use crate::name;

const FIELD: &str = "spec.clusterProfileRef";

/// Changing, adding or removing the reference is refused: it would leave an installation behind.
pub fn immutable(new: &Knative, old: &Knative) -> Option<Problem> {
    let (was, is) = (&old.common().cluster_profile_ref, &new.common().cluster_profile_ref);
    if was == is {
        return None;
    }
    let done = match (was, is) {
        (None, _) => "cannot be added",
        (_, None) => "cannot be removed",
        _ => "cannot be changed",
    };
    Some(Problem {
        rule: "cluster-profile-ref-immutable",
        field: FIELD.to_owned(),
        message: format!("{done} after creation (from {} to {})", place(was.as_ref()), place(is.as_ref())),
        fix: format!(
            "to move {} {}/{}, delete it, wait until it is gone, and create it again with the new reference",
            new.component(),
            new.namespace(),
            new.name()
        ),
    })
}

/// The anchor's name must fit Kubernetes' limit.
pub fn names(resource: &Knative) -> Vec<Problem> {
    if resource.common().cluster_profile_ref.is_none() {
        return Vec::new();
    }
    let anchor = name::anchor(resource.component(), resource.name());
    if anchor.len() <= name::MAX_NAME {
        return Vec::new();
    }
    vec![Problem {
        rule: "anchor-name-length",
        field: "metadata.name".to_owned(),
        message: format!("gives the anchor ConfigMap on the spoke a name of {} characters, more than {}", anchor.len(), name::MAX_NAME),
        fix: format!("shorten it by {} characters", anchor.len() - name::MAX_NAME),
    }]
}

fn place(reference: Option<&ClusterProfileReference>) -> String {
    reference.map_or_else(|| "none, the local cluster".to_owned(), |r| format!("\"{r}\""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{KnativeServing, KnativeServingSpec};

    fn serving(reference: Option<(&str, &str)>) -> Knative {
        let mut spec = KnativeServingSpec::default();
        spec.common.cluster_profile_ref =
            reference.map(|(namespace, name)| ClusterProfileReference { name: name.into(), namespace: namespace.into() });
        let mut serving = KnativeServing::new("ks", spec);
        serving.metadata.namespace = Some("knative-serving".into());
        Knative::Serving(serving)
    }

    #[test]
    fn the_three_changes_are_refused_with_both_values_and_a_way_out() {
        for (old, new, expected) in [
            (Some(("fleet", "a")), Some(("fleet", "b")), "cannot be changed after creation (from \"fleet/a\" to \"fleet/b\")"),
            (None, Some(("fleet", "b")), "cannot be added after creation (from none, the local cluster to \"fleet/b\")"),
            (Some(("fleet", "a")), None, "cannot be removed after creation (from \"fleet/a\" to none, the local cluster)"),
        ] {
            let problem = immutable(&serving(new), &serving(old)).unwrap();
            assert_eq!(problem.message, expected);
            assert_eq!(problem.field, "spec.clusterProfileRef");
            assert!(problem.fix.contains("delete it"));
        }
        assert_eq!(immutable(&serving(Some(("f", "a"))), &serving(Some(("f", "a")))), None);
        assert_eq!(immutable(&serving(None), &serving(None)), None);
    }

    #[test]
    fn an_anchor_name_must_fit() {
        let Knative::Serving(mut long) = serving(Some(("f", "a"))) else { unreachable!() };
        long.metadata.name = Some("x".repeat(253 - "knativeserving--root-owner".len()));
        assert!(names(&Knative::Serving(long.clone())).is_empty());
        long.metadata.name = Some("x".repeat(240));
        assert_eq!(names(&Knative::Serving(long.clone()))[0].rule, "anchor-name-length");
        long.spec.common.cluster_profile_ref = None;
        assert!(names(&Knative::Serving(long)).is_empty());
    }
}
