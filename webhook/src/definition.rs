//! Deletions of the CustomResourceDefinitions of the operator: the API server deletes all resources
//! with their definition, without a review, and the operator would uninstall Knative everywhere.

use knative_operator_rules::{Example, Rule, Severity, Violation};
use knative_operator_runtime::untyped::{api_resource, count};
use knative_operator_shared::api::Kind;
use knative_operator_shared::label::GROUP;
use kube::Api;

use crate::approval::UNAVAILABLE;
use crate::live::Live;
use crate::request::Request;

/// A definition has no resources when it is deleted.
static UNUSED: Rule = Rule {
    id: "definition-in-use",
    severity: Severity::Error,
    requirement: "A CustomResourceDefinition of the operator is deleted only if it has no resources.",
    valid: Example::serving("{}"),
    invalid: Example::serving("{}"),
};

/// The violation if `request` deletes a definition that has resources.
pub async fn check(live: &Live, request: &Request) -> Option<Violation> {
    let kind = deleted(request)?;
    let name = format!("{}.{GROUP}", kind.plural());
    // One that is not served has none.
    let counted = live.read(async |client| count(&Api::all_with(client, &api_resource(kind))).await).await;
    match counted.map(Option::unwrap_or_default) {
        Ok(0) => None,
        Ok(count) => {
            let noun = if count == 1 { "resource" } else { "resources" };
            let message = format!(
                "{name} has {count} {noun}, which would be deleted with it, and Knative would be uninstalled from their clusters"
            );
            let fix = match kind {
                Kind::Fleet => "delete the fleets first: knative-operator fleet delete NAME -n NAMESPACE".to_owned(),
                Kind::Component(_) => {
                    format!("delete the resources first: kubectl delete {name} --all --all-namespaces")
                }
            };
            Some(UNUSED.at("metadata.name", message, fix))
        }
        Err(why) => Some(UNAVAILABLE.at("metadata.name", format!("cannot count {name}: {why}"), "try again")),
    }
}

/// The kind that the definition in `request` defines, if it is one of the operator's.
fn kind(request: &Request) -> Option<Kind> {
    let is_definition = request.kind.group == "apiextensions.k8s.io" && request.kind.kind == "CustomResourceDefinition";
    let plural = request.old_object["metadata"]["name"].as_str()?.strip_suffix(GROUP)?.strip_suffix('.')?;
    Kind::ALL.into_iter().find(|kind| kind.plural() == plural).filter(|_| is_definition)
}

/// Whether `request` is about a definition of the operator.
pub fn is_own(request: &Request) -> bool {
    kind(request).is_some()
}

/// The kind whose definition `request` deletes.
fn deleted(request: &Request) -> Option<Kind> {
    kind(request).filter(|_| request.operation == "DELETE")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::request;

    #[test]
    fn only_own_definitions_are_looked_at() {
        let found = |kind: &str, operation: &str, name: &str| {
            deleted(&Request {
                kind: request::Kind { group: "apiextensions.k8s.io".into(), version: "v1".into(), kind: kind.into() },
                operation: operation.into(),
                old_object: json!({"metadata": {"name": name}}),
                ..Request::default()
            })
            .map(Kind::name)
        };
        let definition = "CustomResourceDefinition";
        assert_eq!(found(definition, "DELETE", "knativeservings.operator.knative.dev"), Some("KnativeServing"));
        assert_eq!(found(definition, "DELETE", "knativefleets.operator.knative.dev"), Some("KnativeFleet"));
        for (kind, operation, name) in [
            (definition, "UPDATE", "knativeservings.operator.knative.dev"),
            ("Other", "DELETE", "knativeservings.operator.knative.dev"),
            (definition, "DELETE", "services.serving.knative.dev"),
            (definition, "DELETE", "knativeservingsoperator.knative.dev"),
            (definition, "DELETE", "operator.knative.dev"),
        ] {
            assert_eq!(found(kind, operation, name), None, "{operation} of {kind} {name}");
        }
    }
}
