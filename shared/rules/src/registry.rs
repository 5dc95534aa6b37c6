//! `spec.registry`.

use super::rule::{Example, Rule, Severity, Violation};
use knative_operator_shared::api::Knative;
use knative_operator_shared::syntax;

/// Keys of image overrides.
pub static KEY: Rule = Rule {
    id: "registry-override-key",
    severity: Severity::Error,
    requirement: "A key of `spec.registry.override` is `container`, `workload/container`, an environment variable or a cached image.",
    valid: Example::serving(r#"{"registry": {"override": {"activator/activator": "registry.example/activator:1"}}}"#),
    invalid: Example::serving(r#"{"registry": {"override": {"a/b/c": "registry.example/activator:1"}}}"#),
};

/// Syntax of image references.
pub static IMAGE: Rule = Rule {
    id: "image-reference",
    severity: Severity::Error,
    requirement: "`spec.registry.default` and the values of `spec.registry.override` are image references.",
    valid: Example::serving(r#"{"registry": {"default": "registry.example/knative/${NAME}:v1.22.1"}}"#),
    invalid: Example::serving(r#"{"registry": {"default": "https://registry.example/${NAME}"}}"#),
};

/// Names of pull Secrets.
pub static SECRET: Rule = Rule {
    id: "image-pull-secret",
    severity: Severity::Error,
    requirement: "Each entry of `spec.registry.imagePullSecrets` has the name of a Secret.",
    valid: Example::serving(r#"{"registry": {"imagePullSecrets": [{"name": "pull"}]}}"#),
    invalid: Example::serving(r#"{"registry": {"imagePullSecrets": [{"name": "Pull Secret"}]}}"#),
};

pub fn check(resource: &Knative, violations: &mut Vec<Violation>) {
    let Some(registry) = &resource.common().registry else { return };
    let fix = "write it as registry.example/path/name:tag, without a scheme";
    if let Some(default) = registry.default.as_deref().filter(|d| !d.is_empty())
        && let Some(wrong) = syntax::image(&default.replace("${NAME}", "name"))
    {
        violations.push(IMAGE.at(
            "spec.registry.default",
            format!("\"{default}\" {wrong}"),
            "write it as registry.example/path/${NAME}:tag, without a scheme",
        ));
    }
    for (key, image) in &registry.overrides {
        let field = format!("spec.registry.override.{key}");
        if key.split('/').count() > 2 || key.split('/').any(str::is_empty) || key.contains(char::is_whitespace) {
            let fix = "name a container, workload/container, an environment variable with an image, or a cached image";
            violations.push(KEY.at(&field, format!("\"{key}\" does not match the name of an image"), fix));
        }
        if let Some(wrong) = syntax::image(image) {
            violations.push(IMAGE.at(field, format!("\"{image}\" {wrong}"), fix));
        }
    }
    for (index, secret) in registry.image_pull_secrets.iter().enumerate() {
        let name = secret["name"].as_str().unwrap_or_default();
        if let Some(wrong) = syntax::subdomain(name) {
            let field = format!("spec.registry.imagePullSecrets[{index}].name");
            violations.push(SECRET.at(
                field,
                format!("\"{name}\" {wrong}"),
                "set it to the name of a Secret in the namespace of the component",
            ));
        }
    }
}
