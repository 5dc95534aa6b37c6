//! Defects of the Go operator (docs/user/compatibility.md), reproduced with its real processes:
//! what it reports, and what stays. Each row of the document prints what was seen.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::Deployment;
use knative_operator_shared::api::Component;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::go_operator::{self, VERSION};
use knative_operator_tests::product;
use knative_operator_tests::{Result, wait};
use kube::Api;
use serde_json::{Value, json};

use crate::go_site::{Site, asked_for, row};
use crate::go_state::installed_by_go;
use crate::support::{forbid, ready, run};

const PLACE: &str = "knative-serving";

fn serving(version: &str) -> Value {
    installed_by_go(Component::Serving, PLACE, None, version)
}

/// The condition `type_` in `status`.
fn condition<'a>(status: &'a Value, type_: &str) -> &'a Value {
    let all = status["conditions"].as_array().map_or(&[][..], Vec::as_slice);
    all.iter().find(|condition| condition["type"] == type_).unwrap_or(&Value::Null)
}

/// Names of the objects of `kind` in `place`.
async fn list(site: &Site, place: &str, kind: &str) -> Result<Vec<String>> {
    let all = site.hub.kubectl(&["get", kind, "-n", place, "-o", "name"], "").await?;
    Ok(all.lines().filter_map(|line| line.split_once('/')).map(|(_, name)| name.to_owned()).collect())
}

/// A copy of the Go operator's releases that a test can change: a folder of links.
fn links(from: &Path, to: PathBuf) -> Result<PathBuf> {
    std::fs::create_dir(&to)?;
    for entry in std::fs::read_dir(from)?.flatten() {
        let target = to.join(entry.file_name());
        std::fs::create_dir(&target)?;
        for version in std::fs::read_dir(entry.path())?.flatten() {
            std::os::unix::fs::symlink(version.path(), target.join(version.file_name()))?;
        }
    }
    Ok(to)
}

#[test]
fn go_operator_reports_what_is_not_so() {
    if !asked_for() {
        return;
    }
    run(async {
        let mut site = Site::start(Cluster::spoke("defects-status").await?, &[]).await?;
        // Nothing can be installed; then Deployments can't start.
        let mut broken = serving(VERSION);
        broken["spec"]["version"] = json!("1.23.7");
        site.change(&broken).await?;
        let failed = site.status(&broken).await?;
        let mut pending = serving(VERSION);
        pending["spec"]["workloads"] = json!([{"name": "autoscaler", "nodeSelector": {"no": "where"}}]);
        site.change(&pending).await?;
        site.touch(&pending).await?;
        let after = site.status(&pending).await?;
        let message = |status: &Value| condition(status, "InstallSucceeded")["message"].clone();
        row(14, &format!("after the version was corrected, InstallSucceeded still says {}", message(&after)));
        assert!(message(&after).as_str().is_some_and(|m| m.contains("1.23.7")), "{after}");
        assert_eq!(message(&failed), message(&after));

        let plain = serving(VERSION);
        site.apply(&plain).await?;
        ready(&site.hub, &plain).await?;
        site.touch(&plain).await?;
        // A rollout that can't complete.
        site.change(&pending).await?;
        site.touch(&pending).await?;
        let status = site.status(&pending).await?;
        let deployment = site.get(PLACE, ["deployment", "autoscaler"]).await?;
        let unavailable = &deployment["status"]["unavailableReplicas"];
        row(6, &format!("Ready is {} with {unavailable} unavailable replica", condition(&status, "Ready")["status"]));
        assert!(condition(&status, "Ready")["status"] == "True" && *unavailable == json!(1), "{status} {deployment}");

        // Another image for a Job.
        let mut image = plain.clone();
        image["spec"]["registry"] = json!({"override": {"migrate": "registry.example/migrate:1"}});
        site.change(&image).await?;
        let status = site.status(&image).await?;
        let message = condition(&status, "InstallSucceeded")["message"].as_str().unwrap_or_default();
        let (start, end) = (message.get(..90).unwrap_or(message), message.rsplit_once(": ").map_or("", |(_, end)| end));
        row(7, &format!("{start}… {end}"));
        assert!(message.contains("field is immutable"), "{status}");
        site.change(&plain).await?;
        ready(&site.hub, &plain).await?;

        // A version that may not follow; a Deployment is deleted.
        let jump = serving("1.20.3");
        site.change(&jump).await?;
        site.hub.object("deployment", PLACE, "autoscaler").delete().await?;
        site.touch(&jump).await?;
        let status = site.status(&jump).await?;
        let missing = site.get(PLACE, ["deployment", "autoscaler"]).await?.is_null();
        let eligible = &condition(&status, "VersionMigrationEligible")["status"];
        row(15, &format!("VersionMigrationEligible is {eligible}; the deleted Deployment is missing: {missing}"));
        assert!(*eligible == json!("False") && missing, "{status}");
        site.change(&plain).await?;
        ready(&site.hub, &plain).await?;

        // A second resource.
        let second = installed_by_go(Component::Serving, "other", None, VERSION);
        site.change(&second).await?;
        let mut written = Vec::new();
        for resource in [&second, &plain, &second] {
            let span = site.touch(resource).await?;
            let mut writes = site.writes(span).await?;
            // It writes these without need, too.
            writes.retain(|kind, _| !kind.starts_with("namespaces") && !kind.starts_with("poddisruption"));
            let all =
                writes.into_iter().flat_map(|(kind, names)| names.into_iter().map(move |n| format!("{kind} {n}")));
            written.push(all.collect::<BTreeSet<_>>());
        }
        let both: Vec<_> = written[1].intersection(&written[2]).filter(|write| !write.contains("deployment")).collect();
        row(16, &format!("written in reconciles of each of the two resources: {both:?}"));
        assert!(!both.is_empty(), "{written:?}");
        Ok(())
    });
}

