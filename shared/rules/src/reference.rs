//! `spec.clusterProfileRef`: the target cluster is immutable.

use super::rule::{Example, Rule, Severity, Violation};
use knative_operator_shared::api::{ClusterProfileReference, Knative};
use knative_operator_shared::name;
use knative_operator_shared::syntax;

/// The reference is immutable.
pub static IMMUTABLE: Rule = Rule {
    id: "cluster-profile-ref-immutable",
    severity: Severity::Error,
    requirement: "`spec.clusterProfileRef` is immutable: it can't be changed, added or removed.",
    valid: Example::change(
        r#"{"clusterProfileRef": {"name": "healthy", "namespace": "rules-fleet"}}"#,
        r#"{"clusterProfileRef": {"name": "healthy", "namespace": "rules-fleet"}, "high-availability": {"replicas": 2}}"#,
    ),
    invalid: Example::change(
        r#"{"clusterProfileRef": {"name": "healthy", "namespace": "rules-fleet"}}"#,
        r#"{"clusterProfileRef": {"name": "other", "namespace": "rules-fleet"}}"#,
    ),
};

/// Syntax of the reference.
pub static NAME: Rule = Rule {
    id: "cluster-profile-ref-name",
    severity: Severity::Error,
    requirement: "`spec.clusterProfileRef` has a valid name and namespace.",
    valid: Example::serving(r#"{"clusterProfileRef": {"name": "healthy", "namespace": "rules-fleet"}}"#),
    invalid: Example::serving(r#"{"clusterProfileRef": {"name": "Spoke_1", "namespace": "rules-fleet"}}"#),
};

/// Length of the anchor's name.
pub static ANCHOR: Rule = Rule {
    id: "anchor-name-length",
    severity: Severity::Error,
    requirement: "With `spec.clusterProfileRef`, the name is short enough for the name of the anchor ConfigMap on the spoke.",
    valid: Example::serving(r#"{"clusterProfileRef": {"name": "healthy", "namespace": "rules-fleet"}}"#),
    invalid: Example::serving(
        r#"{"metadata": {"name": "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}, "spec": {"clusterProfileRef": {"name": "healthy", "namespace": "rules-fleet"}}}"#,
    ),
};

const FIELD: &str = "spec.clusterProfileRef";

/// The violation if `new` changes, adds or removes the reference of `old`, which would orphan an
/// installation.
pub fn check_immutable(new: &Knative, old: &Knative) -> Option<Violation> {
    let (before, after) = (&old.common().cluster_profile_ref, &new.common().cluster_profile_ref);
    if before == after {
        return None;
    }
    let violation = match (before, after) {
        (None, _) => "cannot be added",
        (_, None) => "cannot be removed",
        _ => "cannot be changed",
    };
    Some(IMMUTABLE.at(
        FIELD,
        format!("{violation} after creation (from {} to {})", describe(before.as_ref()), describe(after.as_ref())),
        format!(
            "to move {} {}/{}, delete it, wait until it is gone, and create it again with the new reference",
            new.component(),
            new.namespace(),
            new.name()
        ),
    ))
}

/// Checks the names in the reference, and the name of the anchor.
pub fn check_names(resource: &Knative, violations: &mut Vec<Violation>) {
    let Some(reference) = &resource.common().cluster_profile_ref else { return };
    for (field, name, wrong) in [
        ("name", &reference.name, syntax::subdomain(&reference.name)),
        ("namespace", &reference.namespace, syntax::label(&reference.namespace)),
    ] {
        if let Some(wrong) = wrong {
            violations.push(NAME.at(
                format!("{FIELD}.{field}"),
                format!("\"{name}\" {wrong}"),
                "name a ClusterProfile: kubectl get clusterprofiles -A",
            ));
        }
    }
    let anchor = name::anchor(resource.component(), resource.name());
    if anchor.len() > name::MAX_NAME {
        violations.push(ANCHOR.at(
            "metadata.name",
            format!(
                "is {} characters too long: a ConfigMap on the spoke is named after it",
                anchor.len() - name::MAX_NAME
            ),
            format!("shorten it by {} characters", anchor.len() - name::MAX_NAME),
        ));
    }
}

fn describe(reference: Option<&ClusterProfileReference>) -> String {
    reference.map_or_else(|| "none, the local cluster".to_owned(), |r| format!("\"{r}\""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use knative_operator_shared::api::{KnativeServing, KnativeServingSpec};

    fn serving(reference: Option<(&str, &str)>) -> Knative {
        let mut spec = KnativeServingSpec::default();
        spec.common.cluster_profile_ref = reference
            .map(|(namespace, name)| ClusterProfileReference { name: name.into(), namespace: namespace.into() });
        let mut serving = KnativeServing::new("ks", spec);
        serving.metadata.namespace = Some("knative-serving".into());
        Knative::Serving(serving)
    }

    #[test]
    fn change_is_refused_with_both_values_and_fix() {
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
            let violation = check_immutable(&serving(new), &serving(old)).unwrap();
            assert_eq!(violation.message, expected);
            assert_eq!(violation.field, "spec.clusterProfileRef");
            assert!(violation.fix.contains("delete it"));
        }
        assert_eq!(check_immutable(&serving(Some(("f", "a"))), &serving(Some(("f", "a")))), None);
        assert_eq!(check_immutable(&serving(None), &serving(None)), None);
    }

    #[test]
    fn anchor_name_is_limited() {
        let Knative::Serving(mut long) = serving(Some(("f", "a"))) else { unreachable!() };
        long.metadata.name = Some("x".repeat(253 - "knativeserving--root-owner".len()));
        let invalid = |long: &KnativeServing| {
            let mut violations = Vec::new();
            check_names(&Knative::Serving(long.clone()), &mut violations);
            violations.iter().map(|p| p.rule.id).collect::<Vec<_>>()
        };
        assert!(invalid(&long).is_empty());
        long.metadata.name = Some("x".repeat(240));
        assert_eq!(invalid(&long), ["anchor-name-length"]);
        long.spec.common.cluster_profile_ref = None;
        assert!(invalid(&long).is_empty());
    }
}
