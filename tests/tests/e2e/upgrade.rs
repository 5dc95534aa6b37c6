//! Upgrades to the next minor version, downgrades, and pruning.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::ConfigMap;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::{Result, product, wait};
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::support::{
    INSTALL, apply, condition, delete, fleet, namespace, ready, run, serving, status, without_ingress,
};

#[test]
fn adjacent_minors_upgrade_and_downgrade() {
    run(async {
        let fleet = fleet().await?;
        let (hub, spoke) = (&fleet.hub, Cluster::spoke("upgrades").await?);
        product::register(hub, &spoke, "upgrades").await?;
        namespace(hub, "upgrades").await?;
        let versions: &[&str] = if fleet.releases.real {
            &["1.20.3", "1.21.3", "1.22.1", "1.23.0", "1.22.0"]
        } else {
            &["1.0.0", "1.1.0", "1.0.0"]
        };
        let mut resource = serving("upgrades", "ks", Some("upgrades"), &fleet.releases);
        for version in versions {
            resource["spec"]["version"] = json!(version);
            apply(hub, &resource).await?;
            installed(hub, &resource, version).await?;
            all_of(&spoke, version, *version == versions[0]).await?;
        }

        // A version that is too far away is refused, and the installation is not changed.
        if fleet.releases.real {
            let mut far = resource.clone();
            far["spec"]["version"] = json!("1.20.3");
            let refused = apply(hub, &far).await.unwrap_err().to_string();
            assert!(
                refused.contains("spec.version: ") && refused.contains("set spec.version to 1.21 first"),
                "{refused}"
            );
            all_of(&spoke, "1.22.0", false).await?;
        }

        // Obsolete objects are pruned: those of another ingress, and of another version.
        let deployments = Api::<Deployment>::namespaced(spoke.client(), "knative-serving");
        assert!(deployments.get_opt("3scale-kourier-gateway").await?.is_some());
        without_ingress(&mut resource);
        apply(hub, &resource).await?;
        wait::until(&deployments, "3scale-kourier-gateway", INSTALL, "gone", |d| d.is_none()).await?;
        ready(hub, &resource).await?;
        let maps = Api::<ConfigMap>::namespaced(spoke.client(), "knative-serving");
        assert!(maps.get_opt("kourier-bootstrap").await?.is_none() && maps.get_opt("config-network").await?.is_some());
        delete(hub, &resource).await
    });
}

async fn installed(hub: &Cluster, resource: &Value, version: &str) -> Result<()> {
    let done = |c: &&knative_operator_shared::api::Condition| c.status == "True";
    let ready = |s: &knative_operator_shared::api::KnativeStatus| {
        s.version.as_deref() == Some(version) && condition(s, "Ready").as_ref().is_some_and(done)
    };
    status(hub, resource, INSTALL, &format!("ready with version {version}"), ready).await.map(drop)
}

/// Each Deployment has `version` and is rolled out, and the Jobs of `version` have run.
pub async fn all_of(spoke: &Cluster, version: &str, first: bool) -> Result<()> {
    let minor = version.rsplit_once('.').map_or(version, |(minor, _)| minor);
    for deployment in
        Api::<Deployment>::namespaced(spoke.client(), "knative-serving").list(&ListParams::default()).await?
    {
        if let Some(label) = deployment.labels().get("app.kubernetes.io/version") {
            assert!(label.starts_with(minor), "{} is of {label}", deployment.name_any());
        }
        let status = deployment.status.clone().unwrap_or_default();
        assert_eq!(status.observed_generation, deployment.metadata.generation, "{}", deployment.name_any());
    }
    let job = format!("storage-version-migration-serving-serving-{version}");
    let jobs = Api::<Job>::namespaced(spoke.client(), "knative-serving");
    // Jobs of a first installation are not awaited.
    let limit = if first { INSTALL } else { Duration::ZERO };
    let done = |j: Option<&Job>| j.and_then(|j| j.status.as_ref()?.succeeded).is_some_and(|n| n > 0);
    let found = jobs.get_opt(&job).await?;
    if !done(found.as_ref()) {
        wait::until(&jobs, &job, limit, "done", done).await?;
    }
    Ok(())
}