#[test]
fn go_operator_leaves_objects_behind() {
    if !asked_for() {
        return;
    }
    run(async {
        let hub = Cluster::spoke("defects-left").await?;
        let kodata = links(&go_operator::releases()?.dir, hub.dir().join("kodata"))?;
        let mut site = Site::start_with(hub, &[], Some(&kodata)).await?;
        let old = serving("1.22.1");
        site.apply(&old).await?;
        ready(&site.hub, &old).await?;

        // Security Guard, switched on and off.
        let mut guarded = old.clone();
        guarded["spec"]["security"] = json!({"securityGuard": {"enabled": true}});
        site.change(&guarded).await?;
        ready(&site.hub, &guarded).await?;
        site.change(&old).await?;
        site.touch(&old).await?;
        let left = list(&site, PLACE, "deployments").await?;
        row(11, &format!("Deployments after the guard was disabled: {left:?}"));
        assert!(left.iter().any(|name| name == "guard-service"), "{left:?}");

        // Another ingress, whose Deployments are not available immediately.
        let mut gateway = old.clone();
        gateway["spec"]["ingress"] = json!({"gateway-api": {"enabled": true}});
        gateway["spec"]["config"] = json!({"network": {"ingress-class": "gateway-api.ingress.networking.knative.dev"}});
        let mut pending = gateway.clone();
        pending["spec"]["workloads"] = json!([{"name": "net-gateway-api-controller", "nodeSelector": {"no": "where"}}]);
        site.change(&pending).await?;
        site.change(&gateway).await?;
        ready(&site.hub, &gateway).await?;
        site.touch(&gateway).await?;
        let left = list(&site, PLACE, "deployments").await?;
        row(9, &format!("Deployments after Kourier was disabled: {left:?}"));
        assert!(left.iter().any(|name| name == "net-kourier-controller"), "{left:?}");
        site.change(&old).await?;
        ready(&site.hub, &old).await?;

        // The manifests of an ingress are missing.
        std::fs::remove_file(kodata.join("ingress/1.22"))?;
        site.go.stop()?;
        site.go.start(&site.hub).await?;
        let mut istio = old.clone();
        istio["spec"]["ingress"] = json!({"istio": {"enabled": true}});
        site.change(&istio).await?;
        let status = site.status(&istio).await?;
        row(12, &format!("InstallSucceeded is {}", condition(&status, "InstallSucceeded")["status"]));
        assert!(condition(&status, "Ready")["status"] == "True", "{status}");

        // The old version is gone from the container.
        std::fs::remove_file(kodata.join("knative-serving/1.22.1"))?;
        let new = serving(VERSION);
        site.change(&new).await?;
        ready(&site.hub, &new).await?;
        site.touch(&new).await?;
        let left = list(&site, PLACE, "jobs").await?;
        row(10, &format!("Jobs after the upgrade: {left:?}"));
        assert!(left.iter().any(|name| name.ends_with("1.22.1")), "{left:?}");

        // The API server refuses one deletion.
        let example = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "forbidden"}});
        forbid(&site.hub, "nothing-else", "clusterroles", &example).await?;
        let policy = json!([{"op": "replace", "path": "/spec/matchConstraints/resourceRules/0", "value":
            {"apiGroups": ["autoscaling"], "apiVersions": ["*"], "operations": ["DELETE"], "resources": ["horizontalpodautoscalers"]}},
            {"op": "replace", "path": "/spec/validations/0/expression", "value": "false"}]);
        site.patch("", ["validatingadmissionpolicy", "nothing-else"], "test", &policy).await?;
        let refused =
            || async { site.hub.kubectl(&["delete", "hpa", "activator", "-n", PLACE, "--dry-run=server"], "").await };
        let deadline = Instant::now() + wait::LIMIT;
        while refused().await.is_ok() {
            assert!(Instant::now() < deadline, "the policy refuses nothing");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        site.hub.object("knativeserving", PLACE, "knative-serving").delete().await?;
        let roles = list(&site, PLACE, "clusterroles")
            .await?
            .into_iter()
            .filter(|role| role.starts_with("knative-serving") && !role.contains("-operator"));
        let left: Vec<_> = roles.collect();
        row(13, &format!("deleted, with one refused object; ClusterRoles that are left: {left:?}"));
        assert!(left.len() > 3, "{left:?}");
        Ok(())
    });
}

