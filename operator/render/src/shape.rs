//! Checks that mappings are mappings, which all other transforms rely on.

use serde_json::Value;

use super::context::Context;
use super::error::TransformError;
use super::images::pod_spec;
use knative_operator_objects::text;

/// Pointers to mappings in all objects.
const MAPPINGS: [&str; 5] = ["/metadata", "/metadata/labels", "/metadata/annotations", "/spec", "/data"];
/// Pointers to mappings in workloads, Services and Gateways.
const OF_WORKLOADS: [&str; 6] = [
    "/spec/template",
    "/spec/template/metadata",
    "/spec/template/metadata/labels",
    "/spec/template/metadata/annotations",
    "/spec/template/spec",
    "/spec/selector",
];
/// Pointers to mappings in containers.
const OF_CONTAINERS: [&str; 5] =
    ["/resources", "/resources/limits", "/resources/requests", "/readinessProbe", "/livenessProbe"];

/// Fails if the object has another type where a mapping is expected. Changes nothing.
pub fn check(object: &mut Value, _: &Context<'_>) -> Result<(), TransformError> {
    mappings(object, &MAPPINGS, "")?;
    // Kinds that Kubernetes doesn't define may have any structure.
    let (pods, kind) = (pod_spec(object), text(object, "/kind"));
    if kind == "Service" || pods.is_some_and(|_| kind != "CronJob") {
        mappings(object, &OF_WORKLOADS, "")?;
    }
    if kind == "Service" {
        items(object, "/spec/ports", "")?;
    }
    let Some(pods) = pods else { return Ok(()) };
    for list in ["containers", "initContainers"] {
        let list = format!("{pods}/{list}");
        for (index, container) in items(object, &list, "")?.iter().enumerate() {
            let pointer = format!("{list}/{index}");
            mappings(container, &OF_CONTAINERS, &pointer)?;
            items(container, "/env", &pointer)?;
        }
    }
    Ok(())
}

/// The items of the list at `pointer`, if there is one; fails unless they are mappings.
fn items<'v>(value: &'v Value, pointer: &str, within: &str) -> Result<&'v [Value], TransformError> {
    let items = value.pointer(pointer).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    match items.iter().position(|item| !item.is_object()) {
        Some(index) => Err(not_a_mapping(&format!("{within}{pointer}/{index}"))),
        None => Ok(items),
    }
}

fn mappings(value: &Value, pointers: &[&str], within: &str) -> Result<(), TransformError> {
    let other = |pointer: &&&str| value.pointer(pointer).is_some_and(|v| !(v.is_object() || v.is_null()));
    pointers.iter().find(other).map_or(Ok(()), |pointer| Err(not_a_mapping(&format!("{within}{pointer}"))))
}

fn not_a_mapping(pointer: &str) -> TransformError {
    TransformError::NotMapping(pointer.trim_start_matches('/').replace('/', "."))
}

#[cfg(test)]
mod tests {
    use knative_operator_objects::Kinds;
    use knative_operator_rules as rules;
    use knative_operator_shared::api::Component;
    use serde_json::json;

    use super::*;
    use crate::Settings;

    #[test]
    fn items_that_are_changed_are_mappings() {
        let resource = json!({"metadata": {"name": "a", "namespace": "b"}});
        let resource = rules::parse(Component::Serving, &resource).unwrap();
        let (version, settings) = ("1.22.1".parse().unwrap(), Settings { kubernetes_min_version: None });
        let kinds = Kinds::defined([].into_iter());
        let context =
            Context { resource: &resource, version: &version, namespace: "b", kinds: &kinds, settings: &settings };
        let pods = |containers: Value| json!({"spec": {"containers": containers}});
        for (kind, spec, field) in [
            ("Service", json!({"ports": [{}, "http"]}), "spec.ports.1"),
            (
                "CronJob",
                json!({"jobTemplate": {"spec": {"template": pods(json!(["a"]))}}}),
                "spec.jobTemplate.spec.template.spec.containers.0",
            ),
            ("Deployment", json!({"template": pods(json!([{"env": [1]}]))}), "spec.template.spec.containers.0.env.0"),
        ] {
            let mut object = json!({"kind": kind, "metadata": {"name": "a"}, "spec": spec});
            let error = check(&mut object, &context).unwrap_err();
            assert_eq!(error, TransformError::NotMapping(field.to_owned()));
        }
    }
}
