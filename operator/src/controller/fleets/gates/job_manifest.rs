//! The Job of a measurement. Its name is made from the fleet, the update, the gate and the number
//! of the measurement, so that another replica finds the same Job. Pure.

use std::time::Duration;

use knative_operator_shared::api::fleet::{Gate, JobGate};
use knative_operator_shared::label::{FLEET, FLEET_GATE};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::subject::Subject;
use knative_operator_fleet::template::label_value;

/// Seconds for which a Job stays after its end: long enough for another replica to find it.
const KEPT: u64 = 3600;
/// Maximum length of the name of the gate in that of the Job. Names of Jobs are values of labels.
const MAX_GATE: usize = 40;

/// Name of the Job of `gate`.
pub fn name(subject: &Subject, gate: &Gate) -> String {
    let Subject { fleet_uid, cluster, update, number, .. } = subject;
    let digest = Sha256::digest(format!("{fleet_uid}\n{cluster}\n{update:x}\n{}\n{number}", gate.name));
    let digest: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let readable = gate.name.get(..MAX_GATE).unwrap_or(&gate.name).trim_end_matches('-');
    format!("gate-{readable}-{digest}")
}

/// The Job of `gate`, which may take `timeout`.
pub fn manifest(subject: &Subject, gate: &Gate, job: &JobGate, timeout: Duration) -> Value {
    let mut spec = Value::Object(job.spec.clone());
    // A measurement is repeated by the gate.
    for (field, value) in [("activeDeadlineSeconds", json!(timeout.as_secs())), ("backoffLimit", json!(0))] {
        if spec[field].is_null() {
            spec[field] = value;
        }
    }
    spec["ttlSecondsAfterFinished"] = json!(KEPT);
    for kind in ["containers", "initContainers"] {
        let containers = spec.pointer_mut(&format!("/template/spec/{kind}")).and_then(Value::as_array_mut);
        containers.into_iter().flatten().for_each(|container| complete(container, &subject.variables));
    }
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {
            "name": name(subject, gate), "namespace": job.namespace,
            "labels": {FLEET: label_value(&subject.fleet), FLEET_GATE: gate.name},
        },
        "spec": spec,
    })
}

/// Adds the `variables` to `container`, before its own, which can refer to them. The end of its log
/// is its termination message if it fails, unless it says otherwise.
fn complete(container: &mut Value, variables: &[(String, String)]) {
    // The API server refuses anything else.
    if !container.is_object() {
        return;
    }
    let mut env: Vec<Value> = variables.iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
    env.extend(container["env"].as_array().into_iter().flatten().cloned());
    container["env"] = Value::Array(env);
    if container["terminationMessagePolicy"].is_null() {
        container["terminationMessagePolicy"] = json!("FallbackToLogsOnError");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use knative_operator_shared::api::{ClusterProfileReference, Knative, KnativeServing};

    use super::*;

    fn subject(number: u32) -> Subject {
        Subject {
            resource: Arc::new(Knative::Serving(KnativeServing::default())),
            fleet: "prod".to_owned(),
            fleet_uid: "1".to_owned(),
            cluster: ClusterProfileReference { name: "a".to_owned(), namespace: "f".to_owned() },
            update: 7,
            number,
            variables: vec![("KNATIVE_FLEET_CLUSTER".to_owned(), "f/a".to_owned())],
        }
    }

    fn gate(name: &str, spec: &Value) -> Gate {
        serde_json::from_value(json!({"name": name, "job": {"namespace": "n", "spec": spec}})).unwrap()
    }

    #[test]
    fn name_is_the_same_for_each_replica_and_another_one_for_each_measurement() {
        let gate = |name: &str| gate(name, &json!({}));
        let first = name(&subject(0), &gate("load"));
        assert_eq!(first, name(&subject(0), &gate("load")));
        assert!(first.starts_with("gate-load-") && first.len() == "gate-load-".len() + 16, "{first}");
        let other = Subject { update: 8, ..subject(0) };
        let all = [first, name(&subject(1), &gate("load")), name(&other, &gate("load")), name(&subject(0), &gate("l"))];
        assert!((1..all.len()).all(|index| !all[..index].contains(&all[index])), "{all:?}");
        assert!(name(&subject(0), &gate(&"a".repeat(63))).len() <= 63);
    }

    #[test]
    fn invalid_container_is_left_to_the_api_server() {
        let spec = json!({"template": {"spec": {"containers": ["c", null]}}});
        let gate = gate("load", &spec);
        let job = manifest(&subject(0), &gate, gate.job.as_ref().unwrap(), Duration::from_secs(60));
        assert_eq!(job["spec"]["template"], spec["template"]);
    }

    #[test]
    fn containers_get_to_know_what_is_rolled_out() {
        let container = json!({"name": "c", "image": "i", "env": [{"name": "X", "value": "$(KNATIVE_FLEET_CLUSTER)"}]});
        let spec = json!({"backoffLimit": 2, "ttlSecondsAfterFinished": 0,
            "template": {"spec": {"containers": [container], "initContainers": [{"name": "i", "image": "i"}]}}});
        let gate = gate("load", &spec);
        let job = manifest(&subject(0), &gate, gate.job.as_ref().unwrap(), Duration::from_secs(60));
        assert_eq!(job["metadata"]["labels"], json!({FLEET: "prod", FLEET_GATE: "load"}));
        let spec = &job["spec"];
        let numbers = ["backoffLimit", "activeDeadlineSeconds", "ttlSecondsAfterFinished"].map(|field| &spec[field]);
        assert_eq!(numbers, [&json!(2), &json!(60), &json!(3600)]);
        let variable = json!({"name": "KNATIVE_FLEET_CLUSTER", "value": "f/a"});
        let pod = &spec["template"]["spec"];
        assert_eq!(pod["containers"][0]["env"], json!([variable, container["env"][0]]));
        assert_eq!(pod["initContainers"][0]["env"], json!([variable]));
        assert_eq!(pod["containers"][0]["terminationMessagePolicy"], "FallbackToLogsOnError");
    }
}
