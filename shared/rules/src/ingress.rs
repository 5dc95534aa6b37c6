//! `spec.ingress`, and the ingress class in `config-network`.

use super::rule::{Example, Rule, Severity, Violation};
use knative_operator_shared::api::{CommonSpec, Knative};

/// Number of ingresses.
pub static ONE: Rule = Rule {
    id: "ingress-one",
    severity: Severity::Error,
    requirement: "`spec.ingress` enables exactly one ingress, unless `spec.config.network` names the class.",
    valid: Example::serving(
        r#"{"ingress": {"contour": {"enabled": true}}, "config": {"network": {"ingress-class": "contour.ingress.networking.knative.dev"}}}"#,
    ),
    invalid: Example::serving(r#"{"ingress": {"kourier": {"enabled": true}, "contour": {"enabled": true}}}"#),
};

/// The class matches the ingress.
pub static CLASS: Rule = Rule {
    id: "ingress-class",
    severity: Severity::Error,
    requirement: "The class in `spec.config.network` is that of the enabled ingress, or of one that the operator doesn't install.",
    valid: Example::serving(
        r#"{"ingress": {"kourier": {"enabled": true}}, "config": {"network": {"ingress-class": "kourier.ingress.networking.knative.dev"}}}"#,
    ),
    invalid: Example::serving(
        r#"{"ingress": {"kourier": {"enabled": true}}, "config": {"network": {"ingress-class": "contour.ingress.networking.knative.dev"}}}"#,
    ),
};

/// The class is set.
pub static CLASS_MISSING: Rule = Rule {
    id: "ingress-class-missing",
    severity: Severity::Warning,
    requirement: "If an ingress other than Istio is enabled, `spec.config.network` names its class. Knative's default class is Istio's.",
    valid: Example::serving(
        r#"{"ingress": {"kourier": {"enabled": true}}, "config": {"network": {"ingress-class": "kourier.ingress.networking.knative.dev"}}}"#,
    ),
    invalid: Example::serving(r#"{"ingress": {"kourier": {"enabled": true}}}"#),
};

/// All ingresses, by their names in the spec.
const KNOWN: [&str; 4] = ["istio", "kourier", "contour", "gateway-api"];

/// The ingress class of the ingress `name`.
fn class_of(name: &str) -> String {
    format!("{name}.ingress.networking.knative.dev")
}

/// The ingress class in the spec, with its path, under each name that Knative supports.
fn class(common: &CommonSpec) -> Option<(String, &str)> {
    // The full name wins.
    ["config-network", "network"].into_iter().find_map(|map| {
        let keys = ["ingress-class", "ingress.class"].into_iter();
        let given = keys.filter_map(|key| Some((key, common.config.get(map)?.get(key)?.as_str())));
        given
            .filter(|(_, class)| !class.is_empty())
            .map(|(key, class)| (format!("spec.config.{map}.{key}"), class))
            .next()
    })
}

/// Says that no Service uses the ingress that `resource` enables: the default class is another one.
pub fn unused_ingress(resource: &Knative) -> Option<Violation> {
    let mut violations = Vec::new();
    check(resource, &mut violations);
    violations.into_iter().find(|violation| violation.rule.id == CLASS_MISSING.id)
}

pub fn check(resource: &Knative, violations: &mut Vec<Violation>) {
    let Knative::Serving(serving) = resource else { return };
    let class = class(&serving.spec.common);
    let enabled = resource.extras();
    match (enabled.as_slice(), &class) {
        ([], None) => {
            let fix = format!(
                "enable one of {}, remove spec.ingress to install Istio, or name the class of your own ingress in spec.config.network.ingress-class",
                KNOWN.join(", ")
            );
            violations.push(ONE.at("spec.ingress", "no ingress is enabled", fix));
        }
        ([_, _, ..], None) => {
            let fix = "keep one, or name the default class in spec.config.network.ingress-class";
            violations.push(ONE.at("spec.ingress", format!("{} are enabled", enabled.join(" and ")), fix));
        }
        ([one], None) if *one != "istio" => {
            let fix = format!("set it to {}", class_of(one));
            let message = format!("is not set: Knative uses the class of Istio, so no Service uses {one}");
            violations.push(CLASS_MISSING.at("spec.config.network.ingress-class", message, fix));
        }
        ([_, ..], Some((field, class))) => {
            let other = KNOWN.iter().find(|known| class_of(known) == *class && !enabled.contains(known));
            if let Some(other) = other {
                let fix = format!("set it to {}, or enable spec.ingress.{other}", class_of(enabled[0]));
                violations.push(CLASS.at(
                    field,
                    format!("\"{class}\" is the class of {other}, and {} is enabled", enabled.join(" and ")),
                    fix,
                ));
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use knative_operator_shared::api::Component;
    use serde_json::json;

    use super::*;
    use crate::parse;

    #[test]
    fn ingress_without_its_class_is_unused() {
        let unused = |spec: serde_json::Value| {
            let resource = parse(Component::Serving, &json!({"metadata": {"name": "a"}, "spec": spec})).unwrap();
            unused_ingress(&resource).map(|violation| violation.to_string())
        };
        let kourier = json!({"kourier": {"enabled": true}});
        assert_eq!(
            unused(json!({"ingress": kourier})).as_deref(),
            Some(
                "spec.config.network.ingress-class: is not set: Knative uses the class of Istio, so no Service uses kourier; \
                 set it to kourier.ingress.networking.knative.dev"
            )
        );
        for class in ["kourier.ingress.networking.knative.dev", "contour.ingress.networking.knative.dev"] {
            assert_eq!(unused(json!({"ingress": kourier, "config": {"network": {"ingress-class": class}}})), None);
        }
        assert_eq!(unused(json!({"ingress": {"istio": {"enabled": true}}})), None);
        assert_eq!(unused(json!({})), None);
    }
}
