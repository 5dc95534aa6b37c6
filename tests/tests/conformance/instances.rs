//! Instances that the CustomResourceDefinitions admit are parsed, validated and rendered.
//! `INSTANCES` is the number per kind.

use knative_operator_objects::CompactObject;
use knative_operator_release::Bundle;
use knative_operator_render::{Settings, objects};
use knative_operator_rules as rules;
use knative_operator_rules::RuleContext;
use knative_operator_shared::api::Component;
use knative_operator_shared::{crd, defaults};
use knative_operator_tests::instances::Generator;
use serde_json::{Value, json};

use super::small;

/// Default number of instances.
const INSTANCES: u64 = 200;

fn released(component: Component) -> Vec<CompactObject> {
    let (bundle, version) = (Bundle::open(small()), "1.1.0".parse().unwrap());
    let mut directories = vec![bundle.release(component, &version)];
    if component == Component::Serving {
        directories.extend(["istio", "kourier"].map(|name| bundle.extra("ingress", &version, name)));
    }
    directories.iter().flat_map(|d| bundle.objects(d).unwrap().iter().cloned().collect::<Vec<_>>()).collect()
}

/// Parses, validates and renders `object`; whether it was rendered.
fn try_instance(component: Component, object: &Value, released: &[CompactObject]) -> Result<bool, String> {
    let resource = rules::parse(component, object).map_err(|problem| format!("not read: {problem}"))?;
    let problems = rules::validate_change(&resource, None, &RuleContext::default());
    if let Some(problem) = problems.iter().find(|problem| problem.rule == &rules::READABLE) {
        return Err(format!("reported as unreadable: {problem}"));
    }
    if let Some(problem) = problems.iter().find(|problem| problem.field.is_empty() || problem.message.is_empty()) {
        return Err(format!("a problem without field or message: {problem:?}"));
    }
    let settings = Settings { kubernetes_min_version: None };
    match objects(&resource, &"1.1.0".parse().unwrap(), released.iter(), &settings) {
        Ok(_) => Ok(true),
        Err(error) if error.to_string().contains("spec.") => Ok(false),
        Err(error) => Err(format!("an error that names no field: {error}")),
    }
}

#[test]
fn admitted_instances_are_parsed_validated_and_rendered() {
    let count = std::env::var("INSTANCES").ok().and_then(|n| n.parse().ok()).unwrap_or(INSTANCES);
    std::thread::scope(|scope| {
        for component in Component::ALL {
            scope.spawn(move || {
                let (definition, released) = (crd::definition(component), released(component));
                let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
                let mut rendered = 0;
                for seed in 0..count {
                    let mut object = Generator::new(seed).instance(schema);
                    object["apiVersion"] = json!("operator.knative.dev/v1beta1");
                    object["kind"] = json!(component.kind());
                    object["metadata"] = json!({"name": "a", "namespace": component.canonical(), "uid": "u"});
                    let given = object.clone();
                    defaults::set_defaults(component, &mut object);
                    assert_eq!(object, given, "seed {seed}: a default was set for a required field");
                    match try_instance(component, &object, &released) {
                        Ok(done) => rendered += u64::from(done),
                        Err(fault) => panic!("{component}, seed {seed}: {fault}\n{object:#}"),
                    }
                }
                assert!(count == 0 || rendered > 0);
                eprintln!(
                    "{component}: {count} instances parsed and validated, {rendered} rendered, {} refused with their field",
                    count - rendered
                );
            });
        }
    });
}
