//! How Knative reads the values of its ConfigMaps (knative.dev/docs, "ConfigMaps"; the parsers in knative/serving, knative/eventing,
//! knative/networking and knative/pkg). Only keys that it refuses to misread are here.

use std::collections::BTreeMap;

use super::Problem;
use crate::api::Component;

/// How a value is read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// A duration of Go's: `1m30s`.
    Duration,
    /// `true` or `false`, as Go's `strconv.ParseBool` reads it.
    Boolean,
    /// A whole number of at least so much.
    Whole(i64),
    /// A number of at least so much.
    Number(f64),
    /// One of these, whatever their case.
    Word(&'static [&'static str]),
    /// A whole number, or `disabled`.
    WholeOrDisabled,
    /// A quantity, as Kubernetes has it.
    Quantity,
}

use Kind::{Boolean, Duration, Number, Quantity, Whole, WholeOrDisabled, Word};

/// Knative's features.
const FLAG: Kind = Word(&["enabled", "allowed", "disabled"]);
/// The features of Serving that are flags, beside those of pod specs.
const FEATURES: [&str; 7] = [
    "autodetect-http2",
    "multi-container",
    "multi-container-probing",
    "queueproxy.mount-podinfo",
    "queueproxy.resource-defaults",
    "tag-header-based-routing",
    "kubernetes.containerspec-addcapabilities",
];
const SWITCH: Kind = Word(&["enabled", "disabled"]);
const LEVEL: Kind = Word(&["debug", "info", "warn", "error", "dpanic", "panic", "fatal"]);

const SERVING: &[(&str, &str, Kind)] = &[
    ("autoscaler", "container-concurrency-target-percentage", Number(0.0)),
    ("autoscaler", "container-concurrency-target-default", Number(0.01)),
    ("autoscaler", "requests-per-second-target-default", Number(0.01)),
    ("autoscaler", "target-burst-capacity", Number(-1.0)),
    ("autoscaler", "stable-window", Duration),
    ("autoscaler", "panic-window-percentage", Number(1.0)),
    ("autoscaler", "panic-threshold-percentage", Number(110.0)),
    ("autoscaler", "max-scale-up-rate", Number(1.0)),
    ("autoscaler", "max-scale-down-rate", Number(1.0)),
    ("autoscaler", "enable-scale-to-zero", Boolean),
    ("autoscaler", "scale-to-zero-grace-period", Duration),
    ("autoscaler", "scale-to-zero-pod-retention-period", Duration),
    ("autoscaler", "activator-capacity", Number(1.0)),
    ("autoscaler", "initial-scale", Whole(0)),
    ("autoscaler", "allow-zero-initial-scale", Boolean),
    ("autoscaler", "min-scale", Whole(0)),
    ("autoscaler", "max-scale", Whole(0)),
    ("autoscaler", "scale-down-delay", Duration),
    ("autoscaler", "max-scale-limit", Whole(0)),
    ("defaults", "revision-timeout-seconds", Whole(0)),
    ("defaults", "max-revision-timeout-seconds", Whole(0)),
    ("defaults", "revision-response-start-timeout-seconds", Whole(0)),
    ("defaults", "revision-idle-timeout-seconds", Whole(0)),
    ("defaults", "revision-cpu-request", Quantity),
    ("defaults", "revision-memory-request", Quantity),
    ("defaults", "revision-ephemeral-storage-request", Quantity),
    ("defaults", "revision-cpu-limit", Quantity),
    ("defaults", "revision-memory-limit", Quantity),
    ("defaults", "revision-ephemeral-storage-limit", Quantity),
    ("defaults", "container-concurrency", Whole(0)),
    ("defaults", "container-concurrency-max-limit", Whole(1)),
    ("defaults", "allow-container-concurrency-zero", Boolean),
    ("defaults", "enable-service-links", Word(&["true", "false", "default"])),
    ("deployment", "digest-resolution-timeout", Duration),
    ("deployment", "progress-deadline", Duration),
    ("deployment", "queue-sidecar-cpu-request", Quantity),
    ("deployment", "queue-sidecar-cpu-limit", Quantity),
    ("deployment", "queue-sidecar-memory-request", Quantity),
    ("deployment", "queue-sidecar-memory-limit", Quantity),
    ("gc", "retain-since-create-time", Duration),
    ("gc", "retain-since-last-active-time", Duration),
    ("gc", "min-non-active-revisions", Whole(0)),
    ("gc", "max-non-active-revisions", WholeOrDisabled),
    ("network", "auto-tls", SWITCH),
    ("network", "external-domain-tls", SWITCH),
    ("network", "cluster-local-domain-tls", SWITCH),
    ("network", "system-internal-tls", SWITCH),
    ("network", "internal-encryption", Boolean),
    ("network", "http-protocol", Word(&["enabled", "disabled", "redirected"])),
    ("network", "rollout-duration", Whole(0)),
    ("network", "autocreate-cluster-domain-claims", Boolean),
    ("network", "enable-mesh-pod-addressability", Boolean),
    ("network", "mesh-compatibility-mode", Word(&["enabled", "disabled", "auto"])),
    ("network", "default-external-scheme", Word(&["http", "https"])),
    ("observability", "logging.enable-var-log-collection", Boolean),
    ("observability", "logging.enable-request-log", Boolean),
    ("observability", "logging.enable-probe-request-log", Boolean),
];

