//! Objects that a cluster refuses, never completes, or already has: each is reported with the
//! object, the cluster's message and any deadline; other objects are not affected; and the operator
//! recovers.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Event, Service};
use knative_operator_shared::api::Condition;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::measure::{Audit, Request};
use knative_operator_tests::product::{self, NAMESPACE, Product, values};
use knative_operator_tests::releases::{self, Releases};
use knative_operator_tests::remaining::objects;
use knative_operator_tests::{Result, wait};
use kube::api::DeleteParams;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::support::{
    INSTALL, apply, condition, delete, forbid, has_condition, namespace, nothing_left, ready, run, serving, status,
    step, without_ingress,
};
use knative_operator_tests::tools::copy;

/// A Job that no node can run, and that Kubernetes gives up after a second.
const FAILING: &str = r"
apiVersion: batch/v1
kind: Job
metadata: {name: failing, namespace: knative-serving, labels: {app.kubernetes.io/name: knative-serving}}
spec:
  activeDeadlineSeconds: 1
  template:
    spec:
      restartPolicy: Never
      nodeSelector: {nobody: has}
      containers: [{name: failing, image: 'registry.example/failing:1'}]
";

/// A Service that belongs to another namespace than the rest.
const ELSEWHERE: &str = r"
apiVersion: v1
kind: Service
metadata: {name: knative-local-gateway, labels: {app.kubernetes.io/name: knative-serving}}
spec: {selector: {istio: ingressgateway}, ports: [{name: http, port: 80}]}
";

/// Refused objects of `resource` are reported, stop no other, and are applied once they can be.
async fn refused_objects_are_reported(hub: &Cluster, spoke: &Cluster, resource: &Value) -> Result<()> {
    // A conflicting CRD name, an existing ConfigMap, and a quota.
    let foreign = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "pictures.caching.internal.knative.dev"},
        "spec": {"group": "caching.internal.knative.dev", "scope": "Namespaced", "names": {"kind": "Image", "plural": "pictures", "singular": "picture"},
        "versions": [{"name": "v1alpha1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]}});
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none", "namespace": "knative-serving"}, "spec": {"hard": {"count/secrets": "0"}}});
    let theirs = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "config-network", "namespace": "knative-serving"}, "data": {"ingress-class": "theirs", "other": "theirs"}});
    for object in [&foreign, &quota, &theirs] {
        apply(spoke, object).await?;
    }
    wait::established(spoke.client()).await?;
    spoke
        .kubectl(
            &["wait", "--for=jsonpath={.status.hard}", "resourcequota/none", "-n", "knative-serving", "--timeout=2m"],
            "",
        )
        .await?;

    let defaults = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "config-defaults", "namespace": "default"}});
    forbid(spoke, "no-defaults", "configmaps", &defaults).await?;
    apply(hub, resource).await?;
    for part in [
        "failed to apply Secret knative-serving/webhook-certs: secrets \"webhook-certs\" is forbidden: exceeded quota: none",
        "failed to apply ConfigMap knative-serving/config-defaults: configmaps \"config-defaults\" is forbidden: ValidatingAdmissionPolicy 'no-defaults'",
        "CustomResourceDefinition images.caching.internal.knative.dev is not established: ",
    ] {
        has_condition(hub, resource, "InstallSucceeded", "Error", part).await?;
    }
    // All other objects are applied and work.
    let works = |c: &Condition| c.status == "True";
    status(hub, resource, INSTALL, "available", |s| condition(s, "DeploymentsAvailable").is_some_and(works)).await?;
    adopted(hub).await?;
    // Refused writes back off.
    let mut audit = Audit::of(spoke, product::SPOKE_USER)?;
    tokio::time::sleep(Duration::from_secs(5)).await; // nothing is waited for: it is counted what happens
    let writes = audit.take()?.into_iter().filter(Request::writes).count();
    assert!(writes <= 20, "{writes} writes in five seconds");

    // It recovers with the causes.
    delete(spoke, &quota).await?;
    delete(spoke, &foreign).await?;
    spoke.kubectl(&["delete", "validatingadmissionpolicybinding,validatingadmissionpolicy", "no-defaults"], "").await?;
    ready(hub, resource).await.map(drop)
}

