//! The gates of a fleet's stages. The operator makes requests of them, so it refuses what is not
//! valid, too.

use std::collections::HashSet;

use serde_json::Value;

use super::parse::parse_with_path;
use super::rule::{Example, Rule, Severity, Violation};
use k8s_openapi::api::batch::v1::JobSpec;
use knative_operator_shared::api::fleet::{EventGate, Gate, HttpGate, JobGate};
use knative_operator_shared::api::{Kind, KnativeFleetSpec};
use knative_operator_shared::syntax;

/// Gates.
pub static GATE: Rule = Rule {
    id: "fleet-gate",
    severity: Severity::Error,
    requirement: "The gates of a stage of a KnativeFleet have different names, and each has one of `http`, `event` and `job`, with valid names, paths and numbers, and a Job with containers that is not restarted always.",
    valid: Example::fleet(
        r#"{"placement": {"clusterSelector": {}, "namespaces": ["rules-fleet"]}, "serving": {"spec": {"version": "1.22"}}, "rollout": {"stages": [{"name": "all", "gates": [{"name": "answers", "http": {"service": {"namespace": "knative-serving", "name": "kourier"}, "host": "hello.default.example.com"}}]}]}}"#,
    ),
    invalid: Example::fleet(
        r#"{"placement": {"clusterSelector": {}, "namespaces": ["rules-fleet"]}, "serving": {"spec": {"version": "1.22"}}, "rollout": {"stages": [{"name": "all", "gates": [{"name": "answers"}]}]}}"#,
    ),
};

/// Maximum number of gates of a stage.
const MAX_GATES: usize = 16;
/// Seconds of a day.
const DAY: i32 = 86_400;
/// Maximum time of a request or an event, in seconds.
const MAX_REQUEST: i32 = 600;

pub fn check(spec: &KnativeFleetSpec, violations: &mut Vec<Violation>) {
    for (index, stage) in spec.rollout.stages.iter().enumerate() {
        let within = format!("spec.rollout.stages[{index}].gates");
        if stage.gates.len() > MAX_GATES {
            let message = format!("has {} gates, more than {MAX_GATES}", stage.gates.len());
            violations.push(GATE.at(within.clone(), message, "remove some, or ask more with a Job"));
        }
        // Jobs get it in an environment variable, which commands and URLs may contain.
        let fault = syntax::label(&stage.name).filter(|_| !stage.gates.is_empty());
        if let Some(fault) = fault {
            let message = format!("\"{}\" {fault}, since the stage has gates", stage.name);
            violations.push(GATE.at(format!("spec.rollout.stages[{index}].name"), message, "correct it"));
        }
        let mut names = HashSet::new();
        for (index, gate) in stage.gates.iter().enumerate() {
            let field = format!("{within}[{index}]");
            if !names.insert(&gate.name) {
                let message = format!("\"{}\" is the name of an earlier gate, too", gate.name);
                violations.push(GATE.at(format!("{field}.name"), message, "choose another name"));
            }
            Gates { field: &field, violations }.check(gate);
        }
    }
}

/// Checks what is at a field.
struct Gates<'v> {
    field: &'v str,
    violations: &'v mut Vec<Violation>,
}

