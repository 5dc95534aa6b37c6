//! Keys of the ConfigMaps of Eventing and its event sources.

use super::entry::{ConfigMap, Entry};

/// The ConfigMaps.
pub static MAPS: &[ConfigMap] = &[
    ConfigMap {
        name: "br-default-channel",
        entries: &[Entry::restricted("channel-template-spec", "Where the events of Brokers go.")],
    },
    ConfigMap {
        name: "br-defaults",
        entries: &[Entry::restricted("default-br-config", "Where the events of Brokers go.")],
    },
    ConfigMap {
        name: "default-ch-webhook",
        entries: &[Entry::restricted("default-ch-config", "Where the events of Channels go.")],
    },
    ConfigMap {
        name: "eventing-integrations-images",
        entries: &[Entry::restricted("*", "Images, which run in the namespaces of users.")],
    },
    ConfigMap {
        name: "eventing-transformations-images",
        entries: &[Entry::restricted("*", "Images, which run in the namespaces of users.")],
    },
    ConfigMap {
        name: "features",
        entries: &[
            Entry::free(
                "delivery-retryafter delivery-timeout eventtype-auto-create new-apiserversource-filters",
                "How events are delivered and described. They go to the same places.",
            ),
            Entry::restricted(
                "authentication-oidc default-authorization-mode transport-encryption",
                "Whether events are encrypted, and who may send them.",
            ),
            Entry::restricted("cross-namespace-event-links", "Events may leave their namespace."),
            Entry::restricted("kreference-group kreference-mapping", "The objects that receive events."),
        ],
    },
    ConfigMap {
        name: "imc-event-dispatcher",
        entries: &[Entry::free("MaxIdleConnections MaxIdleConnectionsPerHost", "A number of connections.")],
    },
    ConfigMap {
        name: "kafka-autoscaler",
        entries: &[
            Entry::free(
                "cooldown-period lag-threshold max-scale min-scale polling-interval",
                "Numbers and durations of autoscaling.",
            ),
            Entry::restricted("class", "The controller that scales consumers."),
        ],
    },
    ConfigMap {
        name: "kafka-broker-config",
        entries: &[
            Entry::free("default.topic.partitions default.topic.replication.factor", "A number."),
            Entry::restricted("bootstrap.servers", "Where events go."),
        ],
    },
    ConfigMap { name: "kafka-channel-config", entries: &[Entry::restricted("bootstrap.servers", "Where events go.")] },
    ConfigMap {
        name: "kafka-config-logging",
        entries: &[Entry::restricted("config.xml", "Where logs go, and which classes write them.")],
    },
    ConfigMap {
        name: "kafka-features",
        entries: &[
            Entry::free(
                "dispatcher-ordered-executor-metrics dispatcher-rate-limiter",
                "Switches of the dispatcher. Events go to the same places.",
            ),
            Entry::restricted(
                "brokers-topic-template channels-topic-template triggers-consumergroup-template",
                "The topics that events are in, and who reads them.",
            ),
            Entry::restricted("controller-autoscaler-keda", "The controller that scales consumers."),
        ],
    },
    ConfigMap {
        name: "kafka-leader-election",
        entries: &[
            Entry::free("buckets leaseDuration renewDeadline retryPeriod", "Numbers and durations of leader election."),
            Entry::restricted("map-lease-prefix.*", "The Leases by which processes exclude each other."),
        ],
    },
    ConfigMap {
        name: "kafka-source-data-plane",
        entries: &[Entry::restricted(
            "config-kafka-source-consumer.properties config-kafka-source-producer.properties \
             config-kafka-source-webclient.properties",
            "Which classes clients of Kafka load, where they connect to, and with which credentials.",
        )],
    },
    ConfigMap {
        name: "kafka-source-defaults",
        entries: &[Entry::restricted("*", "The controller that scales consumers.")],
    },
    ConfigMap { name: "kreference-mapping", entries: &[Entry::restricted("*", "The objects that receive events.")] },
    ConfigMap {
        name: "leader-election-github",
        entries: &[
            Entry::free("leaseDuration renewDeadline retryPeriod", "A duration of leader election."),
            Entry::restricted("enabledComponents resourceLock", "Whether processes exclude each other."),
        ],
    },
    ConfigMap {
        name: "leader-election-redis",
        entries: &[
            Entry::free("leaseDuration renewDeadline retryPeriod", "A duration of leader election."),
            Entry::restricted("enabledComponents resourceLock", "Whether processes exclude each other."),
        ],
    },
    ConfigMap {
        name: "namespaced-broker-resources",
        entries: &[Entry::restricted("resources", "Objects of any kind in the namespaces of users.")],
    },
    ConfigMap {
        name: "observability",
        entries: &[Entry::free("sink-event-error-reporting.enable", "A switch for events of Kubernetes.")],
    },
    ConfigMap { name: "ping-defaults", entries: &[Entry::free("data-max-size", "A number of bytes.")] },
    ConfigMap { name: "redis", entries: &[Entry::free("numConsumers", "A number of consumers.")] },
    ConfigMap {
        name: "sugar",
        entries: &[Entry::restricted(
            "namespace-selector trigger-selector",
            "The namespaces that Brokers are created in.",
        )],
    },
];
