//! Runs the commands of `docs/user/fleet.md` in order, against a hub and three spokes.

use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::product::{self, Product};
use knative_operator_tests::releases;
use knative_operator_tests::remaining::objects;

use crate::document::{Shell, document};
use crate::support::{nothing_left, run};

#[test]
fn commands_of_the_fleet_guide_work() {
    run(async {
        let (hub, a, b, c) = tokio::try_join!(
            Cluster::hub("fleet-guide"),
            Cluster::spoke("fleet-guide-1"),
            Cluster::spoke("fleet-guide-2"),
            Cluster::spoke("fleet-guide-3")
        )?;
        let (releases, plugins) = (releases::small(), tempfile::tempdir()?);
        let mut product = Some(Product::install(&hub, &releases, product::values(&[]), plugins.path()).await?);
        let spokes = [&a, &b, &c];
        let mut before = Vec::new();
        for (number, spoke) in spokes.into_iter().enumerate() {
            product::register(&hub, spoke, &format!("spoke-{}", number + 1)).await?;
            before.push(objects(&spoke.client()).await?);
        }
        let mut shell = Shell::new(&[("hub", &hub)], &product::values(&[]))?;
        let minor = releases.serving.rsplit_once('.').map_or("", |(minor, _)| minor);
        let mut output = Vec::new();
        for block in document("docs/user/fleet.md")? {
            let script = block.script.replace("version: \"1.22\"", &format!("version: \"{minor}\""));
            let started = async || {
                drop(product.take());
                let own = [("registry.example/own-plugins".to_owned(), plugins.path().to_owned())];
                product = Some(Product::start(&hub, &releases, own.into()).await?);
                Ok(())
            };
            let printed = shell.run(&script, started).await?;
            eprintln!("## {}\n{script}\n{printed}", block.heading);
            output.push((block.heading, printed));
        }
        let printed = |heading: &str| -> String {
            output.iter().filter(|(other, _)| other == heading).map(|(_, text)| text.as_str()).collect()
        };
        for (heading, part) in [
            ("Create a fleet", "canary   fleet-system/spoke-1   KnativeServing   create\n"),
            ("Create a fleet", "3 create, 0 unchanged"),
            ("Create a fleet", "AwaitingApproval"),
            ("Create a fleet", "NAME      CLUSTERS   UPDATED   READY"),
            ("Create a fleet", "3 of 3 clusters updated"),
            ("Roll out a change", "spec.config.features.kubernetes.podspec-affinity: \"enabled\" is added"),
            ("Roll out a change", "3 update, 0 unchanged"),
            ("Roll back", "current, update"),
            ("Roll back", "\nstage "),
            ("Change some clusters only", "3 of 3 clusters updated"),
            ("Clusters that join or leave", "Warning: spec.placement.clusterSelector: selects no ClusterProfile"),
            ("Read the status", "StageComplete"),
            ("Delete a fleet", "No resources found"),
        ] {
            assert!(printed(heading).contains(part), "{heading}: {part}: {}", printed(heading));
        }
        for (spoke, before) in spokes.into_iter().zip(&before) {
            nothing_left(spoke, before).await?;
        }
        Ok(())
    });
}
