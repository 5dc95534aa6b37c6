//! `knative-operator preflight`, on a good cluster and on faulty ones: each fault is found by its
//! check, with its remedy. Nothing is stored on the cluster, and no Pod is left.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use knative_operator_shared::api::Component;
use knative_operator_shared::label::{ANCHOR, APP_NAME, CLUSTER_PROFILE, CR_NAME, FIELD_MANAGER, MANAGED_BY, OWNER};
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::product::{self, FLEET, NAMESPACE};
use knative_operator_tests::releases::{self, Releases};
use knative_operator_tests::remaining::objects;
use knative_operator_tests::{Result, tools, wait};
use kube::Api;
use kube::api::ListParams;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::status::command;
use crate::support::{eventing, nothing_left, resource, run, script, serving};

/// The namespaces of both components on the spoke.
const PLACES: [&str; 2] = ["knative-serving", "knative-eventing"];

/// Files that the commands read.
struct Files {
    folder: PathBuf,
}

impl Files {
    fn write(&self, name: &str, text: &str) -> Result<String> {
        let path = self.folder.join(name);
        std::fs::write(&path, text)?;
        Ok(path.display().to_string())
    }

    /// Serving with Kourier, and Eventing.
    fn both(&self, releases: &Releases) -> Result<String> {
        let both = [serving("n", "ks", Some("x"), releases), eventing("n", "ke", Some("x"), releases)];
        self.write("both.yaml", &both.iter().map(|one| format!("---\n{one}\n")).collect::<String>())
    }

    /// The provider file: the built-in provider, and a plugin that fails.
    fn providers(&self) -> Result<String> {
        let plugin = self.folder.join("fails");
        script(&plugin, "#!/bin/sh\necho 'no secret for this cluster' >&2\nexit 1\n")?;
        let exec =
            json!({"apiVersion": "client.authentication.k8s.io/v1", "command": plugin, "provideClusterInfo": true});
        let providers =
            json!([{"name": "secretreader", "builtin": "secretreader"}, {"name": "fails", "execConfig": exec}]);
        self.write("providers.json", &json!({"providers": providers}).to_string())
    }
}

/// A hub without the operator, which has the definitions only.
async fn hub() -> Result<Cluster> {
    let hub = Cluster::hub("preflight").await?;
    let mut definitions = vec![std::fs::read_to_string(tools::control_plane("clusterprofiles.yaml")?)?];
    for arguments in [&["crds"][..], &["crds", "--kind", "KnativeFleet"]] {
        let output = std::process::Command::new(tools::binary("knative-operator")?).args(arguments).output()?;
        definitions.push(String::from_utf8(output.stdout)?);
    }
    for text in definitions {
        for definition in serde_saphyr::from_multiple::<Value>(&text)? {
            hub.put(&definition).await?;
        }
    }
    wait::established(hub.client()).await?;
    for namespace in [FLEET, NAMESPACE] {
        hub.namespace(namespace).await?;
    }
    Ok(hub)
}

fn pod(namespace: &str) -> Value {
    let spec = json!({"containers": [{"name": "c", "image": "registry.example/a:1"}]});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": namespace}, "spec": spec})
}

