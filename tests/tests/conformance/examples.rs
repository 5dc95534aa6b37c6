//! The examples in docs/user/configure.md, and that of the page for a hub without resources, are
//! valid and take effect.

use knative_operator_tests::tools::{self, project};

use super::operator;

/// A comment before an example whose manifests exist nowhere.
const NOT_RENDERED: &str = "<!-- not rendered: ";

#[test]
fn examples_of_the_configuration_are_valid_and_take_effect() {
    let page = std::fs::read_to_string(project().join("docs/user/configure.md")).unwrap();
    let releases = tools::go_operator_module().unwrap().join("cmd/operator/kodata");
    let releases = releases.to_str().unwrap();
    let (folder, mut before, mut count) = (tempfile::tempdir().unwrap(), page.split("```yaml\n").next().unwrap(), 0);
    for block in page.split("```yaml\n").skip(1) {
        let (example, rest) = block.split_once("```\n").unwrap();
        let file = folder.path().join("example.yaml");
        std::fs::write(&file, example).unwrap();
        let is_rendered = !before.trim_end().lines().next_back().unwrap_or_default().starts_with(NOT_RENDERED);
        let command = if is_rendered { "render" } else { "lint" };
        let output = operator(&[command, "-f", file.to_str().unwrap(), "--releases", releases]);
        // What is invalid or without effect is on stderr.
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{example}{said}");
        (before, count) = (rest, count + 1);
    }
    assert!(count >= 14, "the page has {count} examples");
}

#[test]
fn example_for_an_empty_hub_is_valid_and_takes_effect() {
    let script = std::fs::read_to_string(project().join("operator/ui/empty.js")).unwrap();
    let example = script.split("<<EOF\n").nth(1).and_then(|rest| rest.split("\nEOF").next()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("example.yaml");
    std::fs::write(&file, example).unwrap();
    let releases = tools::go_operator_module().unwrap().join("cmd/operator/kodata");
    let output = operator(&["render", "-f", file.to_str().unwrap(), "--releases", releases.to_str().unwrap()]);
    let [rendered, said] = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(output.status.success() && said.is_empty(), "{example}\n{said}");
    // Istio, the default, would have to be there before.
    assert!(rendered.contains("name: 3scale-kourier-gateway") && !rendered.contains("name: net-istio"), "{example}");
}
