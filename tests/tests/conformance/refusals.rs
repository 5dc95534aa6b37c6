//! Render errors: exit status 2, field and fix on stderr, nothing on stdout; and warnings about
//! settings without effect.

use serde_json::Value;

use super::{operator, outcome, render, serving, small};

#[test]
fn documented_rules_are_up_to_date() {
    let file = knative_operator_tests::tools::project().join("docs/user/rules.md");
    let text = outcome(&operator(&["rules"])).unwrap();
    assert_eq!(std::fs::read_to_string(file).unwrap(), text, "docs/user/rules.md is stale: run `make generate`");
}

#[test]
fn error_has_field_and_fix() {
    for (spec, expected) in [
        ("{version: abc}", &["spec.version: \"abc\" is not a version", "set it to one such as 1.22.1"][..]),
        (
            "{version: 1.9.9}",
            &["spec.version: the manifests of the target version 1.9.9 are not available", "1.0.0, 1.1.0"],
        ),
        (
            "{workloads: [{name: a, resources: [{container: a, limits: {cpu: 1x}}]}]}",
            &["spec.workloads[0].resources[0].limits.cpu: \"1x\" is not a quantity"],
        ),
        ("{workloads: [{name: a, replicas: two}]}", &["spec.workloads[0].replicas: invalid type"]),
        ("{resources: [{limits: {cpu: 1}}]}", &["spec.resources[0]: missing field `container`"]),
        (
            "{podDisruptionBudgets: [{name: webhook-pdb, minAvailable: 1, maxUnavailable: 1}]}",
            &["PodDisruptionBudget", "spec.podDisruptionBudgets[0]: both minAvailable and maxUnavailable are set"],
        ),
        (
            "{controller-custom-certs: {type: File, name: a}}",
            &["spec.controller-custom-certs.type: unknown CustomCerts type: File"],
        ),
        (
            "{controller-custom-certs: {type: Secret}}",
            &["spec.controller-custom-certs.name: the CustomCerts name for Secret is required"],
        ),
        (
            "{ingress: {kourier: {enabled: true, service-type: ExternalName}}}",
            &["spec.ingress.kourier.service-type: unsupported service type \"ExternalName\""],
        ),
        (
            "{ingress: {kourier: {enabled: true, service-load-balancer-ip: 1.2.3.4, service-type: NodePort}}}",
            &["spec.ingress.kourier.service-load-balancer-ip: cannot configure LoadBalancerIP"],
        ),
        (
            "{ingress: {contour: {enabled: true}}}",
            &["spec.ingress.contour: the release bundle has no", "ingress/1.1/contour"],
        ),
        (
            "{security: {securityGuard: {enabled: true}}}",
            &[
                "spec.security.securityGuard: the current version of Knative Serving is 1.1. You need to install the version 1.8",
            ],
        ),
        (
            "{manifests: [{URL: own/serving.yaml}]}",
            &["spec.version: target version v is not in a valid semantic versioning format"],
        ),
        (
            "{version: 1.1.0, manifests: [{URL: 'http://localhost/a.yaml'}]}",
            &["spec.manifests[0].URL: scheme http is not supported", "https"],
        ),
        (
            "{additionalManifests: [{URL: own/additions.yaml}, {URL: ../../Cargo.toml}]}",
            &["spec.additionalManifests[1].URL: ../../Cargo.toml leads out of the release bundle"],
        ),
        ("{additionalManifests: [{URL: nothing.yaml}]}", &["spec.additionalManifests[0].URL: ", "cannot read"]),
        (
            "{additionalManifests: [{URL: 'knative-serving/${VERSION}, knative-eventing/1.1.0'}], version: 1.0.0}",
            &[
                "spec.additionalManifests[0].URL: knative-eventing/1.1.0: the version of the manifests 1.1.0 of the component",
            ],
        ),
    ] {
        let error = render(spec).unwrap_err();
        assert!(expected.iter().all(|part| error.contains(part)), "{spec}: {error}");
        assert!(error.starts_with("error: ") && error.contains("resource.yaml: KnativeServing serving: "), "{error}");
    }
}

#[test]
fn version_jump_error_has_allowed_path() {
    let directory = tempfile::tempdir().unwrap();
    let file = serving(directory.path(), "{version: 1.1.0}\nstatus: {version: 1.4.2}");
    let error = outcome(&operator(&["render", "-f", file.to_str().unwrap(), "--releases", small().to_str().unwrap()]))
        .unwrap_err();
    assert!(
        error.contains("spec.version: not supported to upgrade or downgrade across multiple MINOR versions"),
        "{error}"
    );
    assert!(error.contains("is v1.4.2; set spec.version to 1.3 first, then to 1.2, then to 1.1.0"), "{error}");
}

