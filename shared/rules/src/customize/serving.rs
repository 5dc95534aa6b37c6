//! Keys of the ConfigMaps of Serving and its ingresses.

use super::entry::{ConfigMap, Entry};

/// The ConfigMaps.
pub static MAPS: &[ConfigMap] = &[
    ConfigMap {
        name: "autoscaler",
        entries: &[
            Entry::free(
                "activator-capacity allow-zero-initial-scale container-concurrency-target-default \
                 container-concurrency-target-percentage enable-scale-to-zero initial-scale max-scale \
                 max-scale-down-rate max-scale-limit max-scale-up-rate min-scale panic-threshold-percentage \
                 panic-window-percentage requests-per-second-target-default scale-down-delay \
                 scale-to-zero-grace-period scale-to-zero-pod-retention-period stable-window \
                 target-burst-capacity",
                "Numbers, durations and switches of autoscaling.",
            ),
            Entry::free_for(
                "pod-autoscaler-class",
                &["hpa.autoscaling.knative.dev", "kpa.autoscaling.knative.dev"],
                "The controller that scales Revisions.",
            ),
        ],
    },
    ConfigMap {
        name: "certmanager",
        entries: &[Entry::restricted(
            "issuerRef clusterLocalIssuerRef systemInternalIssuerRef",
            "The authorities that sign certificates.",
        )],
    },
    ConfigMap {
        name: "contour",
        entries: &[
            Entry::free("timeout-policy-idle timeout-policy-response", "A duration."),
            Entry::restricted("visibility", "The gateways that receive requests."),
            Entry::restricted("default-tls-secret", "A Secret of any namespace."),
            Entry::restricted("cors-policy", "The web sites that may read responses."),
        ],
    },
    ConfigMap {
        name: "defaults",
        entries: &[
            Entry::free(
                "allow-container-concurrency-zero container-concurrency container-concurrency-max-limit \
                 max-revision-timeout-seconds revision-cpu-limit revision-cpu-request \
                 revision-ephemeral-storage-limit revision-ephemeral-storage-request \
                 revision-idle-timeout-seconds revision-memory-limit revision-memory-request \
                 revision-response-start-timeout-seconds revision-timeout-seconds",
                "Numbers and amounts: defaults and limits of Revisions.",
            ),
            Entry::free("enable-service-links", "A default that the author of a Revision can change."),
            Entry::restricted(
                "container-name-template init-container-name-template",
                "A template, and names that other settings refer to.",
            ),
        ],
    },
    ConfigMap {
        name: "deployment",
        entries: &[
            Entry::free(
                "queue-sidecar-cpu-limit queue-sidecar-cpu-request queue-sidecar-ephemeral-storage-limit \
                 queue-sidecar-ephemeral-storage-request queue-sidecar-memory-limit \
                 queue-sidecar-memory-request",
                "An amount of what every container uses.",
            ),
            Entry::free("digest-resolution-timeout progress-deadline", "A duration."),
            Entry::free("pod-is-always-schedulable", "Only the reported state of a Revision depends on it."),
            Entry::restricted("queue-sidecar-image", "An image that runs in all Pods of Revisions."),
            Entry::restricted("queue-sidecar-rootca", "Authorities that all Pods of Revisions trust."),
            Entry::restricted("queue-sidecar-token-audiences", "Tokens in all Pods of Revisions."),
            Entry::restricted("queue-sidecar-tls-*", "The strength of encryption."),
            Entry::restricted("registries-skipping-tag-resolving", "Images without a digest can change."),
            Entry::restricted("runtime-class-name", "The isolation of Pods from their node."),
        ],
    },
    ConfigMap { name: "domain", entries: &[Entry::restricted("*", "Domains whose requests Services receive.")] },
    ConfigMap {
        name: "features",
        entries: &[
            Entry::free(
                "autodetect-http2 multi-container multi-container-probing queueproxy.resource-defaults",
                "Gives Pods no access to anything.",
            ),
            Entry::restricted("kubernetes.*", "What Pods of Revisions may do on their node."),
            Entry::restricted("queueproxy.mount-podinfo", "A volume in all Pods of Revisions."),
            Entry::restricted("secure-pod-defaults", "The privileges of Pods of Revisions."),
            Entry::restricted("tag-header-based-routing", "A header decides which Revision receives a request."),
        ],
    },
    ConfigMap {
        name: "gateway",
        entries: &[Entry::restricted("external-gateways local-gateways", "The gateways that receive requests.")],
    },
    ConfigMap {
        name: "gc",
        entries: &[Entry::free(
            "max-non-active-revisions min-non-active-revisions retain-since-create-time \
             retain-since-last-active-time",
            "The number and age of unused Revisions.",
        )],
    },
    ConfigMap {
        name: "istio",
        entries: &[Entry::restricted(
            "external-gateways local-gateways gateway.* local-gateway.*",
            "The gateways that receive requests.",
        )],
    },
    ConfigMap {
        name: "kourier",
        entries: &[
            Entry::free("stream-idle-timeout tracing-sampling-rate", "A duration, or a number."),
            Entry::free("disable-envoy-server-header", "A header without further meaning."),
            Entry::restricted("certs-secret-name certs-secret-namespace cluster-cert-secret", "Secrets."),
            Entry::restricted("cipher-suites enable-cryptomb", "The strength of encryption, and who computes it."),
            Entry::restricted("extauthz-*", "Who permits requests, and receives them."),
            Entry::restricted(
                "enable-proxy-protocol trusted-hops-count use-remote-address",
                "Whether a client can forge its address.",
            ),
            Entry::restricted("enable-service-access-logging service-access-log-template", "The content of logs."),
            Entry::restricted(
                "tracing-endpoint tracing-protocol tracing-service-name",
                "Where traces are sent, and under which name.",
            ),
        ],
    },
    ConfigMap {
        name: "kourier-bootstrap",
        entries: &[Entry::restricted("envoy-bootstrap.yaml", "The configuration of Envoy.")],
    },
    ConfigMap {
        name: "network",
        entries: &[
            Entry::free("rollout-duration", "A duration."),
            Entry::free_for(
                "ingress-class",
                &[
                    "contour.ingress.networking.knative.dev",
                    "gateway-api.ingress.networking.knative.dev",
                    "istio.ingress.networking.knative.dev",
                    "kourier.ingress.networking.knative.dev",
                ],
                "The controller that receives requests.",
            ),
            Entry::restricted("certificate-class", "The controller that receives keys."),
            Entry::restricted(
                "auto-tls cluster-local-domain-tls default-external-scheme external-domain-tls http-protocol \
                 internal-encryption system-internal-tls",
                "Whether connections are encrypted.",
            ),
            Entry::restricted("domain-template tag-template", "Host names whose requests a Service receives."),
            Entry::restricted("autocreate-cluster-domain-claims", "Lets each namespace take each domain."),
            Entry::restricted("namespace-wildcard-cert-selector", "The namespaces that receive wildcard certificates."),
            Entry::restricted(
                "enable-mesh-pod-addressability mesh-compatibility-mode",
                "Whether requests to Pods go through a mesh.",
            ),
        ],
    },
    ConfigMap {
        name: "observability",
        entries: &[
            Entry::free("request-metrics-export-interval", "A duration."),
            Entry::restricted(
                "request-metrics-endpoint request-metrics-protocol",
                "Where metrics are sent, and whether.",
            ),
        ],
    },
];
