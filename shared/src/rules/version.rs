//! `spec.version`: what can be installed, and what may follow what is.

use super::{Example, Problem, Rule, Severity, Surroundings};
use crate::api::Knative;
use crate::version::{Version, VersionError};

/// Its syntax.
pub static SYNTAX: Rule = Rule {
    id: "version-syntax",
    severity: Severity::Error,
    says: "`spec.version` is a version, `major.minor`, or `latest`.",
    kept: Example::serving(r#"{"version": "latest"}"#),
    broken: Example::serving(r#"{"version": "newest"}"#),
};

/// The bundle has it.
pub static AVAILABLE: Rule = Rule {
    id: "version-available",
    severity: Severity::Error,
    says: "The operator's release bundle has `spec.version`, unless `spec.manifests` brings it along.",
    kept: Example::serving(r#"{"version": "1.22"}"#),
    broken: Example::serving(r#"{"version": "0.1.0"}"#),
};

/// It may follow what is installed.
pub static NEIGHBOUR: Rule = Rule {
    id: "version-neighbour",
    severity: Severity::Error,
    says: "`spec.version` is of the minor version that is installed, or of a neighbouring one.",
    kept: Example::change(
        r#"{"spec": {"version": "1.22"}, "status": {"version": "1.22.0"}}"#,
        r#"{"spec": {"version": "latest"}, "status": {"version": "1.22.0"}}"#,
    ),
    broken: Example::change(
        r#"{"spec": {}, "status": {"version": "1.19.0"}}"#,
        r#"{"spec": {"version": "1.22"}, "status": {"version": "1.19.0"}}"#,
    ),
};

/// It is no older than what is installed.
pub static DOWNGRADE: Rule = Rule {
    id: "version-downgrade",
    severity: Severity::Warning,
    says: "`spec.version` is no older than what is installed.",
    kept: Example::change(
        r#"{"spec": {"version": "latest"}, "status": {"version": "1.22.0"}}"#,
        r#"{"spec": {"version": "1.22"}, "status": {"version": "1.22.0"}}"#,
    ),
    broken: Example::change(
        r#"{"spec": {"version": "latest"}, "status": {"version": "1.22.99"}}"#,
        r#"{"spec": {"version": "1.22"}, "status": {"version": "1.22.99"}}"#,
    ),
};

const FIELD: &str = "spec.version";

pub fn check(resource: &Knative, around: &Surroundings<'_>, found: &mut Vec<Problem>) {
    let (common, kind) = (resource.common(), resource.component().kind());
    let asked = common.version.as_deref().unwrap_or_default();
    if !Version::is_well_formed(asked) {
        found.push(SYNTAX.at(
            FIELD,
            format!("\"{asked}\" is not a version"),
            "set it to one such as 1.22.1, to 1.22 for its newest patch, or to latest",
        ));
        return;
    }
    let Some(releases) = around.releases.filter(|_| common.manifests.is_empty()) else { return };
    let available = releases.versions(resource.component());
    let version = match Version::resolve(common.version.as_deref(), available) {
        Ok(version) => version,
        Err(error) => {
            found.push(told(&AVAILABLE, &error));
            return;
        }
    };
    let installed: Option<Version> = resource.status().and_then(|s| s.version.as_deref()).and_then(|v| v.parse().ok());
    if let Err(error) = version.may_follow(installed.as_ref(), kind) {
        found.push(told(&NEIGHBOUR, &error));
    } else if let Some(installed) = installed.filter(|installed| version < *installed) {
        found.push(DOWNGRADE.at(
            FIELD,
            format!("{version} is older than {installed}, which is installed"),
            "Knative doesn't promise that what is stored by the newer one is understood by the older one: back up first",
        ));
    }
}

/// `error` in its own words, which end with what to do.
fn told(rule: &'static Rule, error: &VersionError) -> Problem {
    let text = error.to_string();
    let (message, fix) = text
        .rsplit_once("; ")
        .unwrap_or((&text, "see the versions that the operator offers: knative-operator versions"));
    rule.at(FIELD, message, fix)
}
