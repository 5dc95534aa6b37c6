//! Migration from the Go operator by one command, in each way, and back: no resource is lost, no
//! Pod of Knative restarts, and valid requests stay valid.

use std::path::Path;
use std::time::{Duration, Instant};

use k8s_openapi::api::admissionregistration::v1::{
    MatchCondition, MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use knative_operator_shared::api::Component;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::go_operator::{self, GoOperator};
use knative_operator_tests::product::{self, NAMESPACE, Product};
use knative_operator_tests::skip::skip;
use knative_operator_tests::{Result, network, registry, releases, tools, wait};
use kube::Api;
use serde_json::{Value, json};

use crate::document::{Block, Shell, document, nothing_installed};
use crate::load::{self, Load};
use crate::support::{apply, namespace, nothing_to_install, resource, run};
use crate::suspension;

const CONFIGURATIONS: [&str; 2] = ["validation.operator.knative.dev", "defaulting.operator.knative.dev"];

/// Admissions that the new webhook reviews before the load ends.
const REVIEWED: usize = 50;

/// `kubectl get` of all custom resources, with their uids.
pub async fn resources(hub: &Cluster) -> Result<String> {
    let columns = "custom-columns=KIND:.kind,NAMESPACE:.metadata.namespace,NAME:.metadata.name,UID:.metadata.uid";
    hub.kubectl(&["get", "knativeservings,knativeeventings", "-A", "-o", columns, "--no-headers"], "").await
}

/// Stores one resource of each kind without a spec, and one for an unknown cluster.
async fn store(hub: &Cluster) -> Result<()> {
    for component in Component::ALL {
        namespace(hub, component.canonical()).await?;
        let mut object = resource(component, component.canonical(), component.canonical(), None, json!({}));
        object.as_object_mut().map(|o| o.remove("spec"));
        apply(hub, &object).await?;
    }
    namespace(hub, "elsewhere").await?;
    apply(hub, &resource(Component::Serving, "elsewhere", "elsewhere", Some("unknown"), nothing_to_install())).await
}

/// The conversion of both definitions.
async fn conversions(hub: &Cluster) -> Result<Vec<String>> {
    let definitions: Api<CustomResourceDefinition> = Api::all(hub.client());
    let mut all = Vec::new();
    for component in Component::ALL {
        let found = definitions.get(&format!("{}.operator.knative.dev", component.plural())).await?;
        all.push(found.spec.conversion.map(|conversion| conversion.strategy).unwrap_or_default());
    }
    Ok(all)
}

/// Waits until the API server calls the webhook.
async fn wait_until_called(hub: &Cluster) -> Result<()> {
    let [validating, mutating] = CONFIGURATIONS;
    let limit = wait::LIMIT;
    let asks = |conditions: &Option<Vec<MatchCondition>>| conditions.iter().flatten().all(|c| c.name != "rolled-out");
    let all = |c: &ValidatingWebhookConfiguration| c.webhooks.iter().flatten().all(|w| asks(&w.match_conditions));
    wait::until(&Api::all(hub.client()), validating, limit, "enforced", |c| c.is_some_and(all)).await?;
    let all = |c: &MutatingWebhookConfiguration| c.webhooks.iter().flatten().all(|w| asks(&w.match_conditions));
    wait::until(&Api::all(hub.client()), mutating, limit, "enforced", |c| c.is_some_and(all)).await.map(drop)
}

/// An invalid resource.
fn broken() -> Value {
    resource(Component::Serving, "elsewhere", "broken", None, json!({"version": "abc"}))
}

/// Waits until a dry run of [`broken`] is admitted, or refused by the webhook. Polled: nothing
/// reports when an API server uses a changed configuration.
async fn wait_until_broken_is(hub: &Cluster, admitted: bool) -> Result<()> {
    let started = Instant::now();
    loop {
        let (is_admitted, output) =
            hub.kubectl_output(&["create", "--dry-run=server", "-f", "-"], &broken().to_string()).await;
        if is_admitted == admitted && (admitted || output.contains("is not a version")) {
            return Ok(());
        }
        if started.elapsed() > wait::LIMIT {
            return Err(format!("not yet admitted: {admitted}, but: {output}").into());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Values for a migration on `hub`: the Go operator's multi-cluster values if `multicluster`, and
/// values of the tests.
pub fn values(hub: &Cluster, multicluster: bool) -> Result<Value> {
    let mut values = product::bundled(hub);
    if multicluster {
        let theirs: Value = serde_saphyr::from_str(MULTICLUSTER)?;
        values["knative_operator"]["multicluster"] = theirs["knative_operator"]["multicluster"].clone();
    }
    Ok(values)
}

/// A values file for the Go operator's chart.
const MULTICLUSTER: &str = r#"
knative_operator:
  multicluster:
    enabled: true
    accessProvidersConfig:
      providers:
        - {name: secretreader, execConfig: {apiVersion: client.authentication.k8s.io/v1, command: /credential-plugin/plugin-binary, provideClusterInfo: true}}
    plugins:
      - {name: secretreader, image: "registry.k8s.io/cluster-inventory-api/secretreader:v0.1.0", mountPath: /credential-plugin}
"#;

/// The only block below `heading` in docs/user/migration.md.
pub fn block(heading: &str) -> Result<String> {
    let mut found: Vec<Block> =
        document("docs/user/migration.md")?.into_iter().filter(|block| block.heading == heading).collect();
    if found.len() == 1 {
        Ok(found.remove(0).script)
    } else {
        Err(format!("{} blocks under {heading:?}", found.len()).into())
    }
}

#[test]
fn every_block_of_migration_guide_is_run() {
    let headings: Vec<_> = document("docs/user/migration.md").unwrap().into_iter().map(|block| block.heading).collect();
    let run = [
        "Before you begin",
        "Upgrade a Helm release",
        "Take over an installation by kubectl",
        "Verify",
        "Clean up",
        "After helm upgrade",
        "After helm install --take-ownership",
    ];
    assert_eq!(headings, run);
}

/// Starts the processes on `hub`, with the plugin of [`values`], in place of `product`.
async fn started(hub: &Cluster, folder: &Path, product: &mut Option<Product>) -> Result<()> {
    drop(product.take());
    let image = folder.join("secretreader");
    if !image.exists() {
        std::fs::create_dir(&image)?;
        std::os::unix::fs::symlink(tools::control_plane("secretreader-plugin")?, image.join("plugin-binary"))?;
    }
    let images = [("registry.k8s.io/cluster-inventory-api/secretreader".to_owned(), image)].into();
    *product = Some(Product::start(hub, &releases::small(), images).await?);
    Ok(())
}

/// Installs the Go operator's chart.
async fn install_go(hub: &Cluster, folder: &Path, multicluster: bool) -> Result<()> {
    go_operator::chart(folder)?;
    let (chart, file) = (folder.display().to_string(), folder.join("more.yaml"));
    std::fs::write(&file, if multicluster { MULTICLUSTER } else { "{}" })?;
    let file = file.display().to_string();
    let mut arguments = vec!["install", "knative-operator", &chart, "-f", &file, "-n", NAMESPACE, "--create-namespace"];
    arguments.extend(["--wait", "--timeout", "10m"]);
    hub.helm(&arguments).await.map(drop)
}

/// Runs the Go operator's processes until they work, and ends them. They leave behind Leases, keys
/// in the Secret that its chart leaves empty, and the authority in the definitions.
async fn run_the_go_operator(hub: &Cluster) -> Result<()> {
    if let Some(obstacle) = network::obstacle() {
        skip(registry::needs(), &format!("processes of the Go operator in a network of their own: {obstacle}"));
        return Ok(());
    }
    GoOperator::start_on(hub, &[]).await?.stop()?;
    let secrets: Api<Secret> = Api::namespaced(hub.client(), NAMESPACE);
    let data = secrets.get("operator-webhook-certs").await?.data.unwrap_or_default();
    assert!(data.contains_key("server-key.pem"), "{:?}", data.keys());
    Api::<Lease>::namespaced(hub.client(), NAMESPACE).get(go_operator::LEASE).await?;
    Ok(())
}

/// Runs the documented clean-up and checks that nothing of the Go operator is left outside of the
/// release.
async fn clean_up(hub: &Cluster, shell: &mut Shell, multicluster: bool) -> Result<()> {
    shell.run(&block("Clean up")?, nothing_installed).await?;
    let manifest = hub.helm(&["get", "manifest", "knative-operator", "-n", NAMESPACE]).await?;
    let ours: Vec<Value> = serde_saphyr::from_multiple(&manifest)?;
    let is = |a: &Value, b: &Value| a["kind"] == b["kind"] && a["metadata"]["name"] == b["metadata"]["name"];
    for object in go_operator::objects(multicluster)?.iter().filter(|object| !ours.iter().any(|o| is(o, object))) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (kind, name) = (text(&object["kind"]), text(&object["metadata"]["name"]));
        let found =
            hub.kubectl(&["get", &kind, &name, "-n", NAMESPACE, "--ignore-not-found", "-o", "name"], "").await?;
        assert_eq!(found, "", "the Go operator's {kind} {name} is left");
    }
    let leases = hub.kubectl(&["get", "leases", "-n", NAMESPACE, "-o", "name"], "").await?;
    assert!(leases.lines().all(|lease| lease == "lease.coordination.k8s.io/knative-operator"), "{leases}");
    let data = Api::<Secret>::namespaced(hub.client(), NAMESPACE)
        .get("operator-webhook-certs")
        .await?
        .data
        .unwrap_or_default();
    assert!(data.contains_key("tls.key") && !data.contains_key("server-key.pem"), "{:?}", data.keys());
    Ok(())
}

/// Upgrades over the Go operator, and back, with support for many clusters or without.
fn upgraded(multicluster: bool) {
    run(async move {
        let (hub, folder) = (Cluster::hub("migration").await?, tempfile::tempdir()?);
        install_go(&hub, folder.path(), multicluster).await?;
        run_the_go_operator(&hub).await?;
        store(&hub).await?;
        assert_eq!(conversions(&hub).await?, ["Webhook", "Webhook"]);

        let mut shell = Shell::new(&[("hub", &hub)], &values(&hub, multicluster)?)?;
        let before = shell.run(&block("Before you begin")?, nothing_installed).await?;
        assert_eq!(before.lines().count(), 4, "{before}");
        let load = Load::start(&hub.client(), "elsewhere", load::rate());
        let mut product = None;
        let folder = shell.folder();
        shell.run(&block("Upgrade a Helm release")?, async || started(&hub, &folder, &mut product).await).await?;
        wait_until_called(&hub).await?;
        // From now on the webhook validates.
        wait_until_broken_is(&hub, false).await?;
        load.more(REVIEWED).await?;
        eprintln!("multicluster {multicluster}: {} admissions during helm upgrade, none failed", load.end().await?);
        shell.run(&block("Verify")?, nothing_installed).await?;
        assert_eq!(conversions(&hub).await?, ["None", "None"]);

        // Back: the Go operator's objects as before, nothing of this operator in the way.
        shell.run(&block("After helm upgrade")?, nothing_installed).await?;
        drop(product);
        shell.run(&block("Verify")?, nothing_installed).await?;
        assert_eq!(conversions(&hub).await?, ["Webhook", "Webhook"]);
        for kind in ["validatingwebhookconfiguration", "mutatingwebhookconfiguration"] {
            let left = hub.kubectl(&["get", kind, "-o", "name"], "").await?;
            assert!(!left.contains("operator.knative.dev"), "{left}");
        }
        wait_until_broken_is(&hub, true).await?;
        apply(&hub, &broken()).await?;
        hub.stored(&broken()).start_deletion().await?;
        // Again to this operator, whose webhook starts late.
        let mut product = None;
        let start = async || {
            suspension::ends_by_itself(&hub).await?;
            started(&hub, &folder, &mut product).await
        };
        shell.run(&block("Upgrade a Helm release")?, start).await?;
        clean_up(&hub, &mut shell, multicluster).await?;
        shell.run(&block("Verify")?, nothing_installed).await?;
        Ok(())
    });
}

#[test]
fn helm_upgrade_over_go_operator_refuses_nothing_and_rolls_back() {
    upgraded(true);
}

#[test]
fn helm_upgrade_without_multicluster_rolls_back() {
    upgraded(false);
}

#[test]
fn helm_install_takes_ownership_of_kubectl_objects() {
    run(async {
        for server_side in [false, true] {
            let hub = Cluster::hub("ownership").await?;
            namespace(&hub, NAMESPACE).await?;
            let list = json!({"apiVersion": "v1", "kind": "List", "items": go_operator::objects(false)?});
            let mut line = vec!["apply", "-f", "-"];
            line.extend(server_side.then_some("--server-side"));
            hub.kubectl(&line, &list.to_string()).await?;
            wait::established(hub.client()).await?;
            run_the_go_operator(&hub).await?;
            store(&hub).await?;
            let mut shell = Shell::new(&[("hub", &hub)], &values(&hub, false)?)?;
            shell.run(&block("Before you begin")?, nothing_installed).await?;
            let load = Load::start(&hub.client(), "elsewhere", load::rate());
            let mut product = None;
            let folder = shell.folder();
            let take = block("Take over an installation by kubectl")?;
            shell.run(&take, async || started(&hub, &folder, &mut product).await).await?;
            wait_until_called(&hub).await?;
            wait_until_broken_is(&hub, false).await?;
            load.more(REVIEWED).await?;
            eprintln!("server-side {server_side}: {} admissions during helm install, none failed", load.end().await?);
            shell.run(&block("Verify")?, nothing_installed).await?;
            // Helm can't remove the conversion webhook; the operator does.
            let strategy = |c: Option<&CustomResourceDefinition>| {
                c.and_then(|c| c.spec.conversion.as_ref()).is_some_and(|conversion| conversion.strategy == "None")
            };
            for component in Component::ALL {
                let name = format!("{}.operator.knative.dev", component.plural());
                wait::until(&Api::all(hub.client()), &name, wait::LIMIT, "without conversion", strategy).await?;
            }
            // The readiness of Pods is checked once this webhook answers.
            let deployment =
                hub.kubectl(&["get", "deployment", "operator-webhook", "-n", NAMESPACE, "-o", "json"], "").await?;
            let deployment: Value = serde_json::from_str(&deployment)?;
            let probe = &deployment["spec"]["template"]["spec"]["containers"][0]["readinessProbe"]["httpGet"];
            assert_eq!(
                (&probe["scheme"], &probe["port"], &probe["path"]),
                (&json!("HTTP"), &json!("metrics"), &json!("/readyz"))
            );
            // The next upgrade is a normal one.
            shell.run(&block("Upgrade a Helm release")?, async || started(&hub, &folder, &mut product).await).await?;
            assert_eq!(conversions(&hub).await?, ["None", "None"]);
            clean_up(&hub, &mut shell, false).await?;
            // Back.
            shell.run(&block("After helm install --take-ownership")?, nothing_installed).await?;
            drop(product);
            shell.run(&block("Verify")?, nothing_installed).await?;
            line.extend(server_side.then_some("--force-conflicts"));
            hub.kubectl(&line, &list.to_string()).await?;
            shell.run(&block("Verify")?, nothing_installed).await?;
        }
        Ok(())
    });
}
