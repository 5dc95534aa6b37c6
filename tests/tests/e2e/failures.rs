//! Failures on the way to a spoke: each has a reason and a helpful message, and the operator
//! recovers from it.

use k8s_openapi::api::core::v1::Event;
use knative_operator_shared::api::{Component, Condition};
use knative_operator_tests::{product, tools, wait};
use kube::Api;
use serde_json::{Value, json};

use crate::support::{
    Fleet, apply, condition, delete, fleet, has_condition, namespace, nothing_to_install, resource, run, script, status,
};

/// The test's own plugins; `absent` does not exist.
pub const PLUGINS: [&str; 5] = ["fails", "rubbish", "hangs", "absent", "recovers"];

/// A resource for `profile` with a version that the bundle lacks: its cluster is resolved, nothing
/// is installed.
fn asking(name: &str) -> Value {
    resource(Component::Eventing, "failures", name, Some(name), nothing_to_install())
}

fn offering(fleet: &Fleet, provider: &str) -> Value {
    let mut access = product::access(&fleet.spokes[2], "spoke-2");
    access[0]["name"] = json!(provider);
    access
}

#[test]
fn failure_has_reason_and_helpful_message() {
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
        // No server listens there.
        dead[0]["cluster"]["server"] = json!(format!("https://{}:6444", fleet.spokes[2].subnet().address(3)));
        let mut stranger = product::access(&fleet.spokes[2], "spoke-2");
        stranger[0]["cluster"]["certificate-authority-data"] =
            product::access(&fleet.spokes[1], "spoke-1")[0]["cluster"]["certificate-authority-data"].clone();
        let mut broken = product::access(&fleet.spokes[2], "spoke-2");
        broken[0]["cluster"]["certificate-authority-data"] = json!("bm8gY2VydGlmaWNhdGU=");
        // As Knative's documents have it: the definition drops certificateAuthorityData, and the
        // plugin finds no Secret without an extension.
        let mut documented = product::access(&fleet.spokes[2], "spoke-2");
        let address = documented[0]["cluster"].as_object_mut().ok_or("no cluster")?;
        let authority = address.remove("certificate-authority-data").ok_or("no authority")?;
        address.insert("certificateAuthorityData".to_owned(), authority);
        let nameless = {
            let mut access = documented.clone();
            access[0]["cluster"].as_object_mut().ok_or("no cluster")?.remove("extensions");
            access
        };
        let cases: [(&str, Option<Value>, &str, &str); 13] = [
            ("missing", None, "ClusterProfileNotFound", "ClusterProfile fleet-system/missing does not exist"),
            ("no-providers", Some(json!([])), "ClusterProfileUnavailable", "has no status.accessProviders"),
            (
                "unknown-provider",
                Some(offering(fleet, "google")),
                "ClusterProfileUnavailable",
                "offers the access providers google",
            ),
            ("plugin-absent", Some(offering(fleet, "absent")), "AccessProviderFailed", "can't start: No such file"),
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
                "printed an invalid ExecCredential",
            ),
            (
                "plugin-hangs",
                Some(offering(fleet, "hangs")),
                "AccessProviderFailed",
                "did not answer within 10s and was killed",
            ),
            ("unreachable", Some(dead), "RemoteClusterUnreachable", "is unreachable"),
            (
                "documented",
                Some(documented),
                "RemoteClusterUnreachable",
                "its ClusterProfile has no certificate-authority-data",
            ),
            (
                "nameless",
                Some(nameless),
                "AccessProviderFailed",
                "has no extension client.authentication.k8s.io/exec, with which many plugins find the credential",
            ),
            ("stranger", Some(stranger), "RemoteClusterUnreachable", "certificate"),
            ("broken-authority", Some(broken), "RemoteClientCreationFailed", "certificate"),
            (
                "unauthorized",
                Some(product::access(&fleet.spokes[2], "spoke-1")),
                "RemoteClusterUnauthorized",
                "refused the credential",
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
        has_condition(
            hub,
            &asking("unhealthy"),
            "TargetClusterResolved",
            "ClusterProfileNotReady",
            "ControlPlaneHealthy=False: set to False by a test",
        )
        .await?;
        for (name, _, reason, part) in &cases {
            has_condition(hub, &asking(name), "TargetClusterResolved", reason, part)
                .await
                .map_err(|e| format!("{name}: {e}"))?;
            // Ready repeats the reason, and the other conditions don't claim success.
            let reported = status(hub, &asking(name), wait::LIMIT, "present", |_| true).await?;
            assert_eq!(condition(&reported, "Ready").and_then(|c| c.reason.as_deref()), Some(*reason), "{name}");
            let claims = |condition: &Condition| match condition.type_.as_str() {
                "VersionMigrationEligible" => false,
                "Stalled" => condition.reason.as_deref() != Some(*reason),
                _ => condition.status == "True",
            };
            assert!(!reported.conditions.iter().any(claims), "{name}: {reported:#?}");
        }
        // Each failure is in an event, too.
        let all = Api::<Event>::namespaced(hub.client(), "failures");
        let about = |events: &[Event], name: &str, reason: &str| {
            let about = |e: &&Event| e.involved_object.name.as_deref() == Some(name);
            events.iter().filter(about).any(|e| e.reason.as_deref() == Some(reason))
        };
        let complete = |events: &[Event]| cases.iter().all(|(name, _, reason, _)| about(events, name, reason));
        wait::until_all(&all, "", wait::LIMIT, "an event about each failure", complete).await?;
        // No credential is published, regardless of what a plugin prints.
        let output = hub.kubectl(&["get", "knativeeventing,events", "-n", "failures", "-o", "yaml"], "").await?;
        let log = fleet.product.operator.process.log();
        assert!(!output.contains("canary-token") && !log.contains("canary-token"));
        // The log has what the plugin says, also before its last line.
        assert!(log.contains("starting no secret for this cluster"), "{log}");
        // The failures cause occasional checks only, no hot loop.
        let passes = |log: &str| log.matches("\"reason\":\"AccessProviderFailed\"").count();
        assert!(passes(&fleet.product.operator.process.log()) <= 2 * cases.len(), "events repeat");
        // Without an installation, a deletion has nothing to wait for.
        for (name, ..) in &cases {
            delete(hub, &asking(name)).await?;
        }
        delete(hub, &asking("unhealthy")).await
    });
}

