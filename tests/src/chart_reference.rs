//! Generates what the chart says about its values from the comments in `values.yaml`: descriptions
//! in `values.schema.json`, and the table in `README.md`.

use std::collections::HashMap;

use knative_operator_shared::yaml;
use serde_json::{Value, json};

use crate::package::REPOSITORY;
use crate::{Result, project};

/// Columns of a mapping that the schema has in one line.
const WIDTH: usize = 120;
/// The settings that explain those of the webhook.
const OPERATOR: &str = "knative_operator.knative_operator.";
const WEBHOOK: &str = "knative_operator.operator_webhook.";

/// The generated files: their paths in the project, and their content.
pub fn files() -> Result<[(&'static str, String); 2]> {
    let (path, readme) = ("charts/knative-operator/values.schema.json", "charts/knative-operator/README.md");
    let text = std::fs::read_to_string(project().join("charts/knative-operator/values.yaml"))?;
    let values = yaml::parse(&text)?;
    let mut schema: Value = serde_json::from_str(&std::fs::read_to_string(project().join(path))?)?;
    let comments = comments(&text);
    describe(&mut schema, "", &comments.iter().cloned().collect());
    let table = readme_text(&comments, &schema, &values);
    Ok([(path, format!("{}\n", pretty(&schema, 0))), (readme, table)])
}

/// The path of each value in `text` and the comment above it, in their order.
fn comments(text: &str) -> Vec<(String, String)> {
    let mut all = Vec::new();
    let mut parents: Vec<(usize, &str)> = Vec::new();
    let mut comment: Vec<&str> = Vec::new();
    for line in text.lines() {
        let content = line.trim_start();
        if let Some(words) = content.strip_prefix("# ") {
            // What is indented is an example.
            comment.extend((!words.starts_with(' ')).then_some(words));
            continue;
        }
        let is_word = |key: &&str| key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if let Some(key) = content.split_once(':').map(|(key, _)| key).filter(is_word) {
            let indent = line.len() - content.len();
            parents.retain(|(outer, _)| *outer < indent);
            parents.push((indent, key));
            let path: Vec<&str> = parents.iter().map(|(_, key)| *key).collect();
            all.push((path.join("."), comment.join(" ")));
        }
        comment.clear();
    }
    all
}

/// Sets the descriptions of the properties of `schema`, which is at `path`.
fn describe(schema: &mut Value, path: &str, comments: &HashMap<String, String>) {
    for (name, property) in schema.get_mut("properties").and_then(Value::as_object_mut).into_iter().flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        let own = |path: &str| comments.get(path).filter(|comment| !comment.is_empty());
        if let Some(comment) = own(&path).or_else(|| own(&path.replacen(WEBHOOK, OPERATOR, 1))) {
            property["description"] = json!(comment);
        }
        describe(property, &path, comments);
    }
}

/// `value` as JSON, with short mappings in one line.
fn pretty(value: &Value, indent: usize) -> String {
    let line = value.to_string();
    let Some(fields) = value.as_object().filter(|_| line.len() + indent > WIDTH) else { return line };
    let inner = indent + 2;
    let fields = fields.iter().map(|(key, value)| format!("{:inner$}{}: {}", "", json!(key), pretty(value, inner)));
    format!("{{\n{}\n{:indent$}}}", fields.collect::<Vec<_>>().join(",\n"), "")
}

/// The README, with a row for each value in `comments` that `schema` has.
fn readme_text(comments: &[(String, String)], schema: &Value, values: &Value) -> String {
    let mut text = format!(
        "# The chart of the Knative operator

<!-- `make generate` writes this file from values.yaml. -->

This chart installs an operator and an admission webhook, which install Knative Serving and Eventing
on this cluster or on many clusters. Start with the [README of the project]({REPOSITORY}#readme) and
[Install]({REPOSITORY}/blob/main/docs/user/install.md).

It needs Kubernetes 1.33 or later. `helm template` assumes the version of Kubernetes that Helm was
built for: before Helm 3.18, add `--kube-version=1.33`.

There is no `nameOverride` and no `fullnameOverride`: the Go operator's chart has neither, a cluster
has one operator, and permissions, the webhook's certificate and a takeover depend on the names.

## Values

| value | default | description |
|---|---|---|
"
    );
    text.extend(comments.iter().filter_map(|(path, _)| {
        let property = path.split('.').try_fold(schema, |schema, name| schema["properties"].get(name))?;
        let value = values.pointer(&format!("/{}", path.replace('.', "/")))?;
        // A group has no default of its own.
        let is_group = property["properties"].is_object() && *value != json!({});
        let default = if is_group { String::new() } else { format!("`{value}`") };
        let description = linked(property["description"].as_str().unwrap_or_default());
        Some(format!("| `{path}` | {default} | {description} |\n"))
    }));
    text
}

/// `text` as a cell of a table, with links to documents.
fn linked(text: &str) -> String {
    let word = |word: &str| match word.find(".md") {
        Some(end) if word.starts_with("docs/") => {
            let (path, rest) = word.split_at(end + ".md".len());
            format!("[{path}]({REPOSITORY}/blob/main/{path}){rest}")
        }
        _ => word.replace('|', "\\|"),
    };
    text.split(' ').map(word).collect::<Vec<_>>().join(" ")
}
