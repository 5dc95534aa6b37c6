//! Types of the values in Knative's ConfigMaps (knative.dev/docs, "ConfigMaps"; the parsers in
//! knative/serving, knative/eventing, knative/networking and knative/pkg). Only keys whose invalid
//! values Knative refuses are listed.

use knative_operator_shared::api::Component;

/// Type of a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ValueType {
    /// A duration in Go's format: `1m30s`.
    Duration,
    /// A duration in this range of seconds.
    DurationIn(f64, f64),
    /// A duration, or `disabled`.
    DurationOrDisabled,
    /// A boolean, as Go's `strconv.ParseBool` parses it.
    Boolean,
    /// An integer, with its minimum.
    Integer(i64),
    /// A number, with its minimum.
    Number(f64),
    /// A number in this range.
    NumberIn(f64, f64),
    /// JSON, or empty.
    Json,
    /// One of these words, ignoring case.
    Word(&'static [&'static str]),
    /// An integer, or `disabled`.
    IntegerOrDisabled,
    /// A Kubernetes quantity.
    Quantity,
}

use ValueType::{
    Boolean, Duration, DurationIn, DurationOrDisabled, Integer, IntegerOrDisabled, Json, Number, NumberIn, Quantity,
    Word,
};

/// Values of Knative's feature flags.
const FLAG: ValueType = Word(&["enabled", "allowed", "disabled"]);
/// Feature flags of Serving, besides those of Pod specs.
const FEATURES: [&str; 7] = [
    "autodetect-http2",
    "multi-container",
    "multi-container-probing",
    "queueproxy.mount-podinfo",
    "queueproxy.resource-defaults",
    "tag-header-based-routing",
    "kubernetes.containerspec-addcapabilities",
];
const SWITCH: ValueType = Word(&["enabled", "disabled"]);
const METRICS: ValueType = Word(&["none", "prometheus", "http/protobuf", "grpc"]);
const HOUR: f64 = 3600.0;
const LEVEL: ValueType = Word(&["debug", "info", "warn", "error", "dpanic", "panic", "fatal"]);

const SERVING: &[(&str, &str, ValueType)] = &[
    ("autoscaler", "container-concurrency-target-percentage", NumberIn(0.0, 100.0)),
    ("autoscaler", "container-concurrency-target-default", Number(0.01)),
    ("autoscaler", "requests-per-second-target-default", Number(0.01)),
    ("autoscaler", "target-burst-capacity", Number(-1.0)),
    ("autoscaler", "stable-window", DurationIn(6.0, HOUR)),
    ("autoscaler", "panic-window-percentage", NumberIn(1.0, 100.0)),
    ("autoscaler", "panic-threshold-percentage", Number(110.0)),
    ("autoscaler", "max-scale-up-rate", Number(1.0)),
    ("autoscaler", "max-scale-down-rate", Number(1.0)),
    ("autoscaler", "enable-scale-to-zero", Boolean),
    ("autoscaler", "scale-to-zero-grace-period", DurationIn(6.0, f64::INFINITY)),
    ("autoscaler", "scale-to-zero-pod-retention-period", DurationIn(0.0, f64::INFINITY)),
    ("autoscaler", "activator-capacity", Number(1.0)),
    ("autoscaler", "initial-scale", Integer(0)),
    ("autoscaler", "allow-zero-initial-scale", Boolean),
    ("autoscaler", "min-scale", Integer(0)),
    ("autoscaler", "max-scale", Integer(0)),
    ("autoscaler", "scale-down-delay", DurationIn(0.0, HOUR)),
    ("autoscaler", "max-scale-limit", Integer(0)),
    ("defaults", "revision-timeout-seconds", Integer(0)),
    ("defaults", "max-revision-timeout-seconds", Integer(0)),
    ("defaults", "revision-response-start-timeout-seconds", Integer(0)),
    ("defaults", "revision-idle-timeout-seconds", Integer(0)),
    ("defaults", "revision-cpu-request", Quantity),
    ("defaults", "revision-memory-request", Quantity),
    ("defaults", "revision-ephemeral-storage-request", Quantity),
    ("defaults", "revision-cpu-limit", Quantity),
    ("defaults", "revision-memory-limit", Quantity),
    ("defaults", "revision-ephemeral-storage-limit", Quantity),
    ("defaults", "container-concurrency", Integer(0)),
    ("defaults", "container-concurrency-max-limit", Integer(1)),
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
    ("gc", "min-non-active-revisions", Integer(0)),
    ("gc", "max-non-active-revisions", IntegerOrDisabled),
    ("network", "auto-tls", SWITCH),
    ("network", "external-domain-tls", SWITCH),
    ("network", "cluster-local-domain-tls", SWITCH),
    ("network", "system-internal-tls", SWITCH),
    ("network", "internal-encryption", Boolean),
    ("network", "http-protocol", Word(&["enabled", "disabled", "redirected"])),
    ("network", "rollout-duration", Integer(0)),
    ("network", "autocreate-cluster-domain-claims", Boolean),
    ("network", "enable-mesh-pod-addressability", Boolean),
    ("network", "mesh-compatibility-mode", Word(&["enabled", "disabled", "auto"])),
    ("network", "default-external-scheme", Word(&["http", "https"])),
    ("observability", "logging.enable-var-log-collection", Boolean),
    ("observability", "logging.enable-request-log", Boolean),
    ("observability", "logging.enable-probe-request-log", Boolean),
    ("observability", "request-metrics-protocol", METRICS),
];

