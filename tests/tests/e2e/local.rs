//! Installs on the cluster that the operator runs in.

use k8s_openapi::api::apps::v1::Deployment;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::product::{Product, values};
use knative_operator_tests::remaining::objects;
use knative_operator_tests::{releases, wait};
use kube::api::DeleteParams;
use kube::{Api, ResourceExt};

use crate::support::{apply, delete, eventing, has_condition, namespace, nothing_left, ready, run, serving};

#[test]
fn both_kinds_install_locally_with_chart_permissions() {
    run(async {
        // Knative's own webhooks have no Pods here and would fail closed: this API server calls
        // none.
        let cluster = Cluster::spoke("local").await?;
        let releases = releases::best();
        let plugins = tempfile::tempdir()?;
        let product = Product::create(&cluster, &releases, values(&[]), plugins.path()).await?;
        for name in ["knative-serving", "knative-eventing", "other"] {
            namespace(&cluster, name).await?;
        }
        let before = objects(&cluster.client()).await?;
        let (serving_cr, eventing_cr) =
            (serving("knative-serving", "ks", None, &releases), eventing("knative-eventing", "ke", None, &releases));
        tokio::try_join!(apply(&cluster, &serving_cr), apply(&cluster, &eventing_cr))?;
        tokio::try_join!(ready(&cluster, &serving_cr), ready(&cluster, &eventing_cr))?;

        let deployments = Api::<Deployment>::namespaced(cluster.client(), "knative-serving");
        let controller = deployments.get("controller").await?;
        let owner = &controller.owner_references()[0];
        assert_eq!((owner.kind.as_str(), owner.name.as_str()), ("KnativeServing", "ks"));
        deployments.delete("controller", &DeleteParams::default()).await?;
        let back = |d: Option<&Deployment>| d.is_some_and(|d| d.uid() != controller.uid());
        wait::until(&deployments, "controller", wait::LIMIT, "back", back).await?;

        // A second resource on the same cluster would fight over all cluster-scoped objects.
        let second = serving("other", "ks", None, &releases);
        apply(&cluster, &second).await?;
        has_condition(
            &cluster,
            &second,
            "InstallSucceeded",
            "Occupied",
            "belongs to KnativeServing knative-serving/ks of hub ",
        )
        .await?;
        delete(&cluster, &second).await?;

        tokio::try_join!(delete(&cluster, &serving_cr), delete(&cluster, &eventing_cr))?;
        nothing_left(&cluster, &before).await?;
        let log = product.operator.process.log();
        // The Pods of a ReplicaSet may be forbidden until their ServiceAccount is known.
        let is_refusal = |line: &&str| line.contains("is forbidden: User") || line.contains("cannot patch");
        let refusals: Vec<&str> = log.lines().filter(is_refusal).take(5).collect();
        assert!(refusals.is_empty(), "rights are missing:\n{}", refusals.join("\n"));
        Ok(())
    });
}
