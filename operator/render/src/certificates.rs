//! `spec.controller-custom-certs`: authorities that Serving's controller trusts when it resolves
//! image tags.

use knative_operator_shared::api::Knative;
use serde_json::{Value, json};

use super::context::Context;
use super::error::TransformError;
use super::pod::{add_named, containers, set_environment};
use knative_operator_objects::text;

const PATH: &str = "/custom-certs";

/// Mounts the ConfigMap or Secret into the controller.
pub fn mount(object: &mut Value, cx: &Context<'_>) -> Result<(), TransformError> {
    let Knative::Serving(serving) = cx.resource else { return Ok(()) };
    let given = serving.spec.controller_custom_certs.as_ref().filter(|c| !(c.type_.is_empty() && c.name.is_empty()));
    let is_controller = text(object, "/kind") == "Deployment" && text(object, "/metadata/name") == "controller";
    let Some(given) = given.filter(|_| is_controller) else { return Ok(()) };
    let (type_, name) = (given.type_.as_str(), given.name.as_str());
    let source = match type_ {
        "ConfigMap" => json!({"configMap": {"name": name}}),
        "Secret" => json!({"secret": {"secretName": name}}),
        other => {
            let why = format!("unknown CustomCerts type: {other}; set it to ConfigMap or Secret");
            return Err(TransformError::field("spec.controller-custom-certs.type", &why));
        }
    };
    if name.is_empty() {
        let why = format!("the CustomCerts name for {type_} is required");
        return Err(TransformError::field("spec.controller-custom-certs.name", &why));
    }
    let mut volume = source;
    volume["name"] = json!(format!("custom-certs-{name}"));
    let mount = json!({"name": volume["name"], "mountPath": PATH});
    add_named(&mut object["spec"]["template"]["spec"], "volumes", &[volume]);
    if let Some(container) = containers(object).next() {
        add_named(container, "volumeMounts", &[mount]);
        set_environment(container, &[json!({"name": "SSL_CERT_DIR", "value": PATH})]);
    }
    Ok(())
}
