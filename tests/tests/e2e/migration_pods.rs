//! Migration from the Go operator while Knative runs: no Pod restarts, and only one operator
//! writes.

use k8s_openapi::api::coordination::v1::Lease;
use knative_operator_shared::api::Component;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::go_operator::{self, GoOperator};
use knative_operator_tests::product::{self, NAMESPACE, Product};
use knative_operator_tests::releases;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;

use crate::document::{Shell, nothing_installed};
use crate::go_state::{State, installed_by_go, reconciled, taken};
use crate::migration::{block, resources, values};
use crate::support::{apply, delete, has_condition, has_event, namespace, ready, resource, run};

#[test]
fn migration_and_rollback_restart_no_knative_pod() {
    run(async {
        // Without admission webhooks: Knative's own have no Pods here.
        let hub = Cluster::spoke("pods").await?;
        let mut go = GoOperator::install(&hub, &[]).await?;
        namespace(&hub, "knative-serving").await?;
        let serving = installed_by_go(Component::Serving, "knative-serving", None, go_operator::VERSION);
        apply(&hub, &serving).await?;
        ready(&hub, &serving).await?;
        let (before, state) = (resources(&hub).await?, State::read(&hub, &["knative-serving"]).await?);
        let (mut shell, mut product) = (Shell::new(&[("hub", &hub)], &values(&hub, false)?)?, None);
        shell.run(&block("Before you begin")?, nothing_installed).await?;
        let releases = go_operator::releases()?;
        let start = async || {
            go.stop()?;
            product = Some(Product::start(&hub, &releases, [].into()).await?);
            Ok(())
        };
        shell.run(&block("Upgrade a Helm release")?, start).await?;
        taken(&hub, "knative-serving").await?;
        ready(&hub, &serving).await?;
        shell.run(&block("Verify")?, nothing_installed).await?;
        assert_eq!(resources(&hub).await?, before);
        state.is_same(&State::read(&hub, &["knative-serving"]).await?, "helm upgrade");
        shell.run(&block("After helm upgrade")?, nothing_installed).await?;
        drop(product);
        go.start(&hub).await?;
        reconciled(&hub, &hub, &serving, "back").await?;
        shell.run(&block("Verify")?, nothing_installed).await?;
        assert_eq!(resources(&hub).await?, before);
        state.no_restart(&State::read(&hub, &["knative-serving"]).await?, "helm rollback");
        Ok(())
    });
}

#[test]
fn nothing_is_written_while_go_operator_runs() {
    run(async {
        let (hub, plugins, releases) = (Cluster::hub("both").await?, tempfile::tempdir()?, releases::small());
        namespace(&hub, NAMESPACE).await?;
        // A process that renews the Go operator's Lease.
        let leases: Api<Lease> = Api::namespaced(hub.client(), NAMESPACE);
        let lease = |holder: &str| {
            let now = k8s_openapi::jiff::Timestamp::now();
            json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": go_operator::LEASE}, "spec": {
                "holderIdentity": holder, "leaseDurationSeconds": 60, "renewTime": format!("{now:.6}"), "acquireTime": format!("{now:.6}")}})
        };
        leases.create(&PostParams::default(), &serde_json::from_value(lease("knative-operator-5d9c_1"))?).await?;
        let product = Product::install(&hub, &releases, product::values(&[]), plugins.path()).await?;
        namespace(&hub, "knative-serving").await?;
        let serving = resource(
            Component::Serving,
            "knative-serving",
            "knative-serving",
            None,
            json!({"version": releases.serving}),
        );
        apply(&hub, &serving).await?;
        let part = format!("\"knative-operator-5d9c_1\" renews Lease {NAMESPACE}/{}", go_operator::LEASE);
        has_condition(&hub, &serving, "InstallSucceeded", "GoOperatorRunning", &part).await?;
        has_event(&hub, "knative-serving", "GoOperatorRunning", "").await?;
        let objects =
            hub.kubectl(&["get", "deployments,configmaps", "-n", "knative-serving", "-o", "name"], "").await?;
        assert_eq!(objects.trim(), "configmap/kube-root-ca.crt", "something was written");
        // It stops, as when its Deployment is deleted.
        leases
            .patch(go_operator::LEASE, &PatchParams::default(), &Patch::Merge(json!({"spec": {"holderIdentity": ""}})))
            .await?;
        ready(&hub, &serving).await?;
        delete(&hub, &serving).await?;
        drop(product);
        Ok(())
    });
}
