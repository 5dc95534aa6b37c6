//! What goes wrong on the way to a spoke: each has its reason and a message that helps, and heals by itself.

use std::time::Duration;

use knative_operator_shared::api::Component;
use knative_operator_tests::{product, tools};
use serde_json::{Value, json};

use crate::support::{Fleet, apply, condition, delete, fleet, namespace, nothing, resource, run, says, script, status};

/// The test's own plugins; `absent` is never written.
pub const PLUGINS: [&str; 5] = ["fails", "rubbish", "hangs", "absent", "mends"];

/// A resource for `profile` that asks for a version that the bundle lacks: its cluster is resolved, nothing is installed.
fn asking(name: &str) -> Value {
    resource(Component::Eventing, "failures", name, Some(name), nothing())
}

fn offering(fleet: &Fleet, provider: &str) -> Value {
    let mut access = product::access(&fleet.spokes[2], "spoke-2");
    access[0]["name"] = json!(provider);
    access
}

#[test]
fn each_failure_has_its_reason_and_a_message_that_helps() {
    run(async {
        let fleet = fleet().await?;
        let hub = &fleet.hub;
        namespace(hub, "failures").await?;
        for (name, text) in [
            ("fails", "#!/bin/sh\necho starting >&2\necho 'no secret for this cluster' >&2\nexit 1\n"),
            ("rubbish", "#!/bin/sh\necho canary-token\n"),
            ("hangs", "#!/bin/sh\nsleep 3600\n"),
        ] {
            script(&fleet.plugins.join(name), text)?;
        }
        let mut dead = product::access(&fleet.spokes[2], "spoke-2");
        // Nobody listens there.
        dead[0]["cluster"]["server"] = json!(format!("https://{}:6444", fleet.spokes[2].subnet().address(3)));
        let mut stranger = product::access(&fleet.spokes[2], "spoke-2");
        stranger[0]["cluster"]["certificate-authority-data"] =
            product::access(&fleet.spokes[1], "spoke-1")[0]["cluster"]["certificate-authority-data"].clone();
        let mut broken = product::access(&fleet.spokes[2], "spoke-2");
        broken[0]["cluster"]["certificate-authority-data"] = json!("bm8gY2VydGlmaWNhdGU=");
        let cases: [(&str, Option<Value>, &str, &str); 11] = [
            ("missing", None, "ClusterProfileNotFound", "ClusterProfile fleet-system/missing does not exist"),
            ("no-providers", Some(json!([])), "ClusterProfileUnavailable", "has no status.accessProviders"),
            (
                "unknown-provider",
                Some(offering(fleet, "google")),
                "ClusterProfileUnavailable",
                "offers the access providers google",
            ),
            (
                "plugin-absent",
                Some(offering(fleet, "absent")),
                "AccessProviderFailed",
                "can't be started: No such file",
            ),
            (
                "plugin-fails",
                Some(offering(fleet, "fails")),
                "AccessProviderFailed",
                "ended with status 1: no secret for this cluster",
            ),
            (
                "plugin-rubbish",
                Some(offering(fleet, "rubbish")),
                "AccessProviderFailed",
                "printed no valid ExecCredential",
            ),
            (
                "plugin-hangs",
                Some(offering(fleet, "hangs")),
                "AccessProviderFailed",
                "did not answer within 10s and was killed",
            ),
            ("unreachable", Some(dead), "RemoteClusterUnreachable", "can't be reached"),
            ("stranger", Some(stranger), "RemoteClusterUnreachable", "certificate"),
            ("broken-authority", Some(broken), "RemoteClientCreationFailed", "certificate"),
            (
                "unauthorized",
                Some(product::access(&fleet.spokes[2], "spoke-1")),
                "RemoteClusterUnauthorized",
                "refuses the credential",
            ),
        ];
        for (name, access, ..) in &cases {
            if let Some(access) = access {
                product::profile(hub, name, access).await?;
            }
            apply(hub, &asking(name)).await?;
        }
        product::profile(hub, "unhealthy", &json!([])).await?;
        product::status(hub, "unhealthy", "False", &json!([])).await?;
        apply(hub, &asking("unhealthy")).await?;
        says(
            hub,
            &asking("unhealthy"),
            "TargetClusterResolved",
            "ClusterProfileNotReady",
            "ControlPlaneHealthy=False: set to False by a test",
        )
        .await?;
        for (name, _, reason, part) in &cases {
            says(hub, &asking(name), "TargetClusterResolved", reason, part)
                .await
                .map_err(|e| format!("{name}: {e}"))?;
            // Ready tells the same, and nothing pretends to be installed.
            let told = status(hub, &asking(name), Duration::from_secs(5), "told", |_| true).await?;
            assert_eq!(condition(&told, "Ready").and_then(|c| c.reason.as_deref()), Some(*reason), "{name}");
            assert!(
                told.conditions.iter().all(|c| c.status != "True" || c.type_ == "VersionMigrationEligible"),
                "{name}: {told:#?}"
            );
        }
        // Each was told in an event, too.
        let events = hub
            .kubectl(
                &[
                    "get",
                    "events",
                    "-n",
                    "failures",
                    "-o",
                    "jsonpath={range .items[*]}{.regarding.name}{.involvedObject.name}={.reason} {end}",
                ],
                "",
            )
            .await?;
        for (name, _, reason, _) in &cases {
            assert!(events.contains(&format!("{name}={reason} ")), "no event {reason} about {name}: {events}");
        }
        // No credential is told, whatever a plugin prints.
        let told = hub.kubectl(&["get", "knativeeventing,events", "-n", "failures", "-o", "yaml"], "").await?;
        assert!(!told.contains("canary-token") && !fleet.product.operator.process.log().contains("canary-token"));
        // Nothing of that costs more than a look now and then: no hot loop.
        let passes = |log: &str| log.matches("\"reason\":\"AccessProviderFailed\"").count();
        assert!(passes(&fleet.product.operator.process.log()) <= 2 * cases.len(), "events repeat");
        // Where nothing was installed there is nothing to wait for: such a resource goes at once.
        for (name, ..) in &cases {
            delete(hub, &asking(name)).await?;
        }
        delete(hub, &asking("unhealthy")).await
    });
}

