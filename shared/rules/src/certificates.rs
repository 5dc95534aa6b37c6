//! `spec.controller-custom-certs`.

use super::rule::{Example, Rule, Severity, Violation};
use knative_operator_shared::api::Knative;
use knative_operator_shared::syntax;

/// Type and name.
pub static CUSTOM: Rule = Rule {
    id: "custom-certificates",
    severity: Severity::Error,
    requirement: "`spec.controller-custom-certs` names a `ConfigMap` or a `Secret`.",
    valid: Example::serving(r#"{"controller-custom-certs": {"type": "Secret", "name": "certs"}}"#),
    invalid: Example::serving(r#"{"controller-custom-certs": {"type": "Vault", "name": ""}}"#),
};

const FIELD: &str = "spec.controller-custom-certs";

pub fn check(resource: &Knative, violations: &mut Vec<Violation>) {
    let Knative::Serving(serving) = resource else { return };
    let Some(certs) =
        serving.spec.controller_custom_certs.as_ref().filter(|c| !(c.type_.is_empty() && c.name.is_empty()))
    else {
        return;
    };
    if !matches!(certs.type_.as_str(), "ConfigMap" | "Secret") {
        violations.push(CUSTOM.at(
            format!("{FIELD}.type"),
            format!("\"{}\" is not supported", certs.type_),
            "set it to ConfigMap or Secret",
        ));
    }
    if let Some(wrong) = syntax::subdomain(&certs.name) {
        violations.push(CUSTOM.at(
            format!("{FIELD}.name"),
            format!("\"{}\" {wrong}", certs.name),
            "set it to the name of the object that holds the certificates",
        ));
    }
}
