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
    /// One from so many to so many seconds.
    Within(f64, f64),
    /// A duration, or `disabled`.
    DurationOrDisabled,
    /// `true` or `false`, as Go's `strconv.ParseBool` reads it.
    Boolean,
    /// A whole number of at least so much.
    Whole(i64),
    /// A number of at least so much.
    Number(f64),
    /// A number from the one to the other.
    Between(f64, f64),
    /// JSON, or nothing.
    Json,
    /// One of these, whatever their case.
    Word(&'static [&'static str]),
    /// A whole number, or `disabled`.
    WholeOrDisabled,
    /// A quantity, as Kubernetes has it.
    Quantity,
}

use Kind::{
    Between, Boolean, Duration, DurationOrDisabled, Json, Number, Quantity, Whole, WholeOrDisabled, Within, Word,
};

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
const METRICS: Kind = Word(&["none", "prometheus", "http/protobuf", "grpc"]);
const HOUR: f64 = 3600.0;
const LEVEL: Kind = Word(&["debug", "info", "warn", "error", "dpanic", "panic", "fatal"]);

const SERVING: &[(&str, &str, Kind)] = &[
    ("autoscaler", "container-concurrency-target-percentage", Between(0.0, 100.0)),
    ("autoscaler", "container-concurrency-target-default", Number(0.01)),
    ("autoscaler", "requests-per-second-target-default", Number(0.01)),
    ("autoscaler", "target-burst-capacity", Number(-1.0)),
    ("autoscaler", "stable-window", Within(6.0, HOUR)),
    ("autoscaler", "panic-window-percentage", Between(1.0, 100.0)),
    ("autoscaler", "panic-threshold-percentage", Number(110.0)),
    ("autoscaler", "max-scale-up-rate", Number(1.0)),
    ("autoscaler", "max-scale-down-rate", Number(1.0)),
    ("autoscaler", "enable-scale-to-zero", Boolean),
    ("autoscaler", "scale-to-zero-grace-period", Within(6.0, f64::INFINITY)),
    ("autoscaler", "scale-to-zero-pod-retention-period", Within(0.0, f64::INFINITY)),
    ("autoscaler", "activator-capacity", Number(1.0)),
    ("autoscaler", "initial-scale", Whole(0)),
    ("autoscaler", "allow-zero-initial-scale", Boolean),
    ("autoscaler", "min-scale", Whole(0)),
    ("autoscaler", "max-scale", Whole(0)),
    ("autoscaler", "scale-down-delay", Within(0.0, HOUR)),
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
    ("deployment", "queue-sidecar-ephemeral-storage-request", Quantity),
    ("deployment", "queue-sidecar-ephemeral-storage-limit", Quantity),
    ("deployment", "pod-is-always-schedulable", Boolean),
    ("features", "secure-pod-defaults", Word(&["enabled", "allowed", "disabled", "AllowRootBounded"])),
    ("gc", "retain-since-create-time", DurationOrDisabled),
    ("gc", "retain-since-last-active-time", DurationOrDisabled),
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
    ("observability", "request-metrics-protocol", METRICS),
];

const BOTH: &[(&str, &str, Kind)] = &[
    ("leader-election", "lease-duration", Duration),
    ("leader-election", "renew-deadline", Duration),
    ("leader-election", "retry-period", Duration),
    ("leader-election", "buckets", Whole(1)),
    ("observability", "runtime-profiling", SWITCH),
    ("observability", "metrics-export-interval", Duration),
    ("observability", "request-metrics-export-interval", Duration),
    ("observability", "metrics-protocol", METRICS),
    ("observability", "tracing-protocol", Word(&["none", "stdout", "http/protobuf", "grpc"])),
    ("observability", "tracing-sampling-rate", Between(0.0, 1.0)),
    ("logging", "zap-logger-config", Json),
];

const EVENTING: &[(&str, &str, Kind)] = &[
    ("features", "transport-encryption", Word(&["disabled", "permissive", "strict"])),
    ("features", "default-authorization-mode", Word(&["allow-all", "deny-all", "allow-same-namespace"])),
    ("features", "authentication-oidc", FLAG),
    ("features", "kreference-group", FLAG),
    ("features", "kreference-name", FLAG),
    ("features", "kreference-mapping", FLAG),
    ("features", "delivery-retryafter", FLAG),
    ("features", "delivery-timeout", FLAG),
    ("features", "eventtype-auto-create", FLAG),
    ("features", "cross-namespace-event-links", FLAG),
    ("features", "new-apiserversource-filters", FLAG),
    ("features", "new-trigger-filters", FLAG),
    ("ping-defaults", "data-max-size", Whole(-1)),
    ("observability", "sink-event-error-reporting.enable", Boolean),
];