/// Waits until the API server answers a dry run of `example` as `is_wanted` says, by polling:
/// nothing reports when a label, a quota or a webhook takes effect.
async fn until(cluster: &Cluster, example: &Value, is_wanted: impl Fn(&Result<()>) -> bool) -> Result<()> {
    let started = Instant::now();
    loop {
        let answer = cluster.create(example, true).await;
        if is_wanted(&answer) {
            return Ok(());
        }
        if started.elapsed() > wait::LIMIT {
            return Err(format!("{example}: {answer:?}").into());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

async fn until_refused(cluster: &Cluster, example: &Value, part: &str) -> Result<()> {
    until(cluster, example, |answer| answer.as_ref().is_err_and(|error| error.to_string().contains(part))).await
}

/// The check `id` of `cluster` in the output of a command.
fn check<'v>(output: &'v Value, cluster: &str, id: &str) -> &'v Value {
    let reports = output["clusters"].as_array().unwrap();
    let report = reports.iter().find(|report| report["cluster"] == cluster);
    let report = report.unwrap_or_else(|| panic!("no {cluster} in {output:#}"));
    let checks = report["checks"].as_array().unwrap();
    checks.iter().find(|check| check["id"] == id).unwrap_or_else(|| panic!("no {id} in {report:#}"))
}

/// Runs the command with JSON; its exit status and output.
async fn preflight(kubeconfig: &Path, arguments: &[&str]) -> Result<(Option<i32>, Value)> {
    let arguments = [&["preflight", "-o", "json"], arguments].concat();
    let (code, text, error) = command(kubeconfig, &arguments).await?;
    let output = serde_json::from_str(&text).map_err(|why| format!("{why}: {text} {error}"))?;
    Ok((code, output))
}

#[test]
fn good_cluster_passes_and_nothing_is_stored() {
    run(async {
        let (hub, spoke) = tokio::try_join!(hub(), Cluster::hub("preflight-good"))?;
        product::register(&hub, &spoke, "good").await?;
        for place in PLACES {
            spoke.namespace(place).await?;
            until(&spoke, &pod(place), Result::is_ok).await?;
        }
        let folder = tempfile::tempdir()?;
        let (files, releases) = (Files { folder: folder.path().to_owned() }, releases::best());
        let (both, providers) = (files.both(&releases)?, files.providers()?);
        let bundle = releases.dir.display().to_string();
        let of_hub = ["--releases", &bundle, "--clusterprofile-provider-file", &providers];
        let before = objects(&spoke.client()).await?;

        let (code, output) =
            preflight(&hub.kubeconfig(), &[&["fleet-system/good", "-f", &both], &of_hub[..]].concat()).await?;
        let checks = output["clusters"][0]["checks"].as_array().unwrap();
        let (pull, others) = checks.split_last().unwrap();
        assert!(others.len() == 13 && others.iter().all(|check| check["outcome"] == "passed"), "{output:#}");
        let expected = json!("--pull runs a Pod that tries it");
        assert_eq!(
            (&pull["id"], &pull["outcome"], &pull["detail"]),
            (&json!("image-pull"), &json!("skipped"), &expected)
        );
        assert_eq!((code, &output["passed"]), (Some(0), &json!(true)));

        // The same cluster, of a fleet that installs only Serving, and as one of all.
        let spec = json!({"placement": {"clusterSelector": {}}, "serving": {"spec": serving("n", "ks", None, &releases)["spec"]}});
        let meta = json!({"name": "prod", "namespace": FLEET});
        hub.put(&json!({"apiVersion": "operator.knative.dev/v1alpha1", "kind": "KnativeFleet", "metadata": meta, "spec": spec}))
            .await?;
        let (code, output) =
            preflight(&hub.kubeconfig(), &[&["--fleet", "prod", "-n", FLEET], &of_hub[..]].concat()).await?;
        let versions = check(&output, "fleet-system/good", "version")["detail"].as_str().unwrap_or_default();
        assert!(code == Some(0) && versions.contains("KnativeServing 1."), "{output:#}");
        assert!(!versions.contains("KnativeEventing"), "{output:#}");
        let (code, output) = preflight(&hub.kubeconfig(), &[&["--all", "-f", &both], &of_hub[..]].concat()).await?;
        assert_eq!((code, output["clusters"].as_array().map(Vec::len)), (Some(0), Some(1)), "{output:#}");

        // By a Pod, of which nothing is left.
        let line = [&["fleet-system/good", "--pull", "-f", &both], &of_hub[..]].concat();
        let (code, output) = preflight(&hub.kubeconfig(), &line).await?;
        let pull = check(&output, "fleet-system/good", "image-pull");
        assert_eq!((code, &pull["outcome"]), (Some(0), &json!("passed")), "{output:#}");
        assert!(
            pull["detail"].as_str().is_some_and(|detail| detail.contains("can pull for KnativeEventing")),
            "{pull:#}"
        );

        // By its own kubeconfig, without a hub.
        let own = ["preflight", "-f", &both, "--releases", &bundle];
        let (code, text, error) = command(&spoke.kubeconfig(), &own).await?;
        assert!(code == Some(0) && text.contains("1 cluster: 1 passed, 0 failed"), "{text} {error}");
        assert!(text.contains(" Permissions: suffice for ") && !text.contains("Access provider"), "{text}");
        nothing_left(&spoke, &before).await?;

        // Without settings, Serving uses Istio, which the cluster lacks.
        let plain = resource(Component::Serving, "n", "ks", Some("x"), json!({"version": releases.serving}));
        let plain = files.write("plain.yaml", &plain.to_string())?;
        let own = ["-f", &plain, "--releases", &bundle];
        let (code, output) = preflight(&spoke.kubeconfig(), &own).await?;
        let cluster = output["clusters"][0]["cluster"].as_str().unwrap_or_default().to_owned();
        let found = check(&output, &cluster, "prerequisites");
        let detail = found["detail"].as_str().unwrap_or_default();
        assert!(code == Some(1) && detail.starts_with("Istio is not installed (no kind Gateway"), "{output:#}");
        let remedy = found["remedy"]["text"].as_str().unwrap_or_default();
        assert!(remedy.starts_with("Install what is missing"), "{output:#}");
        Ok(())
    });
}

/// Makes `spoke` faulty in four ways: Pod Security, a quota, the anchor of another hub, a webhook.
async fn break_cluster(spoke: &Cluster) -> Result<()> {
    let owner = json!({"hub": "11111111-2222", "kind": "KnativeServing", "namespace": "elsewhere", "name": "other",
        "uid": "33333333", "since": "2026-01-01T00:00:00Z", "confirmed": true});
    let labels = json!({MANAGED_BY: FIELD_MANAGER, CR_NAME: "other", APP_NAME: "knative-serving"});
    let meta = json!({"name": "knativeserving-other-root-owner", "namespace": "knative-serving", "labels": labels,
        "annotations": {ANCHOR: "true", OWNER: owner.to_string()}});
    spoke.put(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta})).await?;
    let label = json!({"pod-security.kubernetes.io/enforce": "restricted"});
    spoke.object("namespace", "", "knative-serving").label(&label).await?;
    let meta = json!({"name": "full", "namespace": "knative-eventing"});
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "spec": {"hard": {"pods": "0"}}});
    spoke.put(&quota).await?;
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["configmaps"]});
    let webhook = json!({"name": "gone.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Fail",
        "clientConfig": {"service": {"name": "gone", "namespace": "default"}}, "rules": [rule],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "knative-serving"}}});
    let webhooks = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "gone.example.com"}, "webhooks": [webhook]});
    spoke.put(&webhooks).await?;
    until_refused(spoke, &pod("knative-serving"), "violates PodSecurity").await?;
    until_refused(spoke, &pod("knative-eventing"), "exceeded quota").await?;
    let map =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "knative-serving"}});
    until_refused(spoke, &map, "failed calling webhook").await
}

