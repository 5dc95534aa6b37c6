//! `knative-operator lint`: objects that are mistaken for others, unknown fields, and its errors.

use std::path::Path;

use super::{operator, outcome, small};

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
            "error: KnativeServng x: kind: operator.knative.dev has no \"KnativeServng\"; the nearest is KnativeServing",
        ),
        (
            "{apiVersion: operator.knative.dev/v1beta1, kind: KnativeFleet, metadata: {name: x}}",
            "error: KnativeFleet x: apiVersion: \"operator.knative.dev/v1beta1\" has no KnativeFleet; set it to operator.knative.dev/v1alpha1",
        ),
        (
            "{apiVersion: operator.knative.dev/v1alpha1, kind: KnativeServing, metadata: {name: x}}",
            "error: KnativeServing x: apiVersion: \"operator.knative.dev/v1alpha1\" has no KnativeServing; set it to operator.knative.dev/v1beta1",
        ),
    ] {
        let (code, text, _) = lint(&[SERVING, object], &[]);
        assert!(code == Some(1) && text.contains(expected), "{code:?} {text}");
        assert!(text.ends_with("2 resources, 1 error\n"), "{text}");
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("knative.yaml");
        std::fs::write(&file, format!("{SERVING}\n---\n{object}")).unwrap();
        let releases = small();
        let render = ["render", "-f", file.to_str().unwrap(), "--releases", releases.to_str().unwrap()];
        let error = outcome(&operator(&render)).unwrap_err();
        assert!(error.contains(&expected["error: ".len()..]), "{error}");
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
            assert!(text.contains(&format!("{word}: {field}")), "{field}: {text}");
        }
    }
}

#[test]
fn errors_of_the_command_are_on_stderr_and_name_the_file_once() {
    let (code, text, error) = run(Path::new("/none.yaml"), &[]);
    assert_eq!((code, text.as_str()), (Some(2), ""));
    assert!(error.starts_with("error: cannot read /none.yaml: "), "{error}");
    let (code, text, error) = lint(&["{apiVersion: v1, kind: Namespace, metadata: {name: n}}"], &[]);
    assert_eq!((code, text.as_str()), (Some(2), ""));
    assert!(error.contains("knative.yaml: the file has no KnativeServing, "), "{error}");
}
