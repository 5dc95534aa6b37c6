//! Fields of Eventing: SinkBinding's selection mode and the default broker class.

use super::rule::{Example, Rule, Severity, Violation};
use knative_operator_shared::api::Knative;
use knative_operator_shared::syntax;

/// The selection mode.
pub static SELECTION: Rule = Rule {
    id: "sink-binding-selection-mode",
    severity: Severity::Error,
    requirement: "`spec.sinkBindingSelectionMode` is `inclusion` or `exclusion`.",
    valid: Example::eventing(r#"{"sinkBindingSelectionMode": "inclusion"}"#),
    invalid: Example::eventing(r#"{"sinkBindingSelectionMode": "some"}"#),
};

/// Syntax of the broker class.
pub static BROKER: Rule = Rule {
    id: "broker-class",
    severity: Severity::Error,
    requirement: "`spec.defaultBrokerClass` is a name.",
    valid: Example::eventing(r#"{"defaultBrokerClass": "MTChannelBasedBroker"}"#),
    invalid: Example::eventing(r#"{"defaultBrokerClass": "my broker"}"#),
};

/// Known broker classes.
pub static BROKER_UNKNOWN: Rule = Rule {
    id: "broker-class-unknown",
    severity: Severity::Warning,
    requirement: "`spec.defaultBrokerClass` is a class of Knative's own brokers.",
    valid: Example::eventing(r#"{"defaultBrokerClass": "Kafka"}"#),
    invalid: Example::eventing(r#"{"defaultBrokerClass": "MTChannelBroker"}"#),
};

/// The classes of Knative's brokers.
const CLASSES: [&str; 4] = ["MTChannelBasedBroker", "Kafka", "KafkaNamespaced", "RabbitMQBroker"];

pub fn check(resource: &Knative, violations: &mut Vec<Violation>) {
    let Knative::Eventing(eventing) = resource else { return };
    let mode = eventing.spec.sink_binding_selection_mode.as_deref().unwrap_or_default();
    if !matches!(mode, "" | "inclusion" | "exclusion") {
        violations.push(SELECTION.at(
            "spec.sinkBindingSelectionMode",
            format!("\"{mode}\" is not a selection mode"),
            "set it to inclusion or exclusion",
        ));
    }
    let field = "spec.defaultBrokerClass";
    match eventing.spec.default_broker_class.as_deref() {
        None | Some("") => {}
        Some(class) if syntax::qualified(class).is_some() => {
            violations.push(BROKER.at(
                field,
                format!("\"{class}\" is not a name"),
                format!("set it to one of {}", CLASSES.join(", ")),
            ));
        }
        Some(class) if !CLASSES.contains(&class) => {
            let fix =
                format!("Knative's own are {}; for another class, install its broker yourself", CLASSES.join(", "));
            violations.push(BROKER_UNKNOWN.at(field, format!("\"{class}\" is not a class of Knative's brokers"), fix));
        }
        Some(_) => {}
    }
}