impl Gates<'_> {
    fn refuse(&mut self, below: &str, message: impl Into<String>, fix: &str) {
        self.violations.push(GATE.at(format!("{}{below}", self.field), message, fix));
    }

    /// Refuses `text` if it violates the `requirement`.
    fn require(&mut self, below: &str, text: &str, requirement: Option<&'static str>) {
        if let Some(requirement) = requirement {
            self.refuse(below, format!("\"{text}\" {requirement}"), "correct it");
        }
    }

    fn range(&mut self, below: &str, number: Option<i32>, least: i32, most: i32) {
        if let Some(number) = number.filter(|number| !(least..=most).contains(number)) {
            self.refuse(below, format!("{number} is not a number from {least} to {most}"), "set it to one");
        }
    }

    fn check(&mut self, gate: &Gate) {
        self.require(".name", &gate.name, syntax::label(&gate.name));
        let kinds = [gate.http.is_some(), gate.event.is_some(), gate.job.is_some()];
        match kinds.into_iter().filter(|is| *is).count() {
            0 => self.refuse("", "none of http, event and job is set", "set one"),
            1 => {}
            _ => self.refuse("", "more than one of http, event and job are set", "make them gates of their own"),
        }
        self.range(".count", gate.count, 1, 1000);
        self.range(".failureLimit", gate.failure_limit, 0, 1000);
        self.range(".intervalSeconds", gate.interval_seconds, 1, DAY);
        self.range(".timeoutSeconds", gate.timeout_seconds, 1, if gate.job.is_some() { DAY } else { MAX_REQUEST });
        if let Some(http) = &gate.http {
            self.http(".http", http);
        }
        if let Some(event) = &gate.event {
            self.event(event);
        }
        if let Some(job) = &gate.job {
            self.job(job);
        }
    }

    fn http(&mut self, below: &str, http: &HttpGate) {
        let service = &http.service;
        self.require(&format!("{below}.service.namespace"), &service.namespace, syntax::label(&service.namespace));
        self.require(&format!("{below}.service.name"), &service.name, syntax::label(&service.name));
        self.range(&format!("{below}.service.port"), service.port, 1, 65_535);
        if let Some(host) = &http.host {
            let (name, port) = host.split_once(':').unwrap_or((host, "80"));
            let fault = syntax::subdomain(name)
                .or_else(|| port.parse::<u16>().is_err().then_some("must have a number as the port"));
            self.require(&format!("{below}.host"), host, fault);
        }
        self.require(&format!("{below}.path"), http.path(), path(http.path()));
        self.range(&format!("{below}.expectedStatus"), http.expected_status, 200, 599);
        self.range(&format!("{below}.maxLatencyMilliseconds"), http.max_latency_milliseconds, 1, DAY * 1000);
        if http.expected_body.as_ref().is_some_and(|text| text.is_empty() || text.len() > 1024) {
            self.refuse(&format!("{below}.expectedBody"), "must have 1 to 1024 bytes", "correct it");
        }
    }

    fn event(&mut self, event: &EventGate) {
        let broker = &event.broker;
        self.require(".event.broker.namespace", &broker.namespace, syntax::label(&broker.namespace));
        self.require(".event.broker.name", &broker.name, syntax::subdomain(&broker.name));
        if let Some(type_) = &event.type_ {
            let is_valid = !type_.is_empty() && type_.len() <= 253 && type_.bytes().all(|byte| byte.is_ascii_graphic());
            let fault = (!is_valid).then_some("must have 1 to 253 letters, digits and punctuation characters");
            self.require(".event.type", type_, fault);
        }
        self.http(".event.reply", &event.reply);
    }

    fn job(&mut self, job: &JobGate) {
        self.require(".job.namespace", &job.namespace, syntax::label(&job.namespace));
        let value = Value::Object(job.spec.clone());
        let spec = match parse_with_path::<JobSpec>(&value, &format!("{}.job.spec.", self.field), Kind::Fleet) {
            Ok(spec) => spec,
            Err(violation) => return self.violations.push(violation),
        };
        let pod = spec.template.spec.unwrap_or_default();
        if pod.containers.is_empty() {
            self.refuse(".job.spec.template.spec.containers", "the Job has no container", "add one");
        }
        if !matches!(pod.restart_policy.as_deref(), Some("Never" | "OnFailure")) {
            let field = ".job.spec.template.spec.restartPolicy";
            self.refuse(field, "a Job needs Never or OnFailure", "set it to Never");
        }
    }
}

