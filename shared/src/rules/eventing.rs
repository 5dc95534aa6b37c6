//! What only Eventing has: SinkBinding's selection mode and the default class of brokers.

use super::{Example, Problem, Rule, Severity, syntax};
use crate::api::Knative;

/// The selection mode.
pub static SELECTION: Rule = Rule {
    id: "sink-binding-selection-mode",
    severity: Severity::Error,
    says: "`spec.sinkBindingSelectionMode` is `inclusion` or `exclusion`.",
    kept: Example::eventing(r#"{"sinkBindingSelectionMode": "inclusion"}"#),
    broken: Example::eventing(r#"{"sinkBindingSelectionMode": "some"}"#),
};

/// The broker class is a name.
pub static BROKER: Rule = Rule {
    id: "broker-class",
    severity: Severity::Error,
    says: "`spec.defaultBrokerClass` is a name.",
    kept: Example::eventing(r#"{"defaultBrokerClass": "MTChannelBasedBroker"}"#),
    broken: Example::eventing(r#"{"defaultBrokerClass": "my broker"}"#),
};

/// The broker class is one that is known.
pub static BROKER_UNKNOWN: Rule = Rule {
    id: "broker-class-unknown",
    severity: Severity::Warning,
    says: "`spec.defaultBrokerClass` is a class of Knative's own brokers.",
    kept: Example::eventing(r#"{"defaultBrokerClass": "Kafka"}"#),
    broken: Example::eventing(r#"{"defaultBrokerClass": "MTChannelBroker"}"#),
};

/// The classes of Knative's brokers.
const CLASSES: [&str; 4] = ["MTChannelBasedBroker", "Kafka", "KafkaNamespaced", "RabbitMQBroker"];

pub fn check(resource: &Knative, found: &mut Vec<Problem>) {
    let Knative::Eventing(eventing) = resource else { return };
    let mode = eventing.spec.sink_binding_selection_mode.as_deref().unwrap_or_default();
    if !matches!(mode, "" | "inclusion" | "exclusion") {
        found.push(SELECTION.at(
            "spec.sinkBindingSelectionMode",
            format!("\"{mode}\" is no selection mode"),
            "set it to inclusion or exclusion",
        ));
    }
    let field = "spec.defaultBrokerClass";
    match eventing.spec.default_broker_class.as_deref() {
        None | Some("") => {}
        Some(class) if syntax::qualified(class).is_some() => {
            found.push(BROKER.at(
                field,
                format!("\"{class}\" is no name"),
                format!("set it to one of {}", CLASSES.join(", ")),
            ));
        }
        Some(class) if !CLASSES.contains(&class) => {
            let fix = format!(
                "Knative's own are {}; another one needs a broker that you install yourself",
                CLASSES.join(", ")
            );
            found.push(BROKER_UNKNOWN.at(field, format!("\"{class}\" is no class of Knative's brokers"), fix));
        }
        Some(_) => {}
    }
}