/// How `key` of ConfigMap `map` (without `config-`) is read, if Knative minds.
pub fn kind_of(component: Component, map: &str, key: &str) -> Option<Kind> {
    let own = if component == Component::Serving { SERVING } else { EVENTING };
    let known = own.iter().chain(BOTH).find(|(m, k, _)| *m == map && *k == key).map(|(_, _, kind)| *kind);
    let feature = || match (component, map) {
        (Component::Serving, "features") if key.starts_with("kubernetes.podspec-") || FEATURES.contains(&key) => {
            Some(FLAG)
        }
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
        Duration if seconds(value).is_some() => None,
        Duration => told("a duration", "one such as 30s or 1h30m"),
        DurationOrDisabled if value.eq_ignore_ascii_case("disabled") => None,
        DurationOrDisabled => wrong(Duration, value),
        Within(least, most) => match seconds(value) {
            None => wrong(Duration, value),
            Some(seconds) if (least..=most).contains(&seconds) => None,
            Some(_) if most.is_finite() => told(&format!("from {least} s to {most} s"), "a duration in between"),
            Some(_) => told(&format!("at least {least} s"), "a longer one"),
        },
        Boolean
            if matches!(
                value,
                "1" | "t" | "T" | "true" | "TRUE" | "True" | "0" | "f" | "F" | "false" | "FALSE" | "False"
            ) =>
        {
            None
        }
        Boolean => told("a boolean", "true or false"),
        Whole(least) if value.parse::<i64>().is_ok_and(|n| n >= least) => None,
        Whole(least) => {
            told(&format!("a whole number of at least {least}"), &format!("one such as \"{}\"", least.max(1)))
        }
        Number(least) if value.parse::<f64>().is_ok_and(|n| n.is_finite() && n >= least) => None,
        Number(least) => told(&format!("a number of at least {least}"), &format!("one such as \"{}\"", least.max(1.0))),
        Between(least, most) if value.parse::<f64>().is_ok_and(|n| (least..=most).contains(&n)) => None,
        Between(least, most) => told(&format!("a number from {least} to {most}"), "one in between"),
        Json if value.is_empty() || serde_json::from_str::<serde::de::IgnoredAny>(value).is_ok() => None,
        Json => told("JSON", "a JSON object"),
        Word(words) if words.iter().any(|word| word.eq_ignore_ascii_case(value)) => None,
        Word(words) => told(&format!("one of {}", words.join(", ")), "one of them"),
        WholeOrDisabled if value.eq_ignore_ascii_case("disabled") => None,
        WholeOrDisabled => wrong(Whole(0), value),
        Quantity if super::quantity::amount(&value.into()).is_some() => None,
        Quantity => told("a quantity", "one such as 400m or 100M"),
    }
}

/// How many seconds it is, as Go's `time.ParseDuration` reads it.
fn seconds(text: &str) -> Option<f64> {
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return Some(0.0);
    }
    let (mut sum, mut any) = (0.0, false);
    while !rest.is_empty() {
        let number = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(rest.len());
        let (digits, after) = rest.split_at(number);
        let units = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, next) = after.split_at(units);
        let factor = match unit {
            "ns" => 1e-9,
            "us" | "µs" | "μs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => HOUR,
            _ => return None,
        };
        // Rust, too, reads `1.` and `.5`, and neither a lone point nor two of them.
        sum += digits.parse::<f64>().ok()? * factor;
        (rest, any) = (next, true);
    }
    let sign = if text.starts_with('-') { -1.0 } else { 1.0 };
    any.then_some(sign * sum)
}

/// `config-domain`: its keys are domains.
pub fn domains(config: &BTreeMap<String, BTreeMap<String, String>>, found: &mut Vec<Problem>) {
    for map in ["domain", "config-domain"] {
        for key in config.get(map).into_iter().flat_map(BTreeMap::keys).filter(|key| *key != "_example") {
            if let Some(wrong) = super::syntax::subdomain(key) {
                found.push(super::config::KEY.at(
                    format!("spec.config.{map}.{key}"),
                    format!("\"{key}\" {wrong}"),
                    "name a domain",
                ));
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
            (
                Duration,
                &["30s", "1h30m", "1.5h", "0", "-2m", "100ms", ".5h", "1.h"][..],
                &["30", "", "s", "1 s", "1x", "1h30", ".", ".s"][..],
            ),
            (DurationOrDisabled, &["30s", "Disabled"], &["never"]),
            (Within(6.0, HOUR), &["6s", "1h", "90s"], &["5999ms", "1h1s", "-10s", "0", "disabled"]),
            (Within(0.0, f64::INFINITY), &["0s", "1000h"], &["-1s"]),
            (Between(0.0, 1.0), &["0", "0.5", "1"], &["1.1", "-0.1", "NaN", "", "all"]),
            (Json, &["", "{}", r#"{"level": "info"}"#], &["{level", "info"]),
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
