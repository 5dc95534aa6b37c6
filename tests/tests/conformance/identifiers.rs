//! The identifiers that users rely on: flags, metrics and their labels, condition types and
//! reasons, annotations and labels, rule identifiers, Helm values. A renamed identifier breaks
//! somebody's alerts, scripts or values file, so the snapshot changes only on purpose.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use knative_operator_tests::tools;
use serde_json::Value;

use super::operator;

/// The product's source files, without their unit tests and comments.
fn sources() -> Vec<String> {
    fn collect(folder: &Path, sources: &mut Vec<String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                collect(&path, sources);
            } else if path.extension().is_some_and(|e| e == "rs") && !path.ends_with("tests.rs") {
                let text = fs::read_to_string(path).unwrap();
                let code = text.split("#[cfg(test)]").next().unwrap();
                let lines: Vec<_> = code.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
                sources.push(lines.join("\n"));
            }
        }
    }
    let mut sources = Vec::new();
    for folder in knative_operator_tests::sources() {
        collect(&folder, &mut sources);
    }
    sources
}

/// The string literals of `source`.
fn literals(source: &str) -> impl Iterator<Item = &str> {
    source.lines().flat_map(|line| line.split('"').skip(1).step_by(2))
}

/// A word such as `ClusterProfileNotFound`.
fn is_camel_case(word: &str) -> bool {
    let count = |is: fn(&char) -> bool| word.chars().filter(is).count();
    word.starts_with(|c: char| c.is_ascii_uppercase())
        && word.chars().all(|c| c.is_ascii_alphabetic())
        && count(char::is_ascii_uppercase) > 1
        && count(char::is_ascii_lowercase) > 1
}

/// Reasons of events, as they are published.
fn event_reasons(source: &str) -> impl Iterator<Item = String> {
    let calls = source.split(".normal(").skip(1).chain(source.split(".warning(").skip(1));
    calls.filter_map(|call| Some(call.split('"').nth(1)?.to_owned())).filter(|reason| {
        reason.starts_with(|c: char| c.is_ascii_uppercase()) && reason.chars().all(|c| c.is_ascii_alphabetic())
    })
}

/// Names of metrics, as they are registered.
fn metrics(source: &str) -> impl Iterator<Item = String> {
    source.split("registry.register").skip(1).filter_map(|call| literals(call).next()).map(str::to_owned)
}

/// The labels of metrics: fields of the structures that derive `EncodeLabelSet`.
fn metric_labels(source: &str) -> impl Iterator<Item = String> {
    source.split("EncodeLabelSet)]").skip(1).map(|structure| {
        let fields = structure.split_once('{').unwrap().1.split_once('}').unwrap().0;
        let names = fields.lines().filter_map(|line| Some(line.trim().split_once(':')?.0));
        names.collect::<Vec<_>>().join(" ")
    })
}

/// `group`, `name`s below it, sorted.
fn section(group: &str, names: impl IntoIterator<Item = String>) -> String {
    let names: BTreeSet<_> = names.into_iter().collect();
    assert!(!names.is_empty(), "no {group} found: the extraction is wrong");
    format!("## {group}\n{}\n", names.into_iter().collect::<Vec<_>>().join("\n"))
}

/// The flags and environment variables in the help of `command`.
fn flags(name: &str, command: &mut Command) -> Vec<String> {
    let output = command.arg("--help").output().unwrap();
    assert!(output.status.success());
    let help = String::from_utf8(output.stdout).unwrap();
    let words = help.split(|c: char| !(c.is_ascii_alphanumeric() || "-_".contains(c)));
    let is_variable = |w: &str| w.contains('_') && w.chars().all(|c| c.is_ascii_uppercase() || c == '_');
    let options = words.filter(|w| (w.starts_with("--") && w.len() > 2) || is_variable(w));
    options.map(|option| format!("{name} {option}")).collect()
}

fn values(prefix: &str, value: &Value, keys: &mut Vec<String>) {
    for (key, value) in value.as_object().into_iter().flatten() {
        let path = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
        values(&path, value, keys);
        keys.push(path);
    }
}

#[test]
fn identifiers_that_users_rely_on_do_not_change() {
    let sources = sources();
    let all = || sources.iter().flat_map(|source| literals(source));
    let reasons = all().filter(|w| is_camel_case(w));
    let keys = all().filter(|w| {
        let key = w.strip_prefix("operator.knative.dev/").unwrap_or_default();
        !key.is_empty() && key.chars().all(|c| c.is_ascii_lowercase() || c == '-')
    });

    let mut options = Vec::new();
    let binary = tools::binary("knative-operator").unwrap();
    options.extend(flags("knative-operator", &mut Command::new(&binary)));
    for command in [
        "run",
        "render",
        "lint",
        "diff",
        "preflight",
        "check",
        "version",
        "versions",
        "images",
        "spoke-role",
        "audit",
        "rules",
        "crds",
    ] {
        options.extend(flags(&format!("knative-operator {command}"), Command::new(&binary).arg(command)));
    }
    let webhook = tools::binary("knative-operator-webhook").unwrap();
    options.extend(flags("knative-operator-webhook", &mut Command::new(webhook)));

    let rules = String::from_utf8(operator(&["rules"]).stdout).unwrap();
    let rules = rules.lines().filter_map(|line| line.strip_prefix("### "));

    let chart = fs::read_to_string(tools::project().join("charts/knative-operator/values.yaml")).unwrap();
    let mut chart_values = Vec::new();
    values("", &serde_saphyr::from_str(&chart).unwrap(), &mut chart_values);

    let identifiers = [
        section("flags and environment variables", options),
        section("metrics", sources.iter().flat_map(|s| metrics(s))),
        section("metric labels", sources.iter().flat_map(|s| metric_labels(s))),
        section("condition types, reasons and kinds", reasons.map(str::to_owned)),
        section("reasons of events", sources.iter().flat_map(|s| event_reasons(s))),
        section("annotations and labels", keys.map(str::to_owned)),
        section("rules", rules.map(str::to_owned)),
        section("Helm values", chart_values),
    ];
    insta::assert_snapshot!(identifiers.join("\n"));
}

/// A metric by its name in the source and in what Prometheus reads.
fn plain(metric: &str) -> String {
    let name = metric.split('{').next().unwrap_or_default();
    let name = name.strip_prefix("knative_operator_").unwrap_or(name);
    let name = name.strip_suffix("_total").unwrap_or(name);
    name.strip_suffix("_seconds").unwrap_or(name).to_owned()
}

#[test]
fn documents_list_all_metrics() {
    let page = fs::read_to_string(tools::project().join("docs/operate/metrics.md")).unwrap();
    let cells = page.lines().filter(|line| line.starts_with("| `")).filter_map(|row| row.split(" | ").next());
    let listed: BTreeSet<_> = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).map(plain).collect();
    let sources = sources();
    let registered: BTreeSet<_> = sources.iter().flat_map(|s| metrics(s)).map(|name| plain(&name)).collect();
    assert_eq!(registered, listed, "left: in the sources, right: in docs/operate/metrics.md");
}