/// What is wrong with the path of a request, if it is no path below the Service.
fn path(text: &str) -> Option<&'static str> {
    let plain = text.split(['?', '#']).next().unwrap_or_default().to_ascii_lowercase().replace("%2e", ".");
    // A proxy in front of the API server may decode them.
    let hides = ["%2f", "%5c", "%25"].iter().any(|code| plain.contains(code));
    let is_visible = text.bytes().all(|byte| byte.is_ascii_graphic() && !b"#\\\"<>^`{|}".contains(&byte));
    let climbs = plain.split(['/', '\\']).any(|segment| matches!(segment, "." | ".."));
    let is_valid = text.starts_with('/') && text.len() <= 2048 && is_visible && !climbs && !hides;
    (!is_valid)
        .then_some("must begin with '/', have no '.' or '..' as a segment and no encoded '/' or '%', and percent-encode special characters")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn violations(gate: &Value) -> Vec<String> {
        let spec =
            json!({"placement": {"clusterSelector": {}}, "rollout": {"stages": [{"name": "a", "gates": [gate]}]}});
        let mut violations = Vec::new();
        check(&serde_json::from_value(spec).unwrap(), &mut violations);
        violations.iter().map(ToString::to_string).collect()
    }

    fn http(patch: &Value) -> Value {
        let mut http = json!({"service": {"namespace": "kourier-system", "name": "kourier"}, "host": "a.b.example.com:80",
            "path": "/a/b?c=d&e=%20", "expectedStatus": 204, "expectedBody": "x", "maxLatencyMilliseconds": 500});
        json_patch::merge(&mut http, patch);
        http
    }

    fn job(pod: &Value) -> Value {
        json!({"name": "j", "job": {"namespace": "n", "spec": {"template": {"spec": pod}}}})
    }

    #[test]
    fn gate_has_one_kind_with_valid_fields() {
        let containers = json!([{"name": "c", "image": "i", "command": ["true"]}]);
        let event = json!({"broker": {"namespace": "n", "name": "default"}, "reply": http(&json!({}))});
        for gate in [
            json!({"name": "a", "http": http(&json!({})), "count": 3, "failureLimit": 1, "intervalSeconds": 1, "timeoutSeconds": 60}),
            json!({"name": "e", "event": event}),
            job(&json!({"containers": containers, "restartPolicy": "Never"})),
        ] {
            assert!(violations(&gate).is_empty(), "{:?}", violations(&gate));
        }
        let of = |patch: Value| json!({"name": "a", "http": http(&patch)});
        let within = "spec.rollout.stages[0].gates[0]";
        for (gate, expected) in [
            (json!({"name": "A", "http": http(&json!({}))}), ".name: \"A\" must consist"),
            (json!({"name": "a"}), ": none of http"),
            (json!({"name": "a", "http": http(&json!({})), "event": event}), ": more than one"),
            (json!({"name": "a", "http": http(&json!({})), "count": 0}), ".count: 0 is not a number from 1 to 1000"),
            (json!({"name": "a", "http": http(&json!({})), "failureLimit": -1}), ".failureLimit: -1"),
            (json!({"name": "a", "http": http(&json!({})), "timeoutSeconds": 0}), ".timeoutSeconds: 0"),
            (of(json!({"service": {"name": "a/../b"}})), ".http.service.name: "),
            (of(json!({"service": {"port": 0}})), ".http.service.port: 0"),
            (of(json!({"host": "a b"})), ".http.host: "),
            (of(json!({"host": "a:b"})), ".http.host: "),
            (of(json!({"path": "a"})), ".http.path: "),
            (of(json!({"path": "/a/%2E./b"})), ".http.path: "),
            (of(json!({"path": "/a b"})), ".http.path: "),
            (of(json!({"path": "/..%2f..%2Fapi"})), ".http.path: "),
            (json!({"name": "a", "http": http(&json!({})), "timeoutSeconds": 601}), ".timeoutSeconds: 601"),
            (of(json!({"expectedStatus": 101})), ".http.expectedStatus: 101"),
            (of(json!({"expectedBody": ""})), ".http.expectedBody: "),
            (
                json!({"name": "e", "event": {"broker": {"namespace": "n", "name": "x/y"}, "reply": http(&json!({}))}}),
                ".event.broker.name: ",
            ),
            (job(&json!({"restartPolicy": "Never"})), ".job.spec.template.spec.containers: the Job has no container"),
            (job(&json!({"containers": containers})), ".job.spec.template.spec.restartPolicy: a Job needs"),
            (job(&json!({"containers": "x"})), ".job.spec.template.spec.containers: "),
        ] {
            let violations = violations(&gate);
            let expected = format!("{within}{expected}");
            assert!(violations.len() == 1 && violations[0].contains(&expected), "{expected}: {violations:?}");
        }
    }
}
