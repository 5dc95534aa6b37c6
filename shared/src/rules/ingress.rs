//! `spec.ingress` and the class in `config-network`.

use super::{Example, Problem, Rule, Severity};
use crate::api::{CommonSpec, IngressConfigs, Knative};

/// One ingress.
pub static ONE: Rule = Rule {
    id: "ingress-one",
    severity: Severity::Error,
    says: "`spec.ingress` enables exactly one ingress, unless `spec.config.network` names the class.",
    kept: Example::serving(
        r#"{"ingress": {"contour": {"enabled": true}}, "config": {"network": {"ingress-class": "contour.ingress.networking.knative.dev"}}}"#,
    ),
    broken: Example::serving(r#"{"ingress": {"kourier": {"enabled": true}, "contour": {"enabled": true}}}"#),
};

/// The class is that of the ingress.
pub static CLASS: Rule = Rule {
    id: "ingress-class",
    severity: Severity::Error,
    says: "The class in `spec.config.network` is that of the enabled ingress, or of one that the operator doesn't know.",
    kept: Example::serving(
        r#"{"ingress": {"kourier": {"enabled": true}}, "config": {"network": {"ingress-class": "kourier.ingress.networking.knative.dev"}}}"#,
    ),
    broken: Example::serving(
        r#"{"ingress": {"kourier": {"enabled": true}}, "config": {"network": {"ingress-class": "contour.ingress.networking.knative.dev"}}}"#,
    ),
};

/// The class is given.
pub static CLASS_MISSING: Rule = Rule {
    id: "ingress-class-missing",
    severity: Severity::Warning,
    says: "Where another ingress than Istio is enabled, `spec.config.network` names its class: Knative takes Istio otherwise.",
    kept: Example::serving(
        r#"{"ingress": {"kourier": {"enabled": true}}, "config": {"network": {"ingress-class": "kourier.ingress.networking.knative.dev"}}}"#,
    ),
    broken: Example::serving(r#"{"ingress": {"kourier": {"enabled": true}}}"#),
};

/// Every ingress that there is, as the spec calls it.
const KNOWN: [&str; 4] = ["istio", "kourier", "contour", "gateway-api"];

/// The class that Knative's `config-network` names for the ingress that the spec calls `name`.
fn class_of(name: &str) -> String {
    format!("{name}.ingress.networking.knative.dev")
}

/// The class that the spec gives, with its path: under the names that Knative knows.
fn class(common: &CommonSpec) -> Option<(String, &str)> {
    // The whole name wins.
    ["config-network", "network"].into_iter().find_map(|map| {
        let keys = ["ingress-class", "ingress.class"].into_iter();
        let given = keys.filter_map(|key| Some((key, common.config.get(map)?.get(key)?.as_str())));
        given
            .filter(|(_, class)| !class.is_empty())
            .map(|(key, class)| (format!("spec.config.{map}.{key}"), class))
            .next()
    })
}

pub fn check(resource: &Knative, found: &mut Vec<Problem>) {
    let Knative::Serving(serving) = resource else { return };
    let class = class(&serving.spec.common);
    // None given means Istio.
    let enabled = serving.spec.ingress.as_ref().map_or_else(|| vec!["istio"], IngressConfigs::enabled);
    match (enabled.as_slice(), &class) {
        ([], None) => {
            let fix = format!(
                "enable one of {}, remove spec.ingress to have Istio, or name the class of your own in spec.config.network.ingress-class",
                KNOWN.join(", ")
            );
            found.push(ONE.at("spec.ingress", "no ingress is enabled", fix));
        }
        ([_, _, ..], None) => {
            let fix = "keep one, or say in spec.config.network.ingress-class which of them serves by default";
            found.push(ONE.at("spec.ingress", format!("{} are enabled", enabled.join(" and ")), fix));
        }
        ([one], None) if *one != "istio" => {
            let fix = format!("set it to {}", class_of(one));
            let message = format!("is not set: Knative takes the class of Istio, and nobody serves with {one}");
            found.push(CLASS_MISSING.at("spec.config.network.ingress-class", message, fix));
        }
        ([_, ..], Some((field, class))) => {
            let other = KNOWN.iter().find(|known| class_of(known) == *class && !enabled.contains(known));
            if let Some(other) = other {
                let fix = format!("set it to {}, or enable spec.ingress.{other}", class_of(enabled[0]));
                found.push(CLASS.at(
                    field,
                    format!("\"{class}\" is the class of {other}, and {} is enabled", enabled.join(" and ")),
                    fix,
                ));
            }
        }
        _ => {}
    }
}