/// A failing Job; without it, the installation is complete.
async fn failing_job_is_reported(hub: &Cluster, spoke: &Cluster, resource: &mut Value) -> Result<()> {
    resource["spec"]["additionalManifests"] = json!([{"URL": "own/failing.yaml"}]);
    apply(hub, resource).await?;
    let message = "Job failing-serving-1.1.0 failed: DeadlineExceeded: Job was active longer than specified deadline; delete it to run it again";
    has_condition(hub, resource, "InstallSucceeded", "Error", message.strip_prefix("Job failing").unwrap()).await?;
    resource["spec"].as_object_mut().map(|s| s.remove("additionalManifests"));
    apply(hub, resource).await?;
    let jobs = Api::<Job>::namespaced(spoke.client(), "knative-serving");
    wait::until_all(&jobs, "", INSTALL, "without the Job", |all| !all.iter().any(|j| j.name_any().contains("failing")))
        .await?;
    ready(hub, resource).await.map(drop)
}

/// A Deployment that never becomes available: reported with start and deadline.
async fn unavailable_deployment_is_reported(hub: &Cluster, spoke: &Cluster, resource: &mut Value) -> Result<()> {
    resource["spec"]["workloads"] = json!([{"name": "controller", "nodeSelector": {"nobody": "has"}}]);
    apply(hub, resource).await?;
    has_condition(hub, resource, "DeploymentsAvailable", "NotReady", ", deadline 20").await?;
    // Obsolete objects are pruned nevertheless.
    let deployments = Api::<Deployment>::namespaced(spoke.client(), "knative-serving");
    assert!(deployments.get_opt("3scale-kourier-gateway").await?.is_some());
    without_ingress(resource);
    apply(hub, resource).await?;
    wait::until(&deployments, "3scale-kourier-gateway", INSTALL, "gone", |d| d.is_none()).await?;
    resource["spec"].as_object_mut().map(|s| s.remove("workloads"));
    apply(hub, resource).await?;
    ready(hub, resource).await.map(drop)
}

#[test]
fn failing_objects_are_reported_and_stop_no_other() {
    run(async {
        let (hub, spoke) = tokio::try_join!(Cluster::hub("trouble"), Cluster::spoke("troubled"))?;
        let bundle = tempfile::tempdir()?;
        copy(&releases::small().dir, bundle.path())?;
        std::fs::write(bundle.path().join("own/failing.yaml"), FAILING)?;
        std::fs::write(bundle.path().join("own/elsewhere.yaml"), ELSEWHERE)?;
        let releases = Releases { dir: bundle.path().to_owned(), ..releases::small() };
        let mut product = Product::create(&hub, &releases, values(&[]), bundle.path()).await?;
        product::register(&hub, &spoke, "spoke").await?;
        namespace(&hub, "trouble").await?;
        namespace(&spoke, "knative-serving").await?;
        let before = objects(&spoke.client()).await?;

        let mut resource = serving("trouble", "ks", Some("spoke"), &releases);
        step("refused objects", refused_objects_are_reported(&hub, &spoke, &resource)).await?;
        step("a failing Job", failing_job_is_reported(&hub, &spoke, &mut resource)).await?;
        let unavailable = unavailable_deployment_is_reported(&hub, &spoke, &mut resource);
        step("a Deployment that never becomes available", unavailable).await?;
        let object = elsewhere(&hub, &spoke, &mut resource, &mut product);
        step("an object in another namespace", object).await?;
        step("permissions that are revoked", forbid_watch(&hub, &spoke, &resource)).await?;
        delete(&hub, &resource).await?;
        nothing_left(&spoke, &before).await
    });
}

