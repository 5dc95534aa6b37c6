//! What GitOps tools see of the states of a resource: the health by Argo CD's own scripts and by
//! ours, and kstatus, which Flux and Helm use. The conditions are those that the operator computes.

use std::io::Write;
use std::process::{Command, Stdio};

use jiff::Timestamp;
use knative_operator::conditions::{self, InstallationReport, OCCUPIED, ReconcileResult, TERMINATING};
use knative_operator_apply::error::ApplyError;
use knative_operator_objects::ObjectId;
use knative_operator_objects::health::Wait;
use knative_operator_overview::Unresolved;
use knative_operator_shared::api::{Component, Condition};
use knative_operator_shared::crd::definition;
use knative_operator_shared::reason::Reason;
use knative_operator_tests::tools::{self, project};
use serde::Deserialize;
use serde_json::{Value, json};

use super::operator;

/// Our script, in the form in which Argo CD has its own ones.
const SCRIPT: &str = "docs/operate/argocd/operator.knative.dev/KnativeFleet/health.lua";
/// The page about GitOps.
const PAGE: &str = "docs/operate/gitops.md";

/// What the tools see of a resource.
#[derive(Debug, Deserialize)]
pub struct Seen {
    /// Health by Argo CD's own script; empty without one.
    pub argo: String,
    /// Health by our script.
    pub own: String,
    /// Message of our script.
    message: String,
    /// Result of kstatus.
    pub kstatus: String,
}