/// An account of `spoke` with few rights, as ClusterProfile `poor`; returns its token.
async fn register_poor(hub: &Cluster, spoke: &Cluster) -> Result<String> {
    let rbac = "rbac.authorization.k8s.io";
    let meta = json!({"name": "knative-poor"});
    let subject = json!({"kind": "ServiceAccount", "name": "knative-poor", "namespace": "kube-system"});
    let namespaces = json!({"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get"]});
    let rights = json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "knative-poor", "namespace": "kube-system"}},
        {"apiVersion": format!("{rbac}/v1"), "kind": "ClusterRole", "metadata": meta, "rules": [namespaces]},
        {"apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding", "metadata": meta, "subjects": [subject],
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "knative-poor"}},
    ]});
    spoke.put(&rights).await?;
    // What it may do in these namespaces is no permission for cluster-scoped objects.
    for place in PLACES {
        let meta = json!({"name": "knative-poor", "namespace": place});
        let admin = json!({"apiGroup": rbac, "kind": "ClusterRole", "name": "cluster-admin"});
        let binding = json!({"apiVersion": format!("{rbac}/v1"), "kind": "RoleBinding", "metadata": meta, "roleRef": admin,
            "subjects": [subject]});
        spoke.put(&binding).await?;
        let may = json!({"verb": "create", "resource": "configmaps", "namespace": place});
        spoke.until_permitted("system:serviceaccount:kube-system:knative-poor", &may, true).await?;
    }
    let may = json!({"verb": "get", "resource": "namespaces", "name": "kube-system"});
    spoke.until_permitted("system:serviceaccount:kube-system:knative-poor", &may, true).await?;
    let token = spoke.token("kube-system", "knative-poor", 3600).await?;
    let meta =
        json!({"name": "poor", "namespace": NAMESPACE, "annotations": {CLUSTER_PROFILE: format!("{FLEET}/poor")}});
    hub.put(&json!({"apiVersion": "v1", "kind": "Secret", "metadata": meta, "stringData": {"token": token}})).await?;
    product::profile(hub, "poor", &product::access(spoke, "poor")).await?;
    Ok(token)
}

