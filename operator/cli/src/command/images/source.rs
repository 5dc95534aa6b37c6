//! The resources whose images are listed, or which a role covers: those in a file, and those that
//! fleets in it make.

use knative_operator_rules as rules;
use knative_operator_shared::api::fleet::Template;
use knative_operator_shared::api::{Component, Knative, KnativeFleet};
use knative_operator_shared::label::{FLEET_VERSION, GROUP, VERSION};
use serde_json::{Value, json};

use crate::command::read::{self, Document};

/// A KnativeServing or KnativeEventing, or the template of one in a fleet.
#[derive(Debug)]
pub struct Source {
    /// Kind and name, for messages; of a fleet with the field of the template.
    pub what: String,
    /// The component.
    pub component: Component,
    /// The resource.
    object: Value,
    /// The overrides of the fleet, with their fields: JSON merge patches of the resource.
    overrides: Vec<(String, Value)>,
    /// The fleet, without its spec.
    fleet: Option<Value>,
    /// The Jobs of the gates of the fleet, with their fields.
    pub gates: Vec<(String, Value)>,
}

/// The resources in `yaml`, and warnings. The error describes invalid ones.
pub fn sources(yaml: &str) -> Result<(Vec<Source>, Vec<String>), String> {
    let (mut sources, mut warnings) = (Vec::new(), Vec::new());
    for document in read::documents(yaml, None)?.0 {
        let what = document.what.clone();
        let (resource, own_warnings) = read::renderable(document, false)?;
        warnings.extend(own_warnings);
        let object = object(&resource).map_err(|error| format!("{what}: {error}"))?;
        let component = resource.component();
        sources.push(Source { what, component, object, overrides: Vec::new(), fleet: None, gates: Vec::new() });
    }
    for Document { what, resource, unknown, .. } in read::fleet_documents(yaml)? {
        let fleet = resource.map_err(|violation| format!("{what}: {violation}"))?;
        warnings.extend(unknown.iter().map(|field| format!("{what}: {field}")));
        let mut gates = gates(&fleet);
        for component in Component::ALL {
            let Some(template) = fleet.spec.template(component) else { continue };
            let (mut source, own_warnings) = of_fleet(&what, &fleet, component, template)?;
            source.gates = std::mem::take(&mut gates);
            sources.push(source);
            warnings.extend(own_warnings);
        }
    }
    Ok((sources, warnings))
}

/// The source that `template` of `fleet` is, and warnings.
fn of_fleet(
    what: &str,
    fleet: &KnativeFleet,
    component: Component,
    template: &Template,
) -> Result<(Source, Vec<String>), String> {
    let name = fleet.metadata.name.as_deref().unwrap_or_default();
    // On a spoke, the namespace is the usual one.
    let object = json!({
        "apiVersion": format!("{GROUP}/{VERSION}"), "kind": component.kind(),
        "metadata": {"name": name, "namespace": component.canonical()}, "spec": template.spec,
    });
    let what = format!("{what} spec.{}", component.word());
    let resource = rules::parse(component, &object);
    let document = Document { what: what.clone(), resource, warnings: Vec::new(), unknown: Vec::new() };
    let (_, mut warnings) = read::renderable(document, false)?;
    let changes = fleet.spec.overrides.iter().enumerate().filter(|(_, change)| !change.patch(component).is_empty());
    let overrides: Vec<(String, Value)> = changes
        .map(|(index, change)| {
            let spec = change.patch(component).get("spec").cloned().unwrap_or_else(|| json!({}));
            (format!("spec.overrides[{index}].{}", component.word()), json!({"spec": spec}))
        })
        .collect();
    if overrides.len() > 1 {
        warnings.push(format!(
            "{what}: each override is applied by itself; for clusters that several overrides select, give a resource"
        ));
    }
    let metadata = json!({"name": fleet.metadata.name, "namespace": fleet.metadata.namespace});
    let mut head = json!({
        "apiVersion": format!("{GROUP}/{FLEET_VERSION}"), "kind": "KnativeFleet", "metadata": metadata,
    });
    rules::drop_nulls(&mut head);
    Ok((Source { what, component, object, overrides, fleet: Some(head), gates: Vec::new() }, warnings))
}

/// The Jobs of the gates of `fleet`, with their fields.
fn gates(fleet: &KnativeFleet) -> Vec<(String, Value)> {
    let stages = fleet.spec.rollout.stages.iter().enumerate();
    let gates = stages.flat_map(|(stage, settings)| settings.gates.iter().enumerate().map(move |gate| (stage, gate)));
    let jobs = gates.filter_map(|(stage, (index, gate))| {
        let job = gate.job.as_ref()?;
        let metadata = json!({"name": gate.name, "namespace": job.namespace});
        let object = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": job.spec});
        Some((format!("spec.rollout.stages[{stage}].gates[{index}].job"), object))
    });
    jobs.collect()
}

fn object(resource: &Knative) -> Result<Value, String> {
    let object = match resource {
        Knative::Serving(serving) => serde_json::to_value(serving),
        Knative::Eventing(eventing) => serde_json::to_value(eventing),
    };
    object.map_err(|error| error.to_string())
}

impl Source {
    /// Sets the version, regardless of the one that is installed.
    pub fn set_version(&mut self, version: &str) {
        self.object["spec"]["version"] = json!(version);
        self.object["status"] = Value::Null;
    }

    /// The resource.
    pub fn resource(&self) -> Result<Knative, String> {
        self.with(&[])
    }