#[test]
fn each_failure_heals_when_its_cause_goes_away() {
    run(async {
        let fleet = fleet().await?;
        let hub = &fleet.hub;
        namespace(hub, "failures").await?;
        let resolved = |s: &knative_operator_shared::api::KnativeStatus| {
            condition(s, "TargetClusterResolved").is_some_and(|c| c.status == "True")
        };
        let healed = async |resource: &Value| {
            status(hub, resource, Duration::from_secs(60), "resolved", resolved).await?;
            delete(hub, resource).await
        };

        // A plugin that is mended.
        script(&fleet.plugins.join("mends"), "#!/bin/sh\necho 'not yet' >&2\nexit 1\n")?;
        product::profile(hub, "mended", &offering(fleet, "mends")).await?;
        let mended = asking("mended");
        apply(hub, &mended).await?;
        says(hub, &mended, "TargetClusterResolved", "AccessProviderFailed", "not yet").await?;
        let official = tools::control_plane("secretreader-plugin")?;
        script(&fleet.plugins.join("mends"), &format!("#!/bin/sh\nexec {}\n", official.display()))?;
        healed(&mended).await?;

        // A profile that is created later, becomes unhealthy and healthy again, and moves to where somebody listens.
        let late = asking("late");
        apply(hub, &late).await?;
        says(hub, &late, "TargetClusterResolved", "ClusterProfileNotFound", "late").await?;
        let mut access = product::access(&fleet.spokes[2], "spoke-2");
        let right = access.clone();
        access[0]["cluster"]["server"] = json!(format!("https://{}:6444", fleet.spokes[2].subnet().address(3)));
        product::profile(hub, "late", &access).await?;
        says(hub, &late, "TargetClusterResolved", "RemoteClusterUnreachable", "can't be reached").await?;
        product::status(hub, "late", "False", &right).await?;
        says(hub, &late, "TargetClusterResolved", "ClusterProfileNotReady", "ControlPlaneHealthy=False").await?;
        product::status(hub, "late", "True", &right).await?;
        healed(&late).await
    });
}
