//! `spec.version`: available versions, and version skew.

use super::context::RuleContext;
use super::rule::{Example, Rule, Severity, Violation};
use knative_operator_shared::api::Knative;
use knative_operator_shared::label::{EACH, MINOR_VERSIONS};
use knative_operator_shared::version::{Version, VersionError};
use knative_operator_shared::way::Way;

/// Syntax of the version.
pub static SYNTAX: Rule = Rule {
    id: "version-syntax",
    severity: Severity::Error,
    requirement: "`spec.version` is a version, `major.minor`, or `latest`.",
    valid: Example::serving(r#"{"version": "latest"}"#),
    invalid: Example::serving(r#"{"version": "newest"}"#),
};

/// The bundle has the version.
pub static AVAILABLE: Rule = Rule {
    id: "version-available",
    severity: Severity::Error,
    requirement: "The operator's release bundle has `spec.version`, unless `spec.manifests` is set.",
    valid: Example::serving(r#"{"version": "1.22"}"#),
    invalid: Example::serving(r#"{"version": "0.1.0"}"#),
};

/// The version may follow the installed one.
pub static NEIGHBOR: Rule = Rule {
    id: "version-neighbor",
    severity: Severity::Error,
    requirement: "`spec.version` has the installed minor version or an adjacent one, or, with the annotation `operator.knative.dev/minor-versions: each`, another one if the release bundle has each minor version on the way.",
    valid: Example::change(
        r#"{"spec": {"version": "1.22"}, "status": {"version": "1.22.0"}}"#,
        r#"{"spec": {"version": "latest"}, "status": {"version": "1.22.0"}}"#,
    ),
    invalid: Example::change(
        r#"{"spec": {}, "status": {"version": "1.19.0"}}"#,
        r#"{"spec": {"version": "1.22"}, "status": {"version": "1.19.0"}}"#,
    ),
};

/// The version is not older than the installed one.
pub static DOWNGRADE: Rule = Rule {
    id: "version-downgrade",
    severity: Severity::Warning,
    requirement: "`spec.version` is not older than the installed version.",
    valid: Example::change(
        r#"{"spec": {"version": "latest"}, "status": {"version": "1.22.0"}}"#,
        r#"{"spec": {"version": "1.22"}, "status": {"version": "1.22.0"}}"#,
    ),
    invalid: Example::change(
        r#"{"spec": {"version": "1.23"}, "status": {"version": "1.23.0"}}"#,
        r#"{"spec": {"version": "1.22"}, "status": {"version": "1.23.0"}}"#,
    ),
};

/// Value of the annotation about minor versions.
pub static MINORS: Rule = Rule {
    id: "minor-versions",
    severity: Severity::Error,
    requirement: "The annotation `operator.knative.dev/minor-versions` has the value `each`.",
    valid: Example::serving(
        r#"{"metadata": {"annotations": {"operator.knative.dev/minor-versions": "each"}}, "spec": {}}"#,
    ),
    invalid: Example::serving(
        r#"{"metadata": {"annotations": {"operator.knative.dev/minor-versions": "all"}}, "spec": {}}"#,
    ),
};

const FIELD: &str = "spec.version";

pub fn check(resource: &Knative, context: &RuleContext<'_>, violations: &mut Vec<Violation>) {
    let common = resource.common();
    // An unknown value would have no effect.
    if let Some(value) = resource.annotation(MINOR_VERSIONS).filter(|value| *value != EACH) {
        violations.push(MINORS.at(
            format!("metadata.annotations[{MINOR_VERSIONS}]"),
            format!("has the unknown value \"{value}\""),
            format!("set it to \"{EACH}\", or remove it to ask for each minor version by spec.version"),
        ));
    }
    let asked = common.version.as_deref().unwrap_or_default();
    if !Version::is_well_formed(asked) {
        violations.push(SYNTAX.at(
            FIELD,
            format!("\"{asked}\" is not a version"),
            "set it to one such as 1.22.1, to 1.22 for its newest patch, or to latest",
        ));
        return;
    }
    let Some(catalog) = context.catalog.filter(|_| common.manifests.is_empty()) else { return };
    let available = catalog.versions(resource.component());
    let installed = resource.installed_version();
    let version = match Version::resolve_after(common.version.as_deref(), installed.as_ref(), available) {
        Ok(version) => version,
        Err(error) => {
            violations.push(from_version_error(&AVAILABLE, &error));
            return;
        }
    };
    if let Err(error) = Way::find(resource, installed.as_ref(), version.clone(), available) {
        violations.push(from_version_error(&NEIGHBOR, &error));
    } else if let Some(installed) = installed.filter(|installed| version < *installed) {
        violations.push(DOWNGRADE.at(
            FIELD,
            format!("{version} is older than the installed version {installed}"),
            "back up first: Knative doesn't guarantee that the older version can read objects that the newer one stored",
        ));
    }
}

/// `error` as a violation; its message ends with the fix.
fn from_version_error(rule: &'static Rule, error: &VersionError) -> Violation {
    let text = error.to_string();
    let (message, fix) = text
        .rsplit_once("; ")
        .unwrap_or((&text, "see the versions that the operator offers: knative-operator versions"));
    rule.at(FIELD, message, fix)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::{Value, json};

    use super::super::context::Catalog;
    use super::super::validate::validate_change;
    use super::*;
    use knative_operator_shared::api::{Component, KnativeServing};

    fn serving(annotations: &Value, spec: &Value, installed: &str) -> Knative {
        let object = json!({"apiVersion": "operator.knative.dev/v1beta1", "kind": "KnativeServing",
            "metadata": {"name": "a", "namespace": "b", "annotations": annotations}, "spec": spec,
            "status": {"version": installed}});
        Knative::Serving(serde_json::from_value::<KnativeServing>(object).unwrap())
    }

    fn catalog(versions: &[&str]) -> Catalog {
        let versions = versions.iter().map(|version| version.parse().unwrap()).collect();
        Catalog { versions: BTreeMap::from([(Component::Serving.kind().to_owned(), versions)]), ..Catalog::default() }
    }

    /// The rules that a change to `new` violates, with fields and messages.
    fn violated(catalog: &Catalog, old: &Knative, new: &Knative) -> Vec<(&'static str, String)> {
        let context = RuleContext { catalog: Some(catalog), ..RuleContext::default() };
        let found = validate_change(new, Some(old), &context);
        let of_versions =
            found.iter().filter(|one| ["minor-versions", "version-"].iter().any(|id| one.rule.id.starts_with(id)));
        of_versions.map(|violation| (violation.rule.id, violation.to_string())).collect()
    }

    #[test]
    fn minor_versions_are_skipped_only_if_the_resource_says_so() {
        let catalog = catalog(&["1.20.3", "1.21.3", "1.22.1", "1.23.0"]);
        let (none, each) = (json!({}), json!({"operator.knative.dev/minor-versions": "each"}));
        let (old, far) = (json!({"version": "1.20"}), json!({"version": "1.23"}));
        let before = serving(&none, &old, "1.20.3");
        let found = violated(&catalog, &before, &serving(&none, &far, "1.20.3"));
        assert!(
            matches!(&found[..], [("version-neighbor", text)] if text.contains("or set the annotation")),
            "{found:?}"
        );
        let accepted = violated(&catalog, &before, &serving(&each, &far, "1.20.3"));
        assert!(accepted.is_empty(), "{accepted:?}");
        // On the way, and back from there.
        let on_the_way = serving(&each, &far, "1.21.3");
        let accepted = violated(&catalog, &on_the_way, &serving(&each, &json!({"version": "1.22"}), "1.21.3"));
        assert!(accepted.is_empty(), "{accepted:?}");
        let back = violated(&catalog, &on_the_way, &serving(&each, &old, "1.22.1"));
        assert!(matches!(&back[..], [("version-downgrade", text)] if text.contains("1.20.3 is older")), "{back:?}");
        // Without the annotation, the rest of the way is refused again.
        let found = violated(&catalog, &on_the_way, &serving(&none, &far, "1.20.3"));
        assert!(matches!(&found[..], [("version-neighbor", _)]), "{found:?}");
    }

    #[test]
    fn way_with_a_gap_is_refused() {
        let catalog = catalog(&["1.20.3", "1.21.3", "1.23.0"]);
        let (none, each) = (json!({}), json!({"operator.knative.dev/minor-versions": "each"}));
        let before = serving(&none, &json!({"version": "1.20"}), "1.20.3");
        for spec in [json!({"version": "1.23"}), json!({})] {
            let found = violated(&catalog, &before, &serving(&each, &spec, "1.20.3"));
            assert!(
                matches!(&found[..], [("version-neighbor", text)]
                    if text.starts_with("spec.version: the release bundle lacks version 1.22, which is on the way from the installed version v1.20.3 to 1.23.0; install")),
                "{found:?}"
            );
        }
    }
}