/// An object in another namespace is repaired, too, also after a restart, and is pruned when no
/// longer desired.
async fn elsewhere(hub: &Cluster, spoke: &Cluster, resource: &mut Value, product: &mut Product) -> Result<()> {
    namespace(spoke, "istio-system").await?;
    resource["spec"]["additionalManifests"] = json!([{"URL": "own/elsewhere.yaml"}]);
    apply(hub, resource).await?;
    let services = Api::<Service>::namespaced(spoke.client(), "istio-system");
    let gateway = "knative-local-gateway";
    wait::until(&services, gateway, INSTALL, "there", |s| s.is_some()).await?;
    ready(hub, resource).await?;
    product.restart_operator(hub, rustix::process::Signal::KILL).await?;
    let uid = services.get(gateway).await?.uid();
    services.delete(gateway, &DeleteParams::default()).await?;
    wait::until(&services, gateway, INSTALL, "back", |s| s.is_some_and(|s| s.uid() != uid)).await?;
    ready(hub, resource).await?;
    resource["spec"].as_object_mut().map(|s| s.remove("additionalManifests"));
    apply(hub, resource).await?;
    wait::until(&services, gateway, INSTALL, "gone", |s| s.is_none()).await?;
    ready(hub, resource).await?;
    spoke.object("namespace", "", "istio-system").delete().await
}

/// The existing ConfigMap is adopted, the additions of its owner stay, and this is reported once.
async fn adopted(hub: &Cluster) -> Result<()> {
    let events = Api::<Event>::namespaced(hub.client(), "trouble");
    let named = |e: &Event| {
        let message = e.message.as_deref().unwrap_or_default();
        e.reason.as_deref() == Some("Adopted")
            && message.contains("ConfigMap knative-serving/config-network (managed by \"kubectl-client-side-apply\")")
    };
    let adopted =
        wait::until_all(&events, "", wait::LIMIT, "Adopted with the objects", |all| all.iter().any(named)).await?;
    assert_eq!(adopted.iter().filter(|e| e.reason.as_deref() == Some("Adopted")).count(), 1);
    Ok(())
}

/// Permission to watch Deployments is revoked: that is reported; restored, the operator recovers.
async fn forbid_watch(hub: &Cluster, spoke: &Cluster, resource: &Value) -> Result<()> {
    let all = |verbs: &[&str], groups: &[&str]| json!({"apiGroups": groups, "resources": ["*"], "verbs": verbs});
    let groups = [
        "",
        "rbac.authorization.k8s.io",
        "apiextensions.k8s.io",
        "admissionregistration.k8s.io",
        "autoscaling",
        "policy",
        "batch",
        "caching.internal.knative.dev",
    ];
    let role = |verbs: &[&str]| {
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "limited"},
            "rules": [all(&["*"], &groups), all(verbs, &["apps"])]})
    };
    let blind = role(&["get", "create", "patch", "delete"]);
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "limited", "namespace": "kube-system"}});
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "limited"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "limited"},
        "subjects": [{"kind": "ServiceAccount", "name": "limited", "namespace": "kube-system"}]});
    for object in [&blind, &account, &binding] {
        apply(spoke, object).await?;
    }
    let token = spoke.token("kube-system", "limited", 3600).await?;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "limited", "namespace": NAMESPACE}, "stringData": {"token": token}});
    apply(hub, &secret).await?;
    product::status(hub, "spoke", "True", &product::access(spoke, "limited")).await?;
    let part = "cannot watch deployments.apps, so their state is unknown: deployments.apps is forbidden";
    has_condition(hub, resource, "InstallSucceeded", "Error", part).await?;

    // Kinds that may be listed, but not watched, are listed at the poll interval.
    apply(spoke, &role(&["get", "list", "create", "patch", "delete"])).await?;
    ready(hub, resource).await?;
    let deployments = Api::<Deployment>::namespaced(spoke.client(), "knative-serving");
    let uid = deployments.get("controller").await?.uid();
    deployments.delete("controller", &DeleteParams::default()).await?;
    let back = |d: Option<&Deployment>| d.is_some_and(|d| d.uid() != uid && d.metadata.deletion_timestamp.is_none());
    wait::until(&deployments, "controller", INSTALL, "back", back).await?;
    product::status(hub, "spoke", "True", &product::access(spoke, "spoke")).await?;
    ready(hub, resource).await?;
    for object in [&blind, &account, &binding] {
        delete(spoke, object).await?;
    }
    Ok(())
}
