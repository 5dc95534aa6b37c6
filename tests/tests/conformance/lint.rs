//! `knative-operator lint`: objects that are mistaken for others, unknown fields, and its errors.

use std::path::Path;

use knative_operator_tests::{picture, tools};
use serde_json::Value;

use super::{command, operator, outcome, small};

const SERVING: &str =
    "{apiVersion: operator.knative.dev/v1beta1, kind: KnativeServing, metadata: {name: good, namespace: n}}";

/// Exit status, standard output and standard error of `lint` for a file with `documents`.
fn lint(documents: &[&str], flags: &[&str]) -> (Option<i32>, String, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("knative.yaml");
    std::fs::write(&file, documents.join("\n---\n")).unwrap();
    run(&file, flags)
}

fn run(file: &Path, flags: &[&str]) -> (Option<i32>, String, String) {
    let releases = small();
    let arguments = ["lint", "-f", file.to_str().unwrap(), "--releases", releases.to_str().unwrap()];
    let output = operator(&[&arguments[..], flags].concat());
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn objects_that_are_mistaken_for_others_are_errors() {
    for (object, expected) in [
        (
            "{apiVersion: operator.knative.dev/v1beta1, kind: KnativeServng, metadata: {name: x}}",
            "KnativeServng x: kind: operator.knative.dev has no \"KnativeServng\"; the nearest is KnativeServing",
        ),
        (
            "{apiVersion: operator.knative.dev/v1beta1, kind: KnativeFleet, metadata: {name: x}}",
            "KnativeFleet x: apiVersion: \"operator.knative.dev/v1beta1\" has no KnativeFleet; set it to operator.knative.dev/v1alpha1",
        ),
        (
            "{apiVersion: operator.knative.dev/v1alpha1, kind: KnativeServing, metadata: {name: x}}",
            "KnativeServing x: apiVersion: \"operator.knative.dev/v1alpha1\" has no KnativeServing; set it to operator.knative.dev/v1beta1",
        ),
    ] {
        let (code, text, _) = lint(&[SERVING, object], &[]);
        assert!(code == Some(1) && text.contains(&format!("knative.yaml: {expected}")), "{code:?} {text}");
        assert!(text.starts_with("error: "), "{text}");
        assert!(text.ends_with("2 resources, 1 error\n"), "{text}");
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("knative.yaml");
        std::fs::write(&file, format!("{SERVING}\n---\n{object}")).unwrap();
        let releases = small();
        let render = ["render", "-f", file.to_str().unwrap(), "--releases", releases.to_str().unwrap()];
        let error = outcome(&operator(&render)).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
    let (code, text, said) = lint(&[SERVING, "{apiVersion: v1, kind: Namespace, metadata: {name: n}}"], &[]);
    assert_eq!((code, text.lines().next_back(), said.as_str()), (Some(0), Some("1 resource, 0 errors"), ""));
}

#[test]
fn unknown_fields_are_warnings_and_with_strict_errors() {
    let fleet = "{apiVersion: operator.knative.dev/v1alpha1, kind: KnativeFleet, metadata: {name: f, namespace: n}, \
                 spec: {placement: {clusterSelector: {}}, rollot: {}, serving: {spec: {ingres: {}}}}}";
    let serving = SERVING.replace("}}", "}, spec: {high-availability: {replicas: 2, replica: 2}}}");
    let fields = [
        "KnativeServing good: spec.high-availability.replica: unknown field; the API server drops it; the nearest is replicas\n",
        "KnativeFleet f: spec.rollot: unknown field; the API server drops it; the nearest is rollout\n",
        "KnativeFleet f: spec.serving.spec.ingres: unknown field; the API server drops it; the nearest is ingress\n",
    ];
    for (flags, status, word) in [(&[][..], 0, "warning"), (&["--strict"][..], 1, "error")] {
        let (code, text, _) = lint(&[serving.as_str(), fleet], flags);
        assert_eq!(code, Some(status), "{text}");
        for field in fields {
            let is_line = |line: &str| line.starts_with(&format!("{word}: ")) && line.ends_with(field.trim_end());
            assert!(text.lines().any(is_line), "{field}: {text}");
        }
    }
    let (_, text, _) = lint(&[serving.as_str(), fleet], &["-o", "json"]);
    let value: Value = serde_json::from_str(&text).unwrap();
    let unknown = value["findings"].as_array().unwrap().iter().filter(|finding| finding["rule"].is_null());
    let found: Vec<&Value> = unknown.map(|finding| &finding["field"]).collect();
    assert_eq!(found, ["spec.high-availability.replica", "spec.rollot", "spec.serving.spec.ingres"]);
}

#[test]
fn patches_of_manifests_that_are_not_available_are_not_checked_silently() {
    let patch = "{target: {apiVersion: apps/v1, kind: Deployment, name: controller}, \
                 patch: {type: merge, content: 'metadata: {annotations: {a: b}}'}}";
    let of = |additional: &str| SERVING.replace("}}", &format!("}}, spec: {{patches: [{patch}]{additional}}}}}"));
    let (code, text, _) = lint(&[of("").as_str()], &[]);
    assert!(code == Some(0) && !text.contains("not checked"), "{text}");
    let additional = of(", additionalManifests: [{URL: 'https://127.0.0.1:1/a.yaml'}]");
    let (code, text, _) = lint(&[additional.as_str()], &["-o", "json"]);
    let value: Value = serde_json::from_str(&text).unwrap();
    let mut found = value["findings"].as_array().unwrap().iter();
    let finding = found.find(|finding| finding["field"] == "spec.patches").unwrap();
    let expected = "spec.patches: not checked: spec.additionalManifests[0].URL: https://127.0.0.1:1/a.yaml: ";
    assert!(finding["message"].as_str().unwrap().starts_with(expected), "{finding}");
    assert_eq!((code, &finding["severity"]), (Some(0), &"warning".into()));
}

#[test]
fn errors_of_the_command_are_on_stderr_and_name_the_file_once() {
    let (code, text, error) = run(Path::new("/none.yaml"), &[]);
    assert_eq!((code, text.as_str()), (Some(2), ""));
    assert!(error.starts_with("error: cannot read /none.yaml: "), "{error}");
    let (code, text, error) = lint(&["{apiVersion: v1, kind: Namespace, metadata: {name: n}}"], &[]);
    assert_eq!((code, text.as_str()), (Some(2), ""));
    assert!(error.contains("knative.yaml: there is no KnativeServing, "), "{error}");
}

#[test]
fn files_and_folders_are_linted_as_text_and_as_json() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    write("apps/one.yaml", SERVING);
    write("apps/below/two.yml", &SERVING.replace("}}", "}, spec: {version: one}}").replace("good", "bad"));
    write("apps/below/namespace.json", r#"{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}}"#);
    let (apps, other) = (folder.path().join("apps"), write("other.yaml", &SERVING.replace("good", "other")));
    let summary = |flags: &[&str]| {
        let (code, text, error) = run(&apps, flags);
        assert_eq!(error, "");
        (code, text.lines().next_back().unwrap().to_owned())
    };
    assert_eq!(summary(&[]), (Some(0), "1 resource, 0 errors".to_owned()));
    assert_eq!(summary(&["-f", &other]), (Some(0), "2 resources, 0 errors".to_owned()));
    assert_eq!(summary(&["-R", "-f", &other]), (Some(1), "3 resources, 1 error".to_owned()));

    let (code, text, _) = run(&apps, &["-R", "-o", "json"]);
    let value: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((code, &value["resources"], &value["errors"]), (Some(1), &2.into(), &1.into()), "{text}");
    assert_eq!(value["releaseBundle"], true);
    let finding = &value["findings"][0];
    let file = apps.join("below/two.yml").display().to_string();
    assert_eq!((&finding["file"], &finding["resource"]), (&file.into(), &"KnativeServing bad".into()));
    assert_eq!((&finding["severity"], &finding["field"]), (&"error".into(), &"spec.version".into()));
    assert!(finding["rule"].is_string() && finding["message"].as_str().unwrap().contains("is not a version"), "{text}");

    // A file that can't be read hides no other one, nor what is found in others.
    let (first, second) = (write("first.yaml", "{"), write("second.yaml", "}"));
    let third = apps.join("link.yaml").display().to_string();
    std::os::unix::fs::symlink("/none", &third).unwrap();
    let flags = ["-f", &first, "-f", &second];
    let (code, text, error) = run(&apps, &flags);
    assert_eq!((code, text.as_str()), (Some(2), "1 resource, 0 errors\n"));
    let files = [third.clone(), first.clone(), second.clone()];
    assert!(files.iter().all(|file| error.contains(&format!("{file}: "))), "{error}");
    let unreadable = |(code, text, error): (Option<i32>, String, String)| {
        let value: Value = serde_json::from_str(&text).unwrap();
        assert!(code == Some(2) && error.starts_with("error: cannot read "), "{code:?} {error}");
        let unreadable = value["unreadable"].as_array().unwrap().iter().map(|one| one["file"].as_str().unwrap());
        (value["resources"].as_u64().unwrap(), unreadable.map(str::to_owned).collect::<Vec<_>>())
    };
    assert_eq!(unreadable(run(&apps, &[&flags[..], &["-o", "json"]].concat())), (1, files.to_vec()));
    let none = Path::new("/none.yaml");
    assert_eq!(unreadable(run(none, &["-o", "json"])), (0, vec!["/none.yaml".to_owned()]));
}

#[test]
fn findings_for_code_scanning_have_rule_file_and_line() {
    let serving = "apiVersion: operator.knative.dev/v1beta1\nkind: KnativeServing\nmetadata:\n  name: a\n  namespace: n\n\
                   spec:\n  version: one\n  ingres: {}\n";
    let (code, text, error) = lint(&["# several documents", serving], &["-o", "sarif", "-f", "/none.yaml"]);
    assert!(code == Some(2) && error.starts_with("error: cannot read /none.yaml: "), "{code:?} {error}");
    let log: Value = serde_json::from_str(&text).unwrap();
    let run = &log["runs"][0];
    assert_eq!((&log["version"], &run["invocations"][0]["executionSuccessful"]), (&"2.1.0".into(), &false.into()));
    let results = run["results"].as_array().unwrap();
    let found = results.iter().map(|result| {
        let place = &result["locations"][0]["physicalLocation"];
        assert!(place["artifactLocation"]["uri"].as_str().unwrap().ends_with("/knative.yaml"), "{place}");
        let level = result["level"].as_str().unwrap().to_owned();
        (level, result["ruleId"].as_str().map(str::to_owned), place["region"]["startLine"].as_u64().unwrap())
    });
    let found: Vec<_> = found.collect();
    let refused = ("error".to_owned(), Some("version-syntax".to_owned()), 9);
    assert!(found.contains(&refused) && found.contains(&("warning".to_owned(), None, 10)), "{found:?}");
    // Each rule has its requirement, and a heading in the document that its link names.
    let document = std::fs::read_to_string(tools::project().join("docs/user/rules.md")).unwrap();
    let rules = run["tool"]["driver"]["rules"].as_array().unwrap();
    assert!(!rules.is_empty() && rules.iter().all(|rule| rule["shortDescription"]["text"].is_string()), "{rules:?}");
    for rule in rules {
        let link = rule["helpUri"].as_str().unwrap();
        let anchor = link.split_once("docs/user/rules.md#").unwrap().1;
        assert!(document.contains(&format!("\n### {anchor}\n")), "{link}");
    }
}

/// A resource with mistakes that are easy to make.
const MISTAKEN: &str = "\
apiVersion: operator.knative.dev/v1beta1
kind: KnativeServing
metadata:
  name: knative-serving
  namespace: knative-serving
spec:
  ingres:
    kourier:
      enabled: true
  high-availability:
    replicas: 0
  workloads:
    - name: activater
      resources:
        - container: activator
          requests:
            memory: 1Gb
";

#[test]
fn picture_of_lint_in_the_documents_is_up_to_date() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("serving.yaml"), MISTAKEN).unwrap();
    std::os::unix::fs::symlink(small(), folder.path().join("bundle")).unwrap();
    let arguments = ["lint", "-f", "serving.yaml", "--releases", "bundle"];
    let output = command().args(arguments).current_dir(folder.path()).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    let picture = picture::of_text("lint", &arguments.join(" "), &text).unwrap();
    let stored = std::fs::read_to_string(tools::project().join("docs/images/lint.svg")).unwrap();
    assert_eq!(stored, picture, "docs/images/lint.svg is stale: run this test with UPDATE_IMAGES=yes");
}