#[test]
fn each_fault_has_its_check_and_remedy() {
    run(async {
        let (hub, spoke) = tokio::try_join!(hub(), Cluster::hub("preflight-faulty"))?;
        product::register(&hub, &spoke, "faulty").await?;
        for place in PLACES {
            spoke.namespace(place).await?;
        }
        break_cluster(&spoke).await?;
        let token = register_poor(&hub, &spoke).await?;
        let offering = |name: &str| {
            let mut access = product::access(&spoke, "faulty");
            access[0]["name"] = json!(name);
            access
        };
        product::profile(&hub, "stranger", &offering("google")).await?;
        product::profile(&hub, "plugin", &offering("fails")).await?;
        let mut dead = product::access(&spoke, "faulty");
        // No server listens there.
        dead[0]["cluster"]["server"] = json!(format!("https://{}:6444", spoke.subnet().address(3)));
        product::profile(&hub, "dead", &dead).await?;
        product::profile(&hub, "unhealthy", &product::access(&spoke, "faulty")).await?;
        product::status(&hub, "unhealthy", "False", &product::access(&spoke, "faulty")).await?;

        let folder = tempfile::tempdir()?;
        let (files, releases) = (Files { folder: folder.path().to_owned() }, releases::small());
        let (both, providers) = (files.both(&releases)?, files.providers()?);
        let bundle = releases.dir.display().to_string();
        let files_of = ["-f", &both, "--releases", &bundle, "--clusterprofile-provider-file", &providers];
        let cases = [
            (
                "missing",
                "profile",
                "ClusterProfile fleet-system/missing does not exist",
                "Create ClusterProfile missing",
            ),
            ("unhealthy", "profile", "ControlPlaneHealthy=False", "Find out from the cluster manager"),
            ("stranger", "provider", "offers the access providers google", "Use one name of an access provider"),
            ("plugin", "credential", "no secret for this cluster", "Correct what the plugin says"),
            ("dead", "connection", "is unreachable", "Let the operator reach the server"),
            (
                "poor",
                "rights",
                "the account lacks ",
                "`knative-operator spoke-role -f FILE --cluster fleet-system/poor`",
            ),
            (
                "faulty",
                "owner",
                "belongs to KnativeServing elsewhere/other of hub 11111111-2222",
                "Delete the resource that owns the installation",
            ),
            (
                "faulty",
                "admission",
                "failed calling webhook \"gone.example.com\"",
                "exempt namespace knative-serving from it",
            ),
            (
                "faulty",
                "pod-security",
                "violates PodSecurity \"restricted",
                "namespace knative-serving pod-security.kubernetes.io/enforce=baseline`",
            ),
            ("faulty", "quota", "exceeded quota: full", "`kubectl describe resourcequota -n knative-eventing`"),
        ];
        let mut names: Vec<String> = cases.iter().map(|(name, ..)| format!("{FLEET}/{name}")).collect();
        names.dedup();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let (code, output) = preflight(&hub.kubeconfig(), &[&names[..], &files_of[..]].concat()).await?;
        assert_eq!((code, &output["passed"]), (Some(1), &json!(false)), "{output:#}");
        for (name, id, part, remedy) in cases {
            let found = check(&output, &format!("{FLEET}/{name}"), id);
            let text = |field: &Value| field.as_str().unwrap_or_default().to_owned();
            assert_eq!(found["outcome"], "failed", "{name}: {found:#}");
            assert!(text(&found["detail"]).contains(part), "{name}: {found:#}");
            assert!(text(&found["remedy"]["text"]).contains(remedy), "{name}: {found:#}");
        }
        assert!(!output.to_string().contains(&token), "{output:#}");
        // What needs the check that failed says so.
        let skipped = check(&output, "fleet-system/plugin", "connection");
        let expected = (json!("skipped"), json!("not checked, because Credential failed"));
        assert_eq!((&skipped["outcome"], &skipped["detail"]), (&expected.0, &expected.1));
        // What is good stays good.
        for id in ["profile", "provider", "credential", "connection", "version", "rights", "namespace"] {
            assert_eq!(check(&output, "fleet-system/faulty", id)["outcome"], "passed", "{id}: {output:#}");
        }

        // As text, with a version that the bundle lacks.
        let lacking = resource(Component::Eventing, "n", "ke", Some("x"), json!({"version": "9.9.0"}));
        let lacking = files.write("lacking.yaml", &lacking.to_string())?;
        let line = ["preflight", "fleet-system/faulty", "-f", &lacking, "--releases", &bundle];
        let line = [&line[..], &["--clusterprofile-provider-file", &providers]].concat();
        let (code, text, error) = command(&hub.kubeconfig(), &line).await?;
        assert!(code == Some(1) && text.contains(" Versions: KnativeEventing ke: "), "{text} {error}");
        assert!(text.contains("What to do: Set spec.version to one that the operator has"), "{text}");
        assert!(text.contains(" Quota: not checked, because Versions failed"), "{text}");
        Ok(())
    });
}

