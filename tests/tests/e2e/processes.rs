//! The processes: errors in flags, and leader election.

use std::path::Path;
use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::Lease;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::process::Process;
use knative_operator_tests::{Result, tools, wait};
use kube::Api;
use rustix::process::Signal;

use crate::support::{logged, run};

fn operator(dir: &Path, name: &str, address: &str, kubeconfig: &Path, arguments: &[&str]) -> Result<Process> {
    let environment = [
        ("KUBECONFIG", kubeconfig.display().to_string()),
        ("BIND_ADDRESS", address.to_owned()),
        ("POD_NAME", name.to_owned()),
        ("SYSTEM_NAMESPACE", "default".to_owned()),
    ];
    let environment = environment.map(|(k, v)| (k.to_owned(), v));
    let arguments: Vec<String> = arguments.iter().map(|a| (*a).to_owned()).collect();
    Process::start(name, dir, &tools::binary("knative-operator")?, &arguments, &environment, Duration::from_secs(10))
}

#[test]
fn invalid_provider_file_stops_operator_at_start() {
    run(async {
        let dir = tempfile::tempdir()?;
        let broken = dir.path().join("broken.json");
        std::fs::write(&broken, "providers: []")?;
        for (name, file, expected) in
            [("missing", dir.path().join("missing.json"), "cannot read"), ("broken", broken, "is not a provider file")]
        {
            let started = Instant::now();
            let mut process = operator(
                dir.path(),
                name,
                "127.0.0.1",
                Path::new("/nowhere"),
                &["--clusterprofile-provider-file", &file.display().to_string()],
            )?;
            let code = tokio::task::spawn_blocking(move || (process.wait().unwrap(), process)).await?;
            let (code, process) = code;
            let log = process.log();
            assert_eq!(code, 1, "{log}");
            assert!(
                log.contains("--clusterprofile-provider-file")
                    && log.contains(expected)
                    && log.contains(&file.display().to_string()),
                "{log}"
            );
            assert!(started.elapsed() < wait::LIMIT);
        }
        Ok(())
    });
}

#[test]
fn one_of_two_operators_leads_and_other_takes_over() {
    run(async {
        let cluster = Cluster::spoke("lease").await?;
        for component in knative_operator_shared::api::Component::ALL {
            let crd = knative_operator_shared::crd::definition(component);
            cluster.apply(&crd).await?;
        }
        let leases = Api::<Lease>::namespaced(cluster.client(), "default");
        let holder =
            |lease: Option<&Lease>| lease.and_then(|l| l.spec.as_ref()?.holder_identity.clone()).unwrap_or_default();
        let start = |name: &str, host: u8| {
            operator(
                cluster.dir(),
                name,
                &cluster.subnet().address(host).to_string(),
                &cluster.kubeconfig(),
                &["--log-format=plain"],
            )
        };
        let (one, two) = (start("one", 64)?, start("two", 65)?);
        let lease =
            wait::until(&leases, "knative-operator", wait::LIMIT, "acquired", |l| !holder(l).is_empty()).await?;
        let first = holder(lease.as_ref());
        let (mut leader, other) = if first == "one" { (one, two) } else { (two, one) };
        // It knows a moment after the API server: one that is suspended before has lost nothing.
        logged(&leader, "leading").await?;
        assert!(!other.log().contains("leading"), "{}", other.log());

        // Suspended past the expiry of its Lease, the leader loses it and the other leads; resumed,
        // the first one exits.
        leader.signal(Signal::STOP)?;
        // Documents say 15 s, the rest is for a loaded machine.
        let taken = wait::until(&leases, "knative-operator", wait::LIMIT, "taken over", |l| {
            !holder(l).is_empty() && holder(l) != first
        })
        .await?;
        assert_eq!(taken.and_then(|l| l.spec?.lease_transitions), Some(1));
        leader.signal(Signal::CONT)?;
        let (code, leader) = tokio::task::spawn_blocking(move || (leader.wait().unwrap(), leader)).await?;
        assert_eq!(code, 1, "{}", leader.log());
        assert!(leader.log().contains("lost the Lease"), "{}", leader.log());

        // When it stops, the second one releases the Lease.
        drop(other);
        wait::until(&leases, "knative-operator", wait::LIMIT, "given back", |l| holder(l).is_empty()).await?;
        Ok(())
    });
}