#[test]
fn bundle_error_has_file_and_line() {
    let directory = tempfile::tempdir().unwrap();
    let release = directory.path().join("knative-serving/1.1.0");
    std::fs::create_dir_all(&release).unwrap();
    std::fs::write(release.join("1-good.yaml"), "{apiVersion: v1, kind: Namespace, metadata: {name: a}}").unwrap();
    std::fs::write(release.join("2-bad.yaml"), "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n data: [\n")
        .unwrap();
    let file = serving(directory.path(), "{ingress: {}}");
    let arguments = ["render", "-f", file.to_str().unwrap(), "--releases", directory.path().to_str().unwrap()];
    let error = outcome(&operator(&arguments)).unwrap_err();
    assert!(error.contains("knative-serving/1.1.0/2-bad.yaml: ") && error.contains("line 5"), "{error}");
    std::fs::remove_dir_all(&release).unwrap();
    let error = outcome(&operator(&arguments)).unwrap_err();
    assert!(
        error.contains("spec.version: the manifests of the target version latest are not available to this release; available versions: none"),
        "{error}"
    );
    let error = outcome(&operator(&["render", "-f", file.to_str().unwrap(), "--releases", "/nowhere"])).unwrap_err();
    assert!(error.contains("serving: cannot read /nowhere/knative-serving") && error.contains("--releases"), "{error}");
    let error = outcome(&operator(&["render", "-f", "/nowhere.yaml"])).unwrap_err();
    assert!(error.starts_with("error: cannot read /nowhere.yaml: "), "{error}");
}

#[test]
fn unknown_names_are_reported_with_nearest() {
    let directory = tempfile::tempdir().unwrap();
    let spec = "{workloads: [{name: contoller}], services: [{name: webhok}], registry: {override: {kontroller: x}}, confg: {}, replica: 1}";
    let file = serving(directory.path(), spec);
    let output = operator(&["render", "-f", file.to_str().unwrap(), "--releases", small().to_str().unwrap()]);
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    for expected in [
        "warning: KnativeServing serving: spec.workloads[0].name: the release has no workload called \"contoller\"; the nearest is \"controller\"\n",
        "warning: KnativeServing serving: spec.services[0].name: the release has no Service called \"webhok\"; the nearest is \"webhook\"\n",
        "warning: KnativeServing serving: spec.registry.override.kontroller: the release has no container, workload/container, environment variable or cached image called \"kontroller\"; the nearest is \"controller\"\n",
        "warning: KnativeServing serving: spec.replica: unknown field; the API server drops it\n",
        "warning: KnativeServing serving: spec.confg: unknown field; the API server drops it; the nearest is config\n",
    ] {
        assert!(text.contains(expected), "{text}");
    }
    assert!(outcome(&output).unwrap().starts_with("---\napiVersion: v1\nkind: Namespace\n"));
    let releases = small();
    let strict = ["render", "--strict", "-f", file.to_str().unwrap(), "--releases", releases.to_str().unwrap()];
    let error = outcome(&operator(&strict)).unwrap_err();
    assert!(error.starts_with("error: ") && !error.contains("warning: "), "{error}");
    assert!(error.contains("KnativeServing serving: spec.confg: unknown field; "), "{error}");
}

#[test]
fn formats_agree_and_versions_are_listed() {
    let directory = tempfile::tempdir().unwrap();
    let file = serving(directory.path(), "{ingress: {kourier: {enabled: true}}}");
    let releases = small();
    let arguments = ["render", "-f", file.to_str().unwrap(), "--releases", releases.to_str().unwrap(), "-o"];
    let print = |format: &str| outcome(&operator(&[&arguments[..], &[format]].concat())).unwrap();
    let json: Value = serde_json::from_str(&print("json")).unwrap();
    assert_eq!((&json["apiVersion"], &json["kind"]), (&Value::from("v1"), &Value::from("List")));
    let yaml: Vec<Value> = serde_saphyr::from_multiple(&print("yaml")).unwrap();
    assert_eq!(json["items"], Value::from(yaml));
    outcome(&operator(&["versions", "--releases", "/nowhere"])).unwrap_err();
    let listed = outcome(&operator(&["versions", "--releases", small().to_str().unwrap()])).unwrap();
    assert!(
        listed.contains("knative-serving          1.0.0 1.1.0\n")
            && listed.contains("ingress/kourier          1.0 1.1\n"),
        "{listed}"
    );
}

#[test]
fn forms_of_missing_spec_render_equally() {
    let directory = tempfile::tempdir().unwrap();
    let releases = small();
    for kind in ["KnativeServing", "KnativeEventing"] {
        let mut all = Vec::new();
        for spec in ["", "spec:\n", "spec: null\n", "spec: {}\n", "spec: {version: null, config: null}\n"] {
            let file = directory.path().join("resource.yaml");
            let head = format!(
                "apiVersion: operator.knative.dev/v1beta1\nkind: {kind}\nmetadata: {{name: a, namespace: b}}\n"
            );
            std::fs::write(&file, format!("{head}{spec}")).unwrap();
            let run = |command: &str| {
                outcome(&operator(&[command, "-f", file.to_str().unwrap(), "--releases", releases.to_str().unwrap()]))
            };
            let linted = run("lint").unwrap();
            all.push((run("render").unwrap(), linted));
        }
        assert!(all[0].0.contains("kind: Deployment"), "{kind}: {}", all[0].0);
        assert!(all.iter().all(|outcome| *outcome == all[0]), "{kind}");
    }
}