#[test]
fn interrupted_pull_leaves_no_pod() {
    run(async {
        let spoke = Cluster::hub("preflight-pull").await?;
        spoke.namespace("knative-serving").await?;
        let folder = tempfile::tempdir()?;
        let (files, releases) = (Files { folder: folder.path().to_owned() }, releases::best());
        let mut wanted = serving("knative-serving", "ks", None, &releases);
        // No node has it, so the Pod waits.
        wanted["spec"]["workloads"] = json!([{"name": "*", "nodeSelector": {"disk": "none"}}]);
        let wanted = files.write("serving.yaml", &wanted.to_string())?;
        let mut command = tokio::process::Command::new(tools::binary("knative-operator")?);
        command.args(["preflight", "--pull", "-f", &wanted, "--releases"]).arg(&releases.dir);
        command.arg("--kubeconfig").arg(spoke.kubeconfig()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.kill_on_drop(true).spawn()?;
        let pods = Api::<Pod>::namespaced(spoke.client(), "knative-serving");
        let label = "app.kubernetes.io/name=knative-operator-preflight";
        wait::until_all(&pods, label, wait::LIMIT, "a Pod that pulls images", |all| !all.is_empty()).await?;
        let id = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)).ok_or("it has ended")?;
        kill_process(id, Signal::INT)?;
        let output = tokio::time::timeout(wait::LIMIT, child.wait_with_output()).await??;
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && error.contains("interrupted"), "{output:?}");
        let left = pods.list(&ListParams::default().labels(label)).await?.items;
        assert!(left.is_empty(), "{left:?}");
        Ok(())
    });
}