const BOTH: &[(&str, &str, ValueType)] = &[
    ("leader-election", "lease-duration", Duration),
    ("leader-election", "renew-deadline", Duration),
    ("leader-election", "retry-period", Duration),
    ("leader-election", "buckets", Integer(1)),
    ("observability", "runtime-profiling", SWITCH),
    ("observability", "metrics-export-interval", Duration),
    ("observability", "request-metrics-export-interval", Duration),
    ("observability", "metrics-protocol", METRICS),
    ("observability", "tracing-protocol", Word(&["none", "stdout", "http/protobuf", "grpc"])),
    ("observability", "tracing-sampling-rate", NumberIn(0.0, 1.0)),
    ("logging", "zap-logger-config", Json),
];

const EVENTING: &[(&str, &str, ValueType)] = &[
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
    ("ping-defaults", "data-max-size", Integer(-1)),
    ("observability", "sink-event-error-reporting.enable", Boolean),
];

/// Type of `key` in ConfigMap `map` (without `config-`), if Knative refuses invalid values.
pub fn type_of(component: Component, map: &str, key: &str) -> Option<ValueType> {
    let own = if component == Component::Serving { SERVING } else { EVENTING };
    let known = own.iter().chain(BOTH).find(|(m, k, _)| *k == key && *m == map).map(|(_, _, kind)| *kind);
    let feature = || match (component, map) {
        (Component::Serving, "features") if key.starts_with("kubernetes.podspec-") || FEATURES.contains(&key) => {
            Some(FLAG)
        }
        (_, "logging") if key.starts_with("loglevel.") => Some(LEVEL),
        _ => None,
    };
    known.or_else(feature)
}

