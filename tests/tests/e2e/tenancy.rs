//! Runs the commands of `docs/operate/multi-tenancy.md` on one hub, and compares what is permitted
//! and refused with the answers in the document. Only one of its clusters has a server: that of the
//! team that installs on its own.

use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::product::{self, Product};
use knative_operator_tests::{releases, tools};
use serde_json::json;

use crate::document::{Shell, document};
use crate::documents::minor;
use crate::support::{ready, run, serving};

/// How `audit` ends.
const WOULD_REFUSE: &str = "The webhook would refuse ";
/// How kubectl begins to report that something is refused.
const REFUSED: &str = "Error from server";

/// The answers that `text`, which is Markdown, has after the block `script`; empty if there are
/// none.
fn shown<'a>(text: &'a str, script: &str) -> Vec<&'a str> {
    let Some((_, rest)) = text.split_once(&format!("{script}\n```\n")) else { return Vec::new() };
    let answers = rest.trim_start().strip_prefix("```text\n").and_then(|rest| rest.split_once("```"));
    answers.map(|(answers, _)| answers.lines().collect()).unwrap_or_default()
}

/// Whether a line of output says that something is permitted or refused.
fn is_answer(line: &str) -> bool {
    let is_done = line.ends_with("(server dry run)") || line.ends_with(" patched");
    is_done || ["yes", "no", "true", "false"].contains(&line) || line.contains(REFUSED) || is_of_audit(line)
}

/// Whether it is about a resource in the output of `audit`.
fn is_of_audit(line: &str) -> bool {
    let starts =
        ["KnativeServing ", "KnativeEventing ", "KnativeFleet ", "  spec.", "    not permitted to ", WOULD_REFUSE];
    starts.iter().any(|start| line.starts_with(start))
}

/// Whether an answer says that something is refused.
fn is_refusal(answer: &str) -> bool {
    let is_listed = answer.strip_prefix(WOULD_REFUSE).is_some_and(|rest| !rest.starts_with("nothing"));
    ["no", "false"].contains(&answer) || answer.contains(REFUSED) || is_listed
}

/// Whether `line` is `pattern`, in which `…` stands for any text.
fn is_like(line: &str, pattern: &str) -> bool {
    let mut parts = pattern.split('…');
    let Some(mut rest) = parts.next().and_then(|first| line.strip_prefix(first)) else { return false };
    for part in parts {
        let Some((_, after)) = rest.split_once(part) else { return false };
        rest = after;
    }
    rest.is_empty() || pattern.ends_with('…')
}

#[test]
fn teams_can_do_what_the_document_says_and_nothing_else() {
    run(async {
        let (hub, spoke) = tokio::try_join!(Cluster::hub("tenancy"), Cluster::spoke("tenancy-a"))?;
        let (releases, plugins) = (releases::small(), tempfile::tempdir()?);
        let mut product = Some(Product::install(&hub, &releases, product::values(&[]), plugins.path()).await?);
        product::profile(&hub, "c-1", &json!([])).await?;
        let mut shell = Shell::new(&[("hub", &hub)], &product::values(&[]))?;
        // The credential of the team's cluster.
        spoke.kubectl(&["create", "serviceaccount", "knative-hub", "-n", "kube-system"], "").await?;
        let account = "--serviceaccount=kube-system:knative-hub";
        spoke.kubectl(&["create", "clusterrolebinding", "hub", "--clusterrole=cluster-admin", account], "").await?;
        let token = spoke.token("kube-system", "knative-hub", 24 * 3600).await?;
        let variables = format!("TOKEN={token} CA=authority SERVER={}\n", spoke.pod_endpoint().0);
        std::fs::write(shell.folder().join("variables"), variables)?;
        let text = std::fs::read_to_string(tools::project().join("docs/operate/multi-tenancy.md"))?;
        let (mut permitted, mut refused) = (0, 0);
        for block in document("docs/operate/multi-tenancy.md")? {
            let script = &block.script;
            let started = async || {
                drop(product.take());
                let own = [("registry.example/own-plugins".to_owned(), plugins.path().to_owned())];
                product = Some(Product::start(&hub, &releases, own.into()).await?);
                Ok(())
            };
            let runnable = script.replace("version: \"1.22\"", &format!("version: \"{}\"", minor(&releases)));
            let printed = shell.run(&runnable, started).await?;
            eprintln!("## {}\n{script}\n{}", block.heading, printed.replace(&token, "[hidden]"));
            let expected = shown(&text, script);
            // The shell does not end at a command with `!` that succeeds: its answer shows it. A
            // review succeeds, and its answer is `false`.
            let refusals = expected.iter().filter(|answer| is_refusal(answer)).count();
            let reviews = expected.iter().filter(|answer| **answer == "false").count();
            let marked = script.lines().filter(|line| line.starts_with("! ")).count();
            assert_eq!(marked + reviews, refusals, "commands with ! and their answers: {script}");
            let mut answers: Vec<&str> = printed.lines().filter(|line| is_answer(line)).collect();
            for pattern in &expected {
                let found = answers.iter().position(|line| is_like(line, pattern));
                let found = found.ok_or_else(|| format!("{script}\n\nnot answered: {pattern}\n\n{printed}"))?;
                answers.swap_remove(found);
            }
            assert!(answers.is_empty(), "{script}\n\nnot in the document: {answers:#?}");
            refused += refusals;
            permitted += expected.len() - refusals;
        }
        eprintln!("{permitted} permitted, {refused} refused");
        assert!(permitted > 13 && refused > 34, "{permitted} permitted, {refused} refused");

        // What was tried is not stored, but what an administrator created is.
        let stored =
            hub.kubectl(&["get", "knativeservings,knativeeventings,knativefleets", "-A", "-o", "name"], "").await?;
        let expected = ["knativeserving.operator.knative.dev/knative", "knativefleet.operator.knative.dev/staged"];
        assert_eq!(stored.lines().collect::<Vec<_>>(), expected);

        // The team installs on its cluster, with the Secret that the document binds.
        product::status_in(&hub, "team-a-clusters", "a-1", "True", &product::access(&spoke, "team-a-1")).await?;
        let mut own = serving("team-a", "knative", None, &releases);
        own["spec"]["clusterProfileRef"] = json!({"name": "a-1", "namespace": "team-a-clusters"});
        let ann = ["--as", "ann", "--as-group", "team-a"];
        hub.kubectl(&[&["apply", "-f", "-"][..], &ann].concat(), &own.to_string()).await?;
        ready(&hub, &own).await?;
        hub.kubectl(&[&["delete", "-f", "-", "--timeout=120s"][..], &ann].concat(), &own.to_string()).await.map(drop)
    });
}

#[test]
fn answers_of_a_document_are_compared_with_gaps() {
    let text = "```sh\na\n```\n\n```text\nyes\nno\n```\n\n```sh\nb\n```\n\nc\n";
    assert_eq!(shown(text, "a"), ["yes", "no"]);
    assert!(shown(text, "b").is_empty() && shown(text, "c").is_empty());
    for (line, pattern, expected) in [
        ("yes", "yes", true),
        ("yes - no", "yes", false),
        ("refused: a is not allowed; ask", "refused: … is not allowed; …", true),
        ("refused: a is allowed; ask", "refused: … is not allowed; …", false),
        ("refused: x in y", "refused: … in y", true),
        ("refused: x in y, z", "refused: … in y", false),
    ] {
        assert_eq!(is_like(line, pattern), expected, "{line}: {pattern}");
    }
}