const BOTH: &[(&str, &str, Kind)] = &[
    ("leader-election", "lease-duration", Duration),
    ("leader-election", "renew-deadline", Duration),
    ("leader-election", "retry-period", Duration),
    ("leader-election", "buckets", Whole(1)),
    ("observability", "runtime-profiling", SWITCH),
    ("observability", "metrics-export-interval", Duration),
    ("observability", "request-metrics-export-interval", Duration),
    ("observability", "tracing-sampling-rate", Number(0.0)),
];

const EVENTING: &[(&str, &str, Kind)] = &[
    ("features", "transport-encryption", Word(&["disabled", "permissive", "strict"])),
    ("features", "authentication-oidc", SWITCH),
    ("features", "kreference-group", SWITCH),
    ("features", "kreference-name", SWITCH),
    ("features", "delivery-retryafter", SWITCH),
    ("ping-defaults", "data-max-size", Whole(-1)),
    ("observability", "sink-event-error-reporting.enable", Boolean),
];

/// How `key` of ConfigMap `map` (without `config-`) is read, if Knative minds.
pub fn kind_of(component: Component, map: &str, key: &str) -> Option<Kind> {
    let own = if component == Component::Serving { SERVING } else { EVENTING };
    let known = own.iter().chain(BOTH).find(|(m, k, _)| *m == map && *k == key).map(|(_, _, kind)| *kind);
    let feature = || match (component, map) {
        (Component::Serving, "features") if key.starts_with("kubernetes.podspec-") || FEATURES.contains(&key) => Some(FLAG),
        (_, "logging") if key.starts_with("loglevel.") => Some(LEVEL),
        _ => None,
    };
    known.or_else(feature)
}

/// What `value` should be and isn't, with an example.
pub fn wrong(kind: Kind, value: &str) -> Option<(String, String)> {
    let value = value.trim();
    let told = |what: &str, example: &str| Some((what.to_owned(), example.to_owned()));
    match kind {
        Duration if is_duration(value) || value.eq_ignore_ascii_case("disabled") => None,
        Duration => told("a duration", "one such as 30s or 1h30m"),
        Boolean if matches!(value, "1" | "t" | "T" | "true" | "TRUE" | "True" | "0" | "f" | "F" | "false" | "FALSE" | "False") => None,
        Boolean => told("a boolean", "true or false"),
        Whole(least) if value.parse::<i64>().is_ok_and(|n| n >= least) => None,
        Whole(least) => told(&format!("a whole number of at least {least}"), &format!("one such as \"{}\"", least.max(1))),
        Number(least) if value.parse::<f64>().is_ok_and(|n| n.is_finite() && n >= least) => None,
        Number(least) => told(&format!("a number of at least {least}"), &format!("one such as \"{}\"", least.max(1.0))),
        Word(words) if words.iter().any(|word| word.eq_ignore_ascii_case(value)) => None,
        Word(words) => told(&format!("one of {}", words.join(", ")), "one of them"),
        WholeOrDisabled if value.eq_ignore_ascii_case("disabled") => None,
        WholeOrDisabled => wrong(Whole(0), value),
        Quantity if super::quantity::amount(&value.into()).is_some() => None,
        Quantity => told("a quantity", "one such as 400m or 100M"),
    }
}

/// Whether Go's `time.ParseDuration` reads it.
fn is_duration(text: &str) -> bool {
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return true;
    }
    let mut any = false;
    while !rest.is_empty() {
        let number = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(rest.len());
        let (digits, after) = rest.split_at(number);
        let units = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, next) = after.split_at(units);
        let fine = digits.bytes().any(|b| b.is_ascii_digit()) && digits.matches('.').count() <= 1;
        if !fine || !matches!(unit, "ns" | "us" | "µs" | "μs" | "ms" | "s" | "m" | "h") {
            return false;
        }
        (rest, any) = (next, true);
    }
    any
}

/// `config-domain`: its keys are domains.
pub fn domains(config: &BTreeMap<String, BTreeMap<String, String>>, found: &mut Vec<Problem>) {
    for map in ["domain", "config-domain"] {
        for key in config.get(map).into_iter().flat_map(BTreeMap::keys).filter(|key| *key != "_example") {
            if let Some(wrong) = super::syntax::subdomain(key) {
                found.push(super::config::KEY.at(format!("spec.config.{map}.{key}"), format!("\"{key}\" {wrong}"), "name a domain"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_knative_reads_them() {
        for (kind, fine, bad) in [
            (Duration, &["30s", "1h30m", "1.5h", "0", "-2m", "100ms", "disabled"][..], &["30", "", "s", "1 s", "1x", "1h30", "."][..]),
            (Boolean, &["true", "False", "1"], &["yes", "", "enabled"]),
            (Whole(0), &["0", "10"], &["-1", "1.5", "", "ten"]),
            (Number(1.0), &["1", "70.5"], &["0.5", "NaN", "", "70%"]),
            (FLAG, &["enabled", "Allowed", "disabled"], &["true", "", "on"]),
            (WholeOrDisabled, &["disabled", "5"], &["-5", "none"]),
            (Quantity, &["400m", "1"], &["much", ""]),
        ] {
            for value in fine {
                assert_eq!(wrong(kind, value), None, "{kind:?} {value}");
            }
            for value in bad {
                assert!(wrong(kind, value).is_some(), "{kind:?} {value}");
            }
        }
    }
}