/// What the tools see of each of `resources`.
pub fn seen(resources: &[Value]) -> Vec<Seen> {
    let mut program = Command::new(tools::provided("gitops").unwrap())
        .arg("--script")
        .arg(project().join(SCRIPT))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines: String = resources.iter().map(|resource| format!("{resource}\n")).collect();
    program.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    let output = program.wait_with_output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(!text.contains(r#""error""#), "{text}");
    let seen: Vec<Seen> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(seen.len(), resources.len());
    seen
}

/// A resource of `kind` in generation 2 with `status`.
pub fn resource(kind: &str, version: &str, status: &Value) -> Value {
    json!({"apiVersion": format!("operator.knative.dev/{version}"), "kind": kind,
        "metadata": {"name": "a", "namespace": "n", "generation": 2}, "status": status})
}

/// The same, while it is being deleted.
pub fn deleted(mut resource: Value) -> Value {
    resource["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    resource
}

/// The status that the API server gives a new resource of `definition`.
pub fn new(definition: &Value) -> Value {
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["default"].clone()
}

/// The conditions after `results`, a minute each, the last of which lasts.
fn after(results: &[ReconcileResult]) -> Vec<Condition> {
    (0..).zip(results.iter().chain(results.last())).fold(Vec::new(), |stored, (minute, result)| {
        let states = conditions::states(conditions::stored(&stored), result);
        conditions::update(&stored, &states, Timestamp::from_second(60 * minute).unwrap())
    })
}

/// States of a `component`: a name, the resource, and what Argo CD's script, ours, and kstatus say.
fn states(component: Component) -> Vec<(&'static str, Value, [&'static str; 3])> {
    let report = |change: fn(&mut InstallationReport)| {
        let mut report = InstallationReport { observed: true, ..InstallationReport::of(component) };
        change(&mut report);
        ReconcileResult::Installation(report)
    };
    let waiting = |why: &'static str| {
        let unavailable = vec![("activator".to_owned(), Wait::from(why))];
        let report = InstallationReport { observed: true, unavailable, ..InstallationReport::of(component) };
        ReconcileResult::Installation(report)
    };
    let ready = || report(|_| {});
    let unresolved = |reason| ReconcileResult::Unresolved(Unresolved::new(reason, "why"));
    let of = |generation: i64, results: &[ReconcileResult]| {
        let status = json!({"observedGeneration": generation, "version": "1.22.1", "conditions": after(results)});
        resource(component.kind(), "v1beta1", &status)
    };
    let created = resource(component.kind(), "v1beta1", &new(&definition(component)));
    let installing = report(|report| report.pending = vec!["3 objects to be applied".to_owned()]);
    let refused = report(|report| {
        report.refused =
            vec![(ObjectId::new("", "ConfigMap", "n", "c"), ApplyError::Other("exceeded quota".to_owned()))];
    });
    let failed = report(|report| report.failures = vec!["Job n/j failed: BackoffLimitExceeded".to_owned()]);
    let progresses = ["Progressing", "Progressing", "InProgress"];
    // Argo CD's script has no Degraded for a resource that is not Ready.
    let needs_a_person = ["Progressing", "Degraded", "Failed"];
    let going = ["Progressing", "Progressing", "Terminating"];
    vec![
        ("created", created, progresses),
        ("nothing observed", of(2, &[ReconcileResult::Installation(InstallationReport::of(component))]), progresses),
        ("installing", of(2, &[installing]), progresses),
        ("waiting for Deployments", of(2, &[waiting("0 of 1 replicas are updated")]), progresses),
        ("Ready", of(2, &[ready()]), ["Healthy", "Healthy", "Current"]),
        // Argo CD's script doesn't compare generations.
        ("changed", of(1, &[ready()]), ["Healthy", "Progressing", "InProgress"]),
        ("stalled, then changed", of(1, &[unresolved(Reason::CredentialNotBound)]), progresses),
        ("updating", of(2, &[ready(), waiting("0 of 1 replicas are updated")]), progresses),
        ("unreachable", of(2, &[ready(), unresolved(Reason::RemoteClusterUnreachable)]), progresses),
        (
            "unreachable, and back",
            of(2, &[unresolved(Reason::RemoteClusterUnreachable), ready()]),
            ["Healthy", "Healthy", "Current"],
        ),
        ("not healthy", of(2, &[ready(), unresolved(Reason::ClusterProfileNotReady)]), progresses),
        ("object refused", of(2, &[ready(), refused]), progresses),
        ("namespace terminating", of(2, &[ready(), ReconcileResult::Blocked(TERMINATING, "why".into())]), progresses),
        ("ClusterProfile missing", of(2, &[unresolved(Reason::ClusterProfileNotFound)]), needs_a_person),
        ("credential not bound", of(2, &[ready(), unresolved(Reason::CredentialNotBound)]), needs_a_person),
        ("Job failed", of(2, &[failed]), needs_a_person),
        ("invalid image", of(2, &[waiting("invalid image name")]), needs_a_person),
        ("occupied", of(2, &[ReconcileResult::Blocked(OCCUPIED, "why".into())]), needs_a_person),
        (
            "version refused",
            of(2, &[ReconcileResult::Ineligible("too far".into(), Some(Box::new(ready())))]),
            needs_a_person,
        ),
        (
            "version refused, then corrected",
            of(2, &[ReconcileResult::Ineligible("too far".into(), None), ready()]),
            ["Healthy", "Healthy", "Current"],
        ),
        // The tools don't ask more about what is being deleted.
        ("deleted", deleted(of(2, &[ready()])), going),
        ("deletion blocked", deleted(of(2, &[ReconcileResult::Blocked("Protected", "why".into())])), going),
    ]
}

#[test]
fn tools_see_the_truth_about_components() {
    println!("| kind | state | Argo CD's script | our script | kstatus |");
    for component in Component::ALL {
        let states = states(component);
        let resources: Vec<Value> = states.iter().map(|(_, resource, _)| resource.clone()).collect();
        for ((name, resource, expected), seen) in states.iter().zip(seen(&resources)) {
            println!("| {component} | {name} | {} | {} | {} |", seen.argo, seen.own, seen.kstatus);
            assert_eq!([&*seen.argo, &*seen.own, &*seen.kstatus], *expected, "{component}, {name}: {resource}");
        }
    }
}

#[test]
fn script_passes_its_tests_in_the_form_of_argo_cd() {
    #[derive(Deserialize)]
    struct Tests {
        tests: Vec<Test>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Test {
        health_status: Health,
        input_path: String,
    }
    #[derive(Deserialize)]
    struct Health {
        status: String,
        message: String,
    }
    let script = project().join(SCRIPT);
    let read = |path: &str| std::fs::read_to_string(script.with_file_name(path)).unwrap();
    let tests: Tests = serde_saphyr::from_str(&read("health_test.yaml")).unwrap();
    let inputs: Vec<Value> =
        tests.tests.iter().map(|test| serde_saphyr::from_str(&read(&test.input_path)).unwrap()).collect();
    assert!(inputs.len() >= 6);
    for (test, seen) in tests.tests.iter().zip(seen(&inputs)) {
        let expected = (&test.health_status.status, &test.health_status.message);
        assert_eq!((&seen.own, &seen.message), expected, "{}", test.input_path);
    }
}

#[test]
fn examples_are_valid_and_have_the_script() {
    let page = std::fs::read_to_string(project().join(PAGE)).unwrap();
    let script = std::fs::read_to_string(project().join(SCRIPT)).unwrap();
    let releases = tools::go_operator_module().unwrap().join("cmd/operator/kodata");
    let releases = releases.to_str().unwrap();
    let (folder, mut kinds) = (tempfile::tempdir().unwrap(), Vec::new());
    for block in page.split("```yaml\n").skip(1) {
        let (example, _) = block.split_once("```\n").unwrap();
        let documents: Vec<Value> = serde_saphyr::from_multiple(example).unwrap();
        for document in documents {
            let kind = document["kind"].as_str().unwrap().to_owned();
            if kind == "ConfigMap" {
                for of in ["KnativeFleet", "KnativeServing", "KnativeEventing"] {
                    let key = format!("resource.customizations.health.operator.knative.dev_{of}");
                    assert_eq!(document["data"][&key], script, "{key}");
                }
            }
            if kind.starts_with("Knative") {
                let file = folder.path().join("example.yaml");
                std::fs::write(&file, document.to_string()).unwrap();
                let output = operator(&["lint", "--strict", "-f", file.to_str().unwrap(), "--releases", releases]);
                let said = format!("{output:?}");
                assert!(output.status.success() && !said.contains("warning: "), "{document}: {said}");
            }
            kinds.push(kind);
        }
    }
    for kind in ["ConfigMap", "Application", "Kustomization", "HelmRelease", "KnativeFleet"] {
        assert!(kinds.iter().any(|found| found == kind), "the page has no {kind}: {kinds:?}");
    }
}
