//! The references of fields and of commands: they are up to date, and describe each field.

use knative_operator_tests::{api_reference, picture, tools};

use super::{operator, outcome};

fn assert_fresh(path: &str, text: &str) {
    let stored = std::fs::read_to_string(tools::project().join(path)).unwrap_or_default();
    assert!(stored == text, "{path} is stale: run `make generate`");
}

#[test]
fn documented_fields_are_up_to_date() {
    assert_fresh(api_reference::PAGE, &api_reference::document());
}

#[test]
fn documented_commands_are_up_to_date() {
    assert_fresh("docs/user/commands.md", &outcome(&operator(&["commands"])).unwrap());
}

/// The text is that of the document, which a test of the command prints.
#[test]
fn picture_of_the_status_is_up_to_date() {
    let page = std::fs::read_to_string(tools::project().join("docs/user/status.md")).unwrap();
    let text = page.split("```text\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let picture = picture::of_text("status-tree", "status --all-namespaces", text).unwrap();
    let stored = std::fs::read_to_string(tools::project().join("docs/images/status-tree.svg")).unwrap_or_default();
    assert!(stored == picture, "docs/images/status-tree.svg is stale: run this test with UPDATE_IMAGES=yes");
}

#[test]
fn each_documented_field_has_a_description_and_types_of_kubernetes_are_folded() {
    let text = api_reference::document();
    let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("| `")).collect();
    let undescribed: Vec<_> = rows.iter().filter(|row| row.ends_with("|  |")).collect();
    assert!(rows.len() > 300 && undescribed.is_empty(), "{} rows; {undescribed:?}", rows.len());
    for row in [
        "| `spec.workloads[].affinity` | `Affinity` |  | Affinity of the Pods. |",
        "| `spec.workloads[].env[].envVars` | `[]EnvVar` |  | Variables to set. |",
        "| `spec.services[].selector` | `map[string]string` |  | Selector entries to add. |",
        "| `spec.clusterProfileRef.name` | `string` | required | Name of the ClusterProfile. |",
        "| `spec.revisionHistoryLimit` | `integer` | 10 | Number of earlier revisions to keep. |",
        "| `status.conditions[].type` | `string` |  | Type. |",
    ] {
        assert!(rows.contains(&row), "{row} is missing");
    }
    assert!(text.contains("| `map[string]map[string]string` |") && text.contains("TLS mode. One of `PASSTHROUGH`, "));
    for hidden in ["affinity.nodeAffinity", "`spec.deployments[].name`"] {
        assert!(!text.contains(hidden), "{hidden}");
    }
}
