//! Checks all conditions, events and log lines that the end-to-end tests produced: no Rust debug
//! forms, no repeated sentences, user agents and field managers in all requests.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic)] // these are tests

use std::collections::{BTreeMap, HashSet};

use knative_operator_tests::texts;
use serde_json::Value;

/// Minimum length of a repeated sentence: shorter texts are names.
const SENTENCE: usize = 24;

/// The fault in `text`, if any.
fn fault(text: &str) -> Option<String> {
    for debug in ["Some(", "None,", "Error {", "ErrorResponse", "Status {", "\\\""] {
        if text.contains(debug) {
            return Some(format!("contains {debug}"));
        }
    }
    // Items of a list may share parts; but no clause occurs twice, and no cause twice in a clause.
    let mut clauses = HashSet::new();
    for clause in text.split(['\n', ';']).flat_map(|part| part.split(". ")).map(str::trim).filter(|c| is_sentence(c)) {
        let mut causes = HashSet::new();
        let again = clause.split(": ").map(str::trim).find(|cause| is_sentence(cause) && !causes.insert(*cause));
        if let Some(twice) = again.or((!clauses.insert(clause)).then_some(clause)) {
            return Some(format!("repeats: {twice}"));
        }
    }
    None
}

/// Whether `text` is more than a name.
fn is_sentence(text: &str) -> bool {
    text.len() >= SENTENCE && text.contains(' ')
}

/// All strings in a value.
fn strings<'a>(value: &'a Value, all: &mut Vec<&'a str>) {
    match value {
        Value::String(text) => all.push(text),
        Value::Array(values) => values.iter().for_each(|v| strings(v, all)),
        Value::Object(values) => values.values().for_each(|v| strings(v, all)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The texts in a line: of a request in an audit log, or of a process' own log.
fn read(line: &str, audit: bool) -> Vec<(&'static str, String)> {
    let Ok(value) = serde_json::from_str::<Value>(line) else {
        return if audit { Vec::new() } else { vec![("log", line.to_owned())] };
    };
    if !audit {
        // Log lines of libraries are not the project's.
        let ours = value["target"].as_str().is_some_and(|target| target.starts_with("knative_operator"));
        if !ours && (value["level"] == "TRACE" || value["level"] == "DEBUG") {
            return Vec::new();
        }
        let mut all = Vec::new();
        strings(&value, &mut all);
        return all.into_iter().map(|text| ("log", text.to_owned())).collect();
    }
    let by_us = value["user"]["username"]
        .as_str()
        .is_some_and(|user| user.starts_with("system:serviceaccount:knative-operator:"));
    if !by_us {
        return Vec::new();
    }
    let body = &value["requestObject"];
    let conditions = body["status"]["conditions"].as_array().into_iter().flatten();
    let messages = conditions.filter_map(|c| c["message"].as_str()).map(|message| ("condition", message.to_owned()));
    messages.chain(body["note"].as_str().map(|note| ("event", note.to_owned()))).collect()
}

#[test]
fn conditions_events_and_logs_are_plain_text() {
    let (mut counts, mut faults, mut printed) =
        (BTreeMap::<&str, usize>::new(), BTreeMap::<String, (usize, String)>::new(), HashSet::new());
    let found = texts::lines(|line, audit| {
        for (kind, text) in read(line, audit) {
            *counts.entry(kind).or_default() += 1;
            if kind == "condition" && text.len() > 1024 {
                faults.entry("a condition is longer than 1,024 bytes".to_owned()).or_insert_with(|| (0, text)).0 += 1;
            } else if printed.insert(text.clone())
                && let Some(fault) = fault(&text)
            {
                faults.entry(format!("{kind} {fault}")).or_insert_with(|| (0, text)).0 += 1;
            }
        }
    });
    eprintln!("read {counts:?}");
    let lines: Vec<_> = faults.iter().map(|(fault, (times, text))| format!("{times} × {fault}\n    {text}")).collect();
    assert!(lines.is_empty(), "{} faults:\n{}", lines.len(), lines.join("\n"));
    for kind in ["condition", "event", "log"] {
        assert!(!found || counts.get(kind).is_some_and(|count| *count > 20), "too few of {kind}: {counts:?}");
    }
}

/// Accounts of the processes on hubs and spokes, with the start of their user agents.
const ACCOUNTS: [(&str, &str); 3] = [
    ("system:serviceaccount:knative-operator:knative-operator", "knative-operator/"),
    ("system:serviceaccount:knative-operator:operator-webhook", "knative-operator-webhook/"),
    ("system:serviceaccount:kube-system:knative-hub", "knative-operator/"),
];

/// The account of subcommands in the tests.
const COMMAND: (&str, &str) = ("admin", "knative-operator/");

#[test]
fn requests_have_a_user_agent_and_writes_a_field_manager() {
    let (mut counts, mut faults) = (BTreeMap::<&str, usize>::new(), BTreeMap::<String, String>::new());
    let found = texts::lines(|line, audit| {
        let Some(request) = audit.then(|| serde_json::from_str::<Value>(line).ok()).flatten() else { return };
        let user = request["user"]["username"].as_str().unwrap_or_default();
        let text = |field: &str| request[field].as_str().unwrap_or_default();
        let (agent, uri, verb) = (text("userAgent"), text("requestURI"), text("verb"));
        // Subcommands such as diff use the account of their user.
        let account = ACCOUNTS.iter().find(|(account, _)| *account == user);
        let Some((user, program)) = account.or(agent.starts_with(COMMAND.1).then_some(&COMMAND)) else { return };
        // The official plugins read Secrets with the operator's account.
        if agent.contains("plugin") {
            return;
        }
        *counts.entry(user).or_default() += 1;
        let version = format!("{program}{} (", env!("CARGO_PKG_VERSION"));
        if !agent.starts_with(&version) {
            faults.entry(format!("{user}: user agent {agent:?}")).or_insert_with(|| format!("{verb} {uri}"));
        }
        let manager = format!("fieldManager={}", program.trim_end_matches('/'));
        let resource = request["objectRef"]["resource"].as_str().unwrap_or_default();
        // Reviews are not stored.
        let is_write = ["create", "update", "patch"].contains(&verb) && !resource.ends_with("reviews");
        if is_write && !uri.contains(&manager) {
            faults.entry(format!("{user}: no field manager in {verb} of {resource}")).or_insert_with(|| uri.to_owned());
        }
    });
    eprintln!("requests {counts:?}");
    assert!(faults.is_empty(), "{faults:#?}");
    assert!(!found || counts.len() == ACCOUNTS.len() + 1, "{counts:?}");
}

#[test]
fn debug_forms_and_repetitions_are_faults() {
    for bad in [
        "ApiError: Some(ListMeta { continue_: None })",
        "x: Error { code: 403 }",
        r#"invalid: \"a\" is not b"#,
        "deployments are forbidden by policy here: deployments are forbidden by policy here",
        "deployments are forbidden by policy here; deployments are forbidden by policy here",
    ] {
        assert!(fault(bad).is_some(), "{bad}");
    }
    for good in [
        "Waiting on deployments: activator (0 of 1 available), autoscaler (0 of 1 available)",
        "namespaces \"a\" not found; namespaces \"b\" not found",
    ] {
        assert_eq!(fault(good), None, "{good}");
    }
}