#[test]
fn go_operator_crashes_and_ignores_drift() {
    if !asked_for() {
        return;
    }
    run(async {
        let (hub, spoke) = tokio::try_join!(Cluster::spoke("defects-drift"), Cluster::spoke("defects-spoke"))?;
        let mut site = Site::start(hub, &[&spoke]).await?;
        product::register(&site.hub, &spoke, "drifting").await?;
        let mut remote = installed_by_go(Component::Serving, "remote", Some("drifting"), VERSION);
        site.apply(&remote).await?;
        ready(&site.hub, &remote).await?;
        site.idle().await?;
        spoke.object("deployment", "remote", "autoscaler").delete().await?;
        let (limit, deployments) = (Duration::from_secs(15), Api::<Deployment>::namespaced(spoke.client(), "remote"));
        let repaired = wait::until(&deployments, "autoscaler", limit, "repaired", |d| d.is_some()).await;
        let status = site.status(&remote).await?;
        let ready = &condition(&status, "Ready")["status"];
        row(18, &format!("a Deployment on a spoke was not repaired in {limit:?}; Ready is {ready}"));
        assert!(repaired.is_err() && *ready == json!("True"), "{status}");

        // A manifest with a ConfigMap whose name is short.
        let file = site.hub.dir().join("short.yaml");
        std::fs::write(&file, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: short}\n")?;
        remote["spec"]["additionalManifests"] = json!([{"URL": file.display().to_string()}]);
        site.apply(&remote).await?;
        let ended = site.go.ends(wait::LIMIT).await?;
        let log = site.go.log();
        let panic = log.lines().rfind(|line| line.starts_with("panic:") || line.contains("goroutine panic"));
        row(19, &format!("exit code {ended}: {}", panic.unwrap_or_default()));
        assert!(ended != 0 && panic.is_some(), "{log}");
        Ok(())
    });
}
