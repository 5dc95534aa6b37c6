//! `spec.clusterProfileRef`: where a component lives never changes.

use super::{Example, Problem, Rule, Severity, syntax};
use crate::api::{ClusterProfileReference, Knative};
use crate::name;

/// It never changes.
pub static IMMUTABLE: Rule = Rule {
    id: "cluster-profile-ref-immutable",
    severity: Severity::Error,
    says: "`spec.clusterProfileRef` is never changed, added or removed.",
    kept: Example::change(
        r#"{"clusterProfileRef": {"name": "healthy", "namespace": "rules-fleet"}}"#,
        r#"{"clusterProfileRef": {"name": "healthy", "namespace": "rules-fleet"}, "high-availability": {"replicas": 2}}"#,
    ),
    broken: Example::change(
        r#"{"clusterProfileRef": {"name": "healthy", "namespace": "rules-fleet"}}"#,
        r#"{"clusterProfileRef": {"name": "other", "namespace": "rules-fleet"}}"#,
    ),
};

/// It names something that can be there.
pub static NAME: Rule = Rule {
    id: "cluster-profile-ref-name",
    severity: Severity::Error,
    says: "`spec.clusterProfileRef` has a name and a namespace as Kubernetes allows them.",
    kept: Example::serving(r#"{"clusterProfileRef": {"name": "healthy", "namespace": "rules-fleet"}}"#),
    broken: Example::serving(r#"{"clusterProfileRef": {"name": "Spoke_1", "namespace": "rules-fleet"}}"#),
};

/// The anchor's name fits.
pub static ANCHOR: Rule = Rule {
    id: "anchor-name-length",
    severity: Severity::Error,
    says: "With `spec.clusterProfileRef`, the name leaves room for that of the anchor ConfigMap on the spoke.",
    kept: Example::serving(r#"{"clusterProfileRef": {"name": "healthy", "namespace": "rules-fleet"}}"#),
    broken: Example::serving(
        r#"{"metadata": {"name": "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}, "spec": {"clusterProfileRef": {"name": "healthy", "namespace": "rules-fleet"}}}"#,
    ),
};

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
    Some(IMMUTABLE.at(
        FIELD,
        format!("{done} after creation (from {} to {})", place(was.as_ref()), place(is.as_ref())),
        format!(
            "to move {} {}/{}, delete it, wait until it is gone, and create it again with the new reference",
            new.component(),
            new.namespace(),
            new.name()
        ),
    ))
}

/// The names in it, and that of the anchor, are as Kubernetes wants them.
pub fn names(resource: &Knative, found: &mut Vec<Problem>) {
    let Some(reference) = &resource.common().cluster_profile_ref else { return };
    for (field, name, wrong) in [
        ("name", &reference.name, syntax::subdomain(&reference.name)),
        ("namespace", &reference.namespace, syntax::label(&reference.namespace)),
    ] {
        if let Some(wrong) = wrong {
            found.push(NAME.at(
                format!("{FIELD}.{field}"),
                format!("\"{name}\" {wrong}"),
                "name a ClusterProfile: kubectl get clusterprofiles -A",
            ));
        }
    }
    let anchor = name::anchor(resource.component(), resource.name());
    if anchor.len() > name::MAX_NAME {
        found.push(ANCHOR.at(
            "metadata.name",
            format!(
                "gives the anchor ConfigMap on the spoke a name of {} characters, more than {}",
                anchor.len(),
                name::MAX_NAME
            ),
            format!("shorten it by {} characters", anchor.len() - name::MAX_NAME),
        ));
    }
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
        spec.common.cluster_profile_ref = reference
            .map(|(namespace, name)| ClusterProfileReference { name: name.into(), namespace: namespace.into() });
        let mut serving = KnativeServing::new("ks", spec);
        serving.metadata.namespace = Some("knative-serving".into());
        Knative::Serving(serving)
    }

    #[test]
    fn the_three_changes_are_refused_with_both_values_and_a_way_out() {
        for (old, new, expected) in [
            (
                Some(("fleet", "a")),
                Some(("fleet", "b")),
                "cannot be changed after creation (from \"fleet/a\" to \"fleet/b\")",
            ),
            (
                None,
                Some(("fleet", "b")),
                "cannot be added after creation (from none, the local cluster to \"fleet/b\")",
            ),
            (
                Some(("fleet", "a")),
                None,
                "cannot be removed after creation (from \"fleet/a\" to none, the local cluster)",
            ),
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
        let broken = |long: &KnativeServing| {
            let mut found = Vec::new();
            names(&Knative::Serving(long.clone()), &mut found);
            found.iter().map(|p| p.rule.id).collect::<Vec<_>>()
        };
        assert!(broken(&long).is_empty());
        long.metadata.name = Some("x".repeat(240));
        assert_eq!(broken(&long), ["anchor-name-length"]);
        long.spec.common.cluster_profile_ref = None;
        assert!(broken(&long).is_empty());
    }
}
