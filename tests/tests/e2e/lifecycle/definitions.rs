//! `kubectl delete crd`: the API server deletes all resources with their definition.

use std::path::Path;
use std::process::Command;

use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::remaining::objects;
use knative_operator_tests::{Result, product, project, releases};
use serde_json::{Value, json};

use super::{TEAM, hub};
use crate::owners::{PLACE, state};
use crate::support::{apply, gone, has_condition, nothing_left, ready, run, serving};

const DEFINITION: &str = "knativeservings.operator.knative.dev";
const LIVE: [&str; 4] = ["knativeserving", "knative-serving", "-n", TEAM];
const PROTECTED: &str = "operator.knative.dev/protected";

/// A copy of the chart in `folder`, with another field in the spec of KnativeServings.
fn chart_with_a_field(folder: &Path) -> Result<String> {
    let copy = folder.join("chart");
    let original = project().join("charts/knative-operator");
    let status = Command::new("cp").arg("-r").arg(&original).arg(&copy).status()?;
    assert!(status.success(), "cannot copy the chart");
    let file = copy.join("files/crds/knativeservings.yaml");
    let mut definition: Value = serde_saphyr::from_str(&std::fs::read_to_string(&file)?)?;
    let schema = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    schema["properties"]["spec"]["properties"]["future"] = json!({"type": "string"});
    std::fs::write(&file, definition.to_string())?;
    Ok(copy.display().to_string())
}

#[test]
fn deleted_definition_uninstalls_nothing_that_is_protected() {
    run(async {
        let spoke = Cluster::spoke("defined").await?;
        let (releases, plugins) = (releases::small(), tempfile::tempdir()?);
        let (hub, _product) = hub("definitions", &releases, plugins.path(), &[("spoke", &spoke)]).await?;
        let resource = serving(TEAM, "knative-serving", Some("spoke"), &releases);
        let before = objects(&spoke.client()).await?;
        // Without resources, a definition may be deleted, and Helm or kubectl creates it again.
        hub.object("CustomResourceDefinition", "", "knativeeventings.operator.knative.dev").delete().await?;
        apply(&hub, &resource).await?;
        ready(&hub, &resource).await?;
        let installed = state(&spoke, PLACE).await?;

        // A newer chart has a new field, which a rollback takes from the definition.
        let chart = chart_with_a_field(plugins.path())?;
        let release = ["knative-operator", "--namespace", product::NAMESPACE, "--wait", "--timeout", "2m"];
        hub.helm(&[&["upgrade"], &release[..1], &[&chart, "--reuse-values"], &release[1..]].concat()).await?;
        let set = [&LIVE[..], &["--type=merge", "-p", r#"{"spec":{"future":"value"}}"#]].concat();
        hub.kubectl(&[&["patch"], &set[..]].concat(), "").await?;
        hub.helm(&[&["rollback"], &release[..]].concat()).await?;
        hub.kubectl(&[&["annotate"], &LIVE[..], &["example.com/a=b"]].concat(), "").await?;
        let kept = hub.kubectl(&[&["get"], &LIVE[..], &["-o", "jsonpath={.spec.future}"]].concat(), "").await?;
        assert_eq!(kept, "value", "the roll back lost a field");

        let delete = ["delete", "crd", DEFINITION, "--wait=false"];
        let (is_deleted, output) = hub.kubectl_output(&delete, "").await;
        assert!(!is_deleted, "{output}");
        let part = format!("{DEFINITION} has 1 resource, which would be deleted with it");
        assert!(output.contains(&part) && output.contains("delete the resources first"), "{output}");

        // Somebody deletes the webhook's configuration first.
        let protect = ["annotate", "knativeserving", "knative-serving", "-n", TEAM];
        hub.kubectl(&[&protect[..], &[&format!("{PROTECTED}=true")]].concat(), "").await?;
        hub.object("validatingwebhookconfiguration", "", "validation.operator.knative.dev").delete().await?;
        hub.kubectl(&delete, "").await?;
        has_condition(&hub, &resource, "InstallSucceeded", "Protected", "nothing is uninstalled").await?;
        assert_eq!(state(&spoke, PLACE).await?, installed);
        hub.kubectl(&[&protect[..], &[&format!("{PROTECTED}-")]].concat(), "").await?;
        gone(&hub, &resource).await?;
        nothing_left(&spoke, &before).await?;

        // A running webhook leaves nothing that blocks requests.
        hub.object("namespace", "", product::NAMESPACE).start_deletion().await?;
        let left = ["wait", "--for=delete", "mutatingwebhookconfiguration/defaulting.operator.knative.dev"];
        hub.kubectl(&[&left[..], &["--timeout=5m"]].concat(), "").await.map(drop)
    });
}
