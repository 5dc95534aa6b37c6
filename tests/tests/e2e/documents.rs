//! Runs the commands in README.md, other documents and the chart's NOTES.txt. `guide` runs
//! those of docs/user/multicluster.md, `migration` those of docs/user/migration.md. tests/lint.sh
//! refuses a block that is in no document named here and has no reason.

use knative_operator_shared::api::Component;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::product::{self, Product};
use knative_operator_tests::releases::{self, Releases};
use knative_operator_tests::{Result, tools};
use serde_json::json;

use crate::document::{Block, Shell, document};
use crate::support::{ready, resource, run};

/// The version that the documents install, as far as `releases` has one.
pub fn minor(releases: &Releases) -> &str {
    releases.serving.rsplit_once('.').map_or("", |(minor, _)| minor)
}

/// Runs `blocks` in order and starts what they install.
async fn follow(
    shell: &mut Shell,
    hub: &Cluster,
    releases: &Releases,
    product: &mut Option<Product>,
    blocks: &[Block],
) -> Result<()> {
    for block in blocks {
        let script = block.script.replace("version: \"1.22\"", &format!("version: \"{}\"", minor(releases)));
        let started = async || {
            *product = None;
            *product = Some(Product::start(hub, releases, [].into()).await?);
            Ok(())
        };
        shell.run(&script, started).await?;
    }
    Ok(())
}

#[test]
fn commands_of_the_readme_and_of_install_upgrade_and_release_work() {
    run(async {
        let (hub, releases) = (Cluster::hub("readme").await?, releases::small());
        let mut shell = Shell::new(&[("hub", &hub)], &product::bundled(&hub))?;
        let folder = shell.folder();
        let readme = document("README.md")?;
        let install = readme
            .iter()
            .find(|block| block.script.contains("kind: KnativeServing"))
            .ok_or("README.md installs nothing")?;
        // The files that a reader has.
        let (_, example) = install
            .script
            .split_once("<<EOF\n")
            .and_then(|(_, rest)| Some(("", rest.split_once("\nEOF")?.0)))
            .ok_or("no example")?;
        std::fs::write(
            folder.join("serving.yaml"),
            example.replace("version: \"1.22\"", &format!("version: \"{}\"", minor(&releases))),
        )?;
        std::fs::write(folder.join("values.yaml"), "")?;
        std::os::unix::fs::symlink(releases.dir.canonicalize()?, folder.join("bundle"))?;
        std::fs::copy(folder.join("kubeconfig"), folder.join("spoke.kubeconfig"))?;

        let mut product = None;
        follow(&mut shell, &hub, &releases, &mut product, &readme).await?;
        ready(&hub, &resource(Component::Serving, "knative-serving", "knative-serving", None, json!({}))).await?;
        for blocks in [
            document("docs/user/install.md")?,
            document("docs/operate/air-gap.md")?,
            document("docs/operate/upgrade.md")?,
            document("docs/develop/release.md")?,
        ] {
            follow(&mut shell, &hub, &releases, &mut product, &blocks).await?;
        }
        assert!(product.is_some(), "nothing was installed");
        Ok(())
    });
}

#[test]
fn commands_of_the_charts_notes_work() {
    run(async {
        let (hub, releases) = (Cluster::hub("notes").await?, releases::small());
        let mut shell = Shell::new(&[("hub", &hub)], &product::bundled(&hub))?;
        let mut product = None;
        let install =
            "helm install knative-operator charts/knative-operator --namespace knative-operator --create-namespace --wait".to_owned();
        let install = Block { script: install, heading: String::new(), not_run: None };
        follow(&mut shell, &hub, &releases, &mut product, &[install]).await?;
        let notes = hub.helm(&["get", "notes", "knative-operator", "-n", product::NAMESPACE]).await?;
        // Commands are indented by two spaces.
        let mut blocks = Vec::new();
        let template = std::fs::read_to_string(tools::project().join("charts/knative-operator/templates/NOTES.txt"))?;
        for part in notes.split("\n\n").filter(|part| part.starts_with("  ")) {
            // The template marks commands that can't run here, with the reason.
            let first = part.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
            if template
                .split_once("{{- /* not run: ")
                .is_some_and(|(_, rest)| rest.split("*/}}").nth(1).is_some_and(|next| next.trim().starts_with(&first)))
            {
                continue;
            }
            let script =
                part.lines().map(|line| line.strip_prefix("  ").unwrap_or(line)).collect::<Vec<_>>().join("\n");
            blocks.push(Block { script, heading: String::new(), not_run: None });
        }
        assert!(!blocks.is_empty(), "NOTES.txt has no commands: {notes}");
        follow(&mut shell, &hub, &releases, &mut product, &blocks).await
    });
}
