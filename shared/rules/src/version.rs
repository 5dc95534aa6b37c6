//! `spec.version`: available versions, and version skew.

use super::context::RuleContext;
use super::rule::{Example, Rule, Severity, Violation};
use knative_operator_shared::api::Knative;
use knative_operator_shared::version::{Version, VersionError};

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
    requirement: "`spec.version` has the installed minor version or an adjacent one.",
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

const FIELD: &str = "spec.version";

pub fn check(resource: &Knative, context: &RuleContext<'_>, violations: &mut Vec<Violation>) {
    let (common, kind) = (resource.common(), resource.component().kind());
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
    if let Err(error) = version.may_follow(installed.as_ref(), kind) {
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
