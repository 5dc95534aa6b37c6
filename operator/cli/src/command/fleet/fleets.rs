//! The fleets of a hub: the list that `knative-operator fleet status` prints without a name, and
//! the fleet that is meant without a name.

use std::process::ExitCode;

use knative_operator_shared::api::Kind;
use kube::core::DynamicObject;
use serde_json::{Value, json};

use super::Hub;
use crate::command::list;
use crate::command::output;
use crate::command::table::{row, table};

/// The command that lists all fleets.
pub const LIST: &str = "knative-operator fleet status -A";
/// Fleets that an error names.
const NAMED: usize = 20;

/// The fleets in `namespace` or in all. They are untyped, so those that a newer operator wrote are
/// listed, too.
async fn stored(hub: &Hub, namespace: Option<&str>) -> Result<Vec<DynamicObject>, String> {
    let found = list::objects(&hub.client, Kind::Fleet, namespace).await?;
    found.ok_or_else(|| list::not_installed(Kind::Fleet))
}

/// Prints the fleets in `namespace` or in all.
pub async fn run(hub: &Hub, namespace: Option<&str>) -> Result<ExitCode, String> {
    let fleets = stored(hub, namespace).await?;
    if fleets.is_empty() {
        output::report(&match namespace {
            Some(namespace) => format!("No KnativeFleets in namespace {namespace}. To list all: {LIST}"),
            None => "No KnativeFleets in any namespace.".to_owned(),
        });
    }
    hub.print(&describe(&fleets), &fleets.iter().map(value).collect());
    Ok(ExitCode::SUCCESS)
}

/// The fleet `name`, or the only one in the namespace.
pub async fn name_or_only(hub: &Hub, name: Option<&str>) -> Result<String, String> {
    match name {
        Some(name) => Ok(name.to_owned()),
        None => only(&stored(hub, Some(&hub.namespace)).await?, &hub.namespace),
    }
}

/// The name of the only one of `fleets`, which are those in `namespace`.
fn only(fleets: &[DynamicObject], namespace: &str) -> Result<String, String> {
    match fleets {
        [] => Err(format!("there is no KnativeFleet in namespace {namespace}; to list all: {LIST}")),
        [fleet] => Ok(name(fleet).to_owned()),
        fleets => {
            let names: Vec<_> = fleets.iter().take(NAMED).map(name).collect();
            let more = fleets.len() - names.len();
            let more = if more == 0 { String::new() } else { format!(" and {more} others") };
            Err(format!("namespace {namespace} has several KnativeFleets; name one of {}{more}", names.join(", ")))
        }
    }
}

fn name(fleet: &DynamicObject) -> &str {
    fleet.metadata.name.as_deref().unwrap_or_default()
}

/// What programs read about `fleet`.
fn value(fleet: &DynamicObject) -> Value {
    json!({"namespace": fleet.metadata.namespace, "name": name(fleet), "status": fleet.data["status"]})
}

/// A row about each of `fleets`; empty without fleets.
fn describe(fleets: &[DynamicObject]) -> String {
    if fleets.is_empty() {
        return String::new();
    }
    let mut rows = vec![row(["NAMESPACE", "NAME", "UPDATED", "READY", "FAILED", "STAGE", "STATUS", "MESSAGE"])];
    for fleet in fleets {
        let status = &fleet.data["status"];
        let count = |field: &str| status[field].as_u64().unwrap_or_default();
        let mut conditions = status["conditions"].as_array().into_iter().flatten();
        let ready = conditions.find(|condition| condition["type"] == "Ready").unwrap_or(&Value::Null);
        rows.push(row([
            fleet.metadata.namespace.as_deref().unwrap_or_default(),
            name(fleet),
            &format!("{}/{}", count("updated"), count("clusters")),
            &count("ready").to_string(),
            &count("failed").to_string(),
            status["stage"].as_str().unwrap_or("-"),
            ready["reason"].as_str().unwrap_or("-"),
            ready["message"].as_str().unwrap_or_default(),
        ]));
    }
    table(&rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fleet(name: &str, status: &Value) -> DynamicObject {
        serde_json::from_value(json!({"apiVersion": "operator.knative.dev/v1alpha1", "kind": "KnativeFleet",
            "metadata": {"name": name, "namespace": "platform"}, "status": status}))
        .unwrap()
    }

    #[test]
    fn fleets_are_listed_with_what_they_wait_for() {
        let conditions = json!([{"type": "Stalled", "status": "False", "reason": "x"},
            {"type": "Ready", "status": "False", "reason": "RollingOut", "message": "1 of 3 clusters\nhave the revision"}]);
        let rolling =
            json!({"clusters": 3, "updated": 1, "ready": 2, "failed": 1, "stage": "rest", "conditions": conditions});
        let fleets = [fleet("prod", &rolling), fleet("new", &Value::Null)];
        let expected = "\
NAMESPACE   NAME   UPDATED   READY   FAILED   STAGE   STATUS       MESSAGE
platform    prod   1/3       2       1        rest    RollingOut   1 of 3 clusters have the revision
platform    new    0/0       0       0        -       -
";
        assert_eq!(describe(&fleets), expected);
        assert_eq!(describe(&[]), "");
        assert_eq!(value(&fleets[1]), json!({"namespace": "platform", "name": "new", "status": null}));
    }

    #[test]
    fn a_fleet_is_meant_without_a_name_if_it_is_the_only_one() {
        let fleets: Vec<_> = (0..22).map(|number| fleet(&format!("f{number}"), &Value::Null)).collect();
        assert_eq!(only(&fleets[..1], "platform").as_deref(), Ok("f0"));
        let error = only(&fleets[..2], "platform").unwrap_err();
        assert_eq!(error, "namespace platform has several KnativeFleets; name one of f0, f1");
        assert!(only(&fleets, "platform").unwrap_err().ends_with("f18, f19 and 2 others"));
        let error = only(&[], "platform").unwrap_err();
        assert_eq!(
            error,
            "there is no KnativeFleet in namespace platform; to list all: knative-operator fleet status -A"
        );
    }
}
