//! Keys of the ConfigMaps that Serving and Eventing have.

use super::entry::{ConfigMap, Entry};

/// The ConfigMaps.
pub static MAPS: &[ConfigMap] = &[
    ConfigMap {
        name: "leader-election",
        entries: &[Entry::free(
            "buckets lease-duration renew-deadline retry-period",
            "Numbers and durations of leader election.",
        )],
    },
    ConfigMap {
        name: "logging",
        entries: &[
            Entry::free("loglevel.*", "A level."),
            Entry::restricted("zap-logger-config", "Files that logs are written to."),
            Entry::restricted("klog-verbosity", "At high levels, the bodies of requests are in logs."),
        ],
    },
    ConfigMap {
        name: "observability",
        entries: &[
            Entry::free("metrics-export-interval tracing-sampling-rate", "A number, or a duration."),
            Entry::restricted(
                "metrics-endpoint metrics-protocol tracing-endpoint tracing-protocol",
                "Where metrics and traces are sent, and whether.",
            ),
            Entry::restricted("metrics.*", "Where metrics are sent."),
            Entry::restricted("logging.*", "The content of logs, where they are, and images that collect them."),
            Entry::restricted("runtime-profiling", "Serves the memory of processes on a port."),
        ],
    },
    ConfigMap { name: "tracing", entries: &[Entry::restricted("*", "Where traces are sent, and whether.")] },
];