    /// The resource with `patches`, JSON merge patches, in order.
    pub fn with(&self, patches: &[&Value]) -> Result<Knative, String> {
        let mut object = self.object.clone();
        for patch in patches {
            json_patch::merge(&mut object, patch);
        }
        rules::parse(self.component, &object).map_err(|violation| format!("{}: {violation}", self.what))
    }

    /// Kind and name of the fleet, for messages.
    pub fn fleet_name(&self) -> &str {
        self.what.split(" spec.").next().unwrap_or_default()
    }

    /// The name of the fleet, if this is the template of one.
    pub fn fleet(&self) -> Option<&str> {
        self.fleet.as_ref()?["metadata"]["name"].as_str()
    }

    /// The resources called `name` that this is the template of: without overrides, and with each.
    pub fn created(&self, name: &str) -> Result<Vec<Knative>, String> {
        let name = json!({"metadata": {"name": name}});
        let plain = std::iter::once(self.with(&[&name]));
        plain.chain(self.overrides.iter().map(|(_, patch)| self.with(&[patch, &name]))).collect()
    }

    /// Warnings about what the settings for a mirror don't reach.
    pub fn beside_settings(&self) -> Vec<String> {
        let fleet = self.fleet_name();
        let mut warnings: Vec<_> = (self.gates.iter())
            .map(|(field, _)| format!("{fleet} {field}: no setting changes its images: name those of the mirror"))
            .collect();
        if self.fleet.is_some() {
            warnings.push(format!(
                "{}: the settings fit one version, and a cluster gets them in the minor versions on its way, too: change the \
                 version of the fleet by one minor version at a time",
                self.what
            ));
        }
        warnings
    }

    /// The overrides of the fleet: for messages, and as JSON merge patches of the resource.
    pub fn overrides(&self) -> impl Iterator<Item = (String, &Value)> {
        let fleet = self.fleet_name();
        self.overrides.iter().map(move |(field, patch)| (format!("{fleet} {field}"), patch))
    }

    /// JSON merge patch of what the file has: `spec` is that of the spec of the resource.
    pub fn document(&self, spec: &Value) -> Value {
        if let Some(fleet) = &self.fleet {
            let mut document = fleet.clone();
            document["spec"][self.component.word()]["spec"] = spec.clone();
            return document;
        }
        let metadata =
            json!({"name": self.object["metadata"]["name"], "namespace": self.object["metadata"]["namespace"]});
        json!({"apiVersion": self.object["apiVersion"], "kind": self.object["kind"], "metadata": metadata, "spec": spec})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVING: &str = "{apiVersion: operator.knative.dev/v1beta1, kind: KnativeServing, metadata: {name: s, labels: {a: b}}, spec: {version: '1.22'}}";
    const FLEET: &str = "{apiVersion: operator.knative.dev/v1alpha1, kind: KnativeFleet, metadata: {name: f, namespace: n}, \
        spec: {placement: {clusterSelector: {}}, serving: {spec: {version: '1.22'}}, eventing: {}, \
        overrides: [{clusterSelector: {}, serving: {spec: {version: '1.23'}}}]}}";

    #[test]
    fn resources_and_templates_of_fleets_are_sources() {
        let (sources, warnings) = sources(&format!("{SERVING}\n---\n{FLEET}")).unwrap();
        let names: Vec<&str> = sources.iter().map(|source| source.what.as_str()).collect();
        assert_eq!(names, ["KnativeServing s", "KnativeFleet f spec.serving", "KnativeFleet f spec.eventing"]);
        assert_eq!(warnings, ["KnativeServing s: metadata.namespace: not set; using knative-serving"]);
        let spec = json!({"version": "1.22.1"});
        assert_eq!(
            sources[0].document(&spec),
            json!({"apiVersion": "operator.knative.dev/v1beta1", "kind": "KnativeServing",
                "metadata": {"name": "s", "namespace": "knative-serving"}, "spec": spec})
        );
        assert_eq!(
            sources[1].document(&spec),
            json!({"apiVersion": "operator.knative.dev/v1alpha1", "kind": "KnativeFleet",
                "metadata": {"name": "f", "namespace": "n"}, "spec": {"serving": {"spec": spec}}})
        );
        let (field, patch) = sources[1].overrides().next().unwrap();
        assert_eq!(field, "KnativeFleet f spec.overrides[0].serving");
        let version = |resource: Knative| resource.common().version.clone().unwrap_or_default();
        assert_eq!(version(sources[1].with(&[patch]).unwrap()), "1.23");
        assert_eq!(version(sources[1].resource().unwrap()), "1.22");
        assert_eq!(sources[2].overrides().count(), 0);
    }

    #[test]
    fn version_replaces_the_one_that_is_installed() {
        let installed = SERVING.replace("spec:", "status: {version: 1.20.0}, spec:");
        let (mut sources, _) = sources(&installed).unwrap();
        assert!(sources[0].resource().unwrap().has_installed());
        sources[0].set_version("1.23");
        let resource = sources[0].resource().unwrap();
        assert!(!resource.has_installed() && resource.common().version.as_deref() == Some("1.23"));
    }

    #[test]
    fn invalid_files_are_errors() {
        for (text, expected) in [
            (SERVING.replace("KnativeServing", "KnativeServng"), "the nearest is KnativeServing"),
            (
                FLEET.replace("spec: {version: '1.22'}", "spec: {registry: 1}"),
                "KnativeFleet f spec.serving: spec.registry",
            ),
            (FLEET.replace("placement", "placment"), "KnativeFleet f: "),
        ] {
            let error = sources(&text).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
