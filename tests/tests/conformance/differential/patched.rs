//! `spec.patches`, which is newer than the Go module: `cases/patches.json` has what each case in
//! `cases/patches` changes in the Go operator, or its error. `null` is what is removed.

use std::collections::BTreeMap;
use std::sync::Arc;

use knative_operator_rules as rules;
use knative_operator_shared::api::Component;
use knative_operator_tests::{releases, tools};
use serde::Deserialize;
use serde_json::Value;

use super::compare::{Object, differences};
use super::ours::Ours;

/// What the Go operator makes of a case.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Expected {
    Changes { changes: BTreeMap<String, Value> },
    Error { error: String },
}

fn rendered(ours: &mut Ours, resource: &Value) -> Option<Vec<Arc<Object>>> {
    let component = Component::of_kind(resource["kind"].as_str().unwrap()).unwrap();
    ours.rendered(&rules::parse(component, resource).unwrap()).ok()
}

#[test]
fn patches_change_what_they_change_in_go_operator() {
    let folder = tools::project().join("tests/tests/conformance/cases");
    let text = std::fs::read_to_string(folder.join("patches.json")).unwrap();
    let cases: BTreeMap<String, Expected> = serde_json::from_str(&text).unwrap();
    assert_eq!(cases.len(), std::fs::read_dir(folder.join("patches")).unwrap().count());
    assert!(cases.len() >= 50);
    let mut ours = Ours::new(&releases::best().dir);
    for (name, expected) in cases {
        let text = std::fs::read_to_string(folder.join(format!("patches/{name}.yaml"))).unwrap();
        let resource: Value = serde_saphyr::from_str(&text).unwrap();
        let mut unpatched = resource.clone();
        unpatched["spec"].as_object_mut().unwrap().remove("patches").unwrap();
        let before = rendered(&mut ours, &unpatched).unwrap();
        match (rendered(&mut ours, &resource), expected) {
            (Some(after), Expected::Changes { changes }) => {
                let found = differences(&before, &after);
                let found: BTreeMap<_, _> = found.into_iter().map(|d| (d.object + &d.path, d.ours)).collect();
                assert_eq!(found, changes, "{name}");
            }
            (None, Expected::Error { .. }) => {}
            (Some(_), Expected::Error { error }) => panic!("{name}: no error; the Go operator's is {error}"),
            (None, Expected::Changes { .. }) => panic!("{name}: only ours has an error"),
        }
    }
}