/// The expected type and an example, if `value` is not of type `kind`.
pub fn mismatch(kind: ValueType, value: &str) -> Option<(String, String)> {
    let value = value.trim();
    let expected = |what: &str, example: &str| Some((what.to_owned(), example.to_owned()));
    match kind {
        Duration if seconds(value).is_some() => None,
        Duration => expected("a duration", "one such as 30s or 1h30m"),
        DurationOrDisabled if value.eq_ignore_ascii_case("disabled") => None,
        DurationOrDisabled => mismatch(Duration, value),
        DurationIn(least, most) => match seconds(value) {
            None => mismatch(Duration, value),
            Some(seconds) if (least..=most).contains(&seconds) => None,
            Some(_) if most.is_finite() => expected(&format!("from {least} s to {most} s"), "a duration in between"),
            Some(_) => expected(&format!("at least {least} s"), "a longer one"),
        },
        Boolean
            if matches!(
                value,
                "1" | "t" | "T" | "true" | "TRUE" | "True" | "0" | "f" | "F" | "false" | "FALSE" | "False"
            ) =>
        {
            None
        }
        Boolean => expected("a boolean", "true or false"),
        Integer(least) if value.parse::<i64>().is_ok_and(|n| n >= least) => None,
        Integer(least) => {
            expected(&format!("a whole number of at least {least}"), &format!("one such as \"{}\"", least.max(1)))
        }
        Number(least) if value.parse::<f64>().is_ok_and(|n| n.is_finite() && n >= least) => None,
        Number(least) => {
            expected(&format!("a number of at least {least}"), &format!("one such as \"{}\"", least.max(1.0)))
        }
        NumberIn(least, most) if value.parse::<f64>().is_ok_and(|n| (least..=most).contains(&n)) => None,
        NumberIn(least, most) => expected(&format!("a number from {least} to {most}"), "one in between"),
        Json if value.is_empty() || serde_json::from_str::<serde::de::IgnoredAny>(value).is_ok() => None,
        Json => expected("JSON", "a JSON object"),
        Word(words) if words.iter().any(|word| word.eq_ignore_ascii_case(value)) => None,
        Word(words) => expected(&format!("one of {}", words.join(", ")), "one of them"),
        IntegerOrDisabled if value.eq_ignore_ascii_case("disabled") => None,
        IntegerOrDisabled => mismatch(Integer(0), value),
        Quantity if super::quantity::amount(&value.into()).is_some() => None,
        Quantity => expected("a quantity", "one such as 400m or 100M"),
    }
}

/// Parses a duration in seconds, as Go's `time.ParseDuration` does.
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
        // Rust and Go both accept `1.` and `.5`, and neither a single point nor two.
        sum += digits.parse::<f64>().ok()? * factor;
        (rest, any) = (next, true);
    }
    let sign = if text.starts_with('-') { -1.0 } else { 1.0 };
    any.then_some(sign * sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_parsed_as_in_knative() {
        for (kind, valid, bad) in [
            (
                Duration,
                &["30s", "1h30m", "1.5h", "0", "-2m", "100ms", ".5h", "1.h"][..],
                &["30", "", "s", "1 s", "1x", "1h30", ".", ".s"][..],
            ),
            (DurationOrDisabled, &["30s", "Disabled"], &["never"]),
            (DurationIn(6.0, HOUR), &["6s", "1h", "90s"], &["5999ms", "1h1s", "-10s", "0", "disabled"]),
            (DurationIn(0.0, f64::INFINITY), &["0s", "1000h"], &["-1s"]),
            (NumberIn(0.0, 1.0), &["0", "0.5", "1"], &["1.1", "-0.1", "NaN", "", "all"]),
            (Json, &["", "{}", r#"{"level": "info"}"#], &["{level", "info"]),
            (Boolean, &["true", "False", "1"], &["yes", "", "enabled"]),
            (Integer(0), &["0", "10"], &["-1", "1.5", "", "ten"]),
            (Number(1.0), &["1", "70.5"], &["0.5", "NaN", "", "70%"]),
            (FLAG, &["enabled", "Allowed", "disabled"], &["true", "", "on"]),
            (IntegerOrDisabled, &["disabled", "5"], &["-5", "none"]),
            (Quantity, &["400m", "1"], &["much", ""]),
        ] {
            for value in valid {
                assert_eq!(mismatch(kind, value), None, "{kind:?} {value}");
            }
            for value in bad {
                assert!(mismatch(kind, value).is_some(), "{kind:?} {value}");
            }
        }
    }
}
