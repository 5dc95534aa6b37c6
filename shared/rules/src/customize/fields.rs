//! The fields of a spec.

use super::entry::Entry;

/// The fields below `spec`, except for `config`. `workloads` also stands for the deprecated
/// `deployments`.
pub static FIELDS: &[Entry] = &[
    Entry::free("version", "Installs another of the releases that the operator has."),
    Entry::free("high-availability.replicas workloads[].replicas", "A number of Pods."),
    Entry::free(
        "ingress.contour.enabled ingress.gateway-api.enabled ingress.istio.enabled ingress.kourier.enabled \
         source.ceph.enabled source.github.enabled source.gitlab.enabled source.kafka.enabled \
         source.rabbitmq.enabled source.redis.enabled",
        "Installs a part of the release.",
    ),
    Entry::free(
        "workloads[].name workloads[].resources[].container workloads[].readinessProbes[].container \
         workloads[].livenessProbes[].container resources[].container",
        "Says which object the other fields are for.",
    ),
    Entry::free(
        "workloads[].resources[].limits.cpu workloads[].resources[].limits.memory \
         workloads[].resources[].limits.ephemeral-storage workloads[].resources[].requests.cpu \
         workloads[].resources[].requests.memory workloads[].resources[].requests.ephemeral-storage \
         resources[].limits.cpu resources[].limits.memory resources[].limits.ephemeral-storage \
         resources[].requests.cpu resources[].requests.memory resources[].requests.ephemeral-storage",
        "An amount of what every container uses.",
    ),
    Entry::free(
        "workloads[].readinessProbes[].initialDelaySeconds workloads[].readinessProbes[].timeoutSeconds \
         workloads[].readinessProbes[].periodSeconds workloads[].readinessProbes[].successThreshold \
         workloads[].readinessProbes[].failureThreshold \
         workloads[].readinessProbes[].terminationGracePeriodSeconds \
         workloads[].livenessProbes[].initialDelaySeconds workloads[].livenessProbes[].timeoutSeconds \
         workloads[].livenessProbes[].periodSeconds workloads[].livenessProbes[].successThreshold \
         workloads[].livenessProbes[].failureThreshold \
         workloads[].livenessProbes[].terminationGracePeriodSeconds",
        "A number. The probe itself stays that of the release.",
    ),
    Entry::target("clusterProfileRef", "The cluster to install on."),
    Entry::free_for(
        "security.securityGuard.enabled",
        &["false"],
        "Puts a program into all Pods of Revisions, or removes their protection.",
    ),
    Entry::restricted(
        "manifests additionalManifests patches",
        "Objects of any kind, which the operator applies with its own permissions.",
    ),
    Entry::restricted("registry", "Images, which run with the permissions of Knative, and credentials to pull them."),
    Entry::restricted(
        "namespace namespaceConfiguration",
        "Labels of a namespace switch off Pod Security, and select what webhooks and NetworkPolicies are for.",
    ),
    Entry::restricted("controller-custom-certs", "Authorities that Knative trusts."),
    Entry::restricted("defaultBrokerClass", "The controller that receives the events of Brokers."),
    Entry::restricted("sinkBindingSelectionMode", "The namespaces whose workloads a webhook changes."),
    Entry::restricted(
        "ingress.istio.knative-ingress-gateway ingress.istio.knative-local-gateway",
        "Hosts, certificates and Pods that receive requests.",
    ),
    Entry::restricted(
        "ingress.kourier.service-type ingress.kourier.service-load-balancer-ip ingress.kourier.http-port \
         ingress.kourier.https-port",
        "Opens ports of nodes, or takes addresses.",
    ),
    Entry::restricted("ingress.kourier.bootstrap-configmap", "The configuration of Envoy."),
    Entry::restricted(
        "workloads[].labels workloads[].annotations",
        "Other controllers act on them: they inject containers, and select Pods for Services and NetworkPolicies.",
    ),
    Entry::restricted(
        "workloads[].nodeSelector workloads[].tolerations workloads[].affinity \
         workloads[].topologySpreadConstraints",
        "The nodes that Pods run on.",
    ),
    Entry::restricted(
        "workloads[].env",
        "The configuration of programs with the permissions of Knative: proxies, files of credentials, Secrets.",
    ),
    Entry::restricted("workloads[].hostNetwork workloads[].volumeMounts", "Access to the node, or to Secrets."),
    Entry::restricted(
        "workloads[].resources[].limits.* workloads[].resources[].requests.* workloads[].resources[].claims \
         resources[].limits.* resources[].requests.* resources[].claims",
        "Devices, huge pages, and other resources that not every container uses.",
    ),
    Entry::restricted("workloads[].version", "Has no effect."),
    Entry::restricted("services", "Selectors and annotations decide where requests go."),
    Entry::restricted("podDisruptionBudgets", "Can prevent that nodes are drained."),
];
