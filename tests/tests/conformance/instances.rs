//! What the CustomResourceDefinitions admit can be read, judged and rendered. `INSTANCES` says how many of each kind are tried.

use knative_operator::packed::Packed;
use knative_operator::release::Bundle;
use knative_operator::render::{Settings, objects};
use knative_operator_shared::api::Component;
use knative_operator_shared::rules::{self, Surroundings};
use knative_operator_shared::{crd, defaults};
use knative_operator_tests::instances::Generator;
use serde_json::{Value, json};

use super::small;

/// Instances that are tried, unless `INSTANCES` says otherwise.
const INSTANCES: u64 = 1000;

fn released(component: Component) -> Vec<Packed> {
    let (bundle, version) = (Bundle::at(small()), "1.1.0".parse().unwrap());
    let mut directories = vec![bundle.release(component, &version)];
    if component == Component::Serving {
        directories.extend(["istio", "kourier"].map(|name| bundle.extra("ingress", &version, name)));
    }
    directories.iter().flat_map(|d| bundle.objects(d).unwrap().iter().cloned().collect::<Vec<_>>()).collect()
}

/// What is wrong with how `object` is treated, if something is; whether it was rendered.
fn tried(component: Component, object: &Value, released: &[Packed]) -> Result<bool, String> {
    let resource = rules::read(component, object).map_err(|problem| format!("not read: {problem}"))?;
    let problems = rules::judge(&resource, None, &Surroundings::default());
    if let Some(problem) = problems.iter().find(|problem| problem.rule == &rules::READABLE) {
        return Err(format!("judged unreadable: {problem}"));
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
fn what_the_definitions_admit_is_read_judged_and_rendered() {
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
                    defaults::fill_in(component, &mut object);
                    assert_eq!(object, given, "seed {seed}: something was filled in that the definition requires");
                    match tried(component, &object, &released) {
                        Ok(done) => rendered += u64::from(done),
                        Err(fault) => panic!("{component}, seed {seed}: {fault}\n{object:#}"),
                    }
                }
                assert!(count == 0 || rendered > 0);
                eprintln!(
                    "{component}: {count} instances read and judged, {rendered} rendered, {} refused with their field",
                    count - rendered
                );
            });
        }
    });
}