#[test]
fn operator_recovers_when_cause_is_gone() {
    run(async {
        let fleet = fleet().await?;
        let hub = &fleet.hub;
        namespace(hub, "failures").await?;
        let resolved = |s: &knative_operator_shared::api::KnativeStatus| {
            condition(s, "TargetClusterResolved").is_some_and(|c| c.status == "True")
        };
        let healed = async |resource: &Value| {
            status(hub, resource, wait::LIMIT, "resolved", resolved).await?;
            delete(hub, resource).await
        };

        // A repaired plugin.
        script(&fleet.plugins.join("recovers"), "#!/bin/sh\necho 'not yet' >&2\nexit 1\n")?;
        product::profile(hub, "recovered", &offering(fleet, "recovers")).await?;
        let recovered = asking("recovered");
        apply(hub, &recovered).await?;
        has_condition(hub, &recovered, "TargetClusterResolved", "AccessProviderFailed", "not yet").await?;
        let official = tools::control_plane("secretreader-plugin")?;
        script(&fleet.plugins.join("recovers"), &format!("#!/bin/sh\nexec {}\n", official.display()))?;
        healed(&recovered).await?;

        // A profile that is created later, becomes unhealthy and healthy again, and moves to a
        // working address.
        let late = asking("late");
        apply(hub, &late).await?;
        has_condition(hub, &late, "TargetClusterResolved", "ClusterProfileNotFound", "late").await?;
        let mut access = product::access(&fleet.spokes[2], "spoke-2");
        let right = access.clone();
        access[0]["cluster"]["server"] = json!(format!("https://{}:6444", fleet.spokes[2].subnet().address(3)));
        product::profile(hub, "late", &access).await?;
        has_condition(hub, &late, "TargetClusterResolved", "RemoteClusterUnreachable", "is unreachable").await?;
        product::status(hub, "late", "False", &right).await?;
        has_condition(hub, &late, "TargetClusterResolved", "ClusterProfileNotReady", "ControlPlaneHealthy=False")
            .await?;
        product::status(hub, "late", "True", &right).await?;
        healed(&late).await
    });
}
