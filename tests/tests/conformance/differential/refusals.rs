//! Rules of the webhook that refuse what the Go operator renders. Each has a row in
//! `docs/user/compatibility.md`.

/// A rule that the Go operator lacks.
pub struct Refusal {
    /// Identifier of the rule.
    pub rule: &'static str,
    /// First column of its row in the document.
    pub row: &'static str,
}

/// What an API server or Knative refuses once the objects are applied, or what they can't use.
const INVALID: &str = "a value that Kubernetes or Knative can't use, such as a quantity with an unknown suffix";

const fn invalid(rule: &'static str) -> Refusal {
    Refusal { rule, row: INVALID }
}

/// All of them.
pub const ALL: &[Refusal] = &[
    Refusal { rule: "ingress-one", row: "two ingresses, or none, without a class in `config.network`" },
    Refusal { rule: "ingress-class", row: "a class in `config.network` of an ingress that isn't enabled" },
    Refusal { rule: "override-twice", row: "two overrides for one name in a list" },
    Refusal { rule: "config-example", row: "`_example` in `spec.config`" },
    invalid("readable"),
    invalid("cluster-profile-ref-name"),
    invalid("manifest-url"),
    invalid("registry-override-key"),
    invalid("image-reference"),
    invalid("image-pull-secret"),
    invalid("high-availability-replicas"),
    invalid("override-name"),
    invalid("replicas"),
    invalid("quantity-syntax"),
    invalid("request-within-limit"),
    invalid("label-syntax"),
    invalid("annotation-syntax"),
    invalid("environment-variable"),
    invalid("toleration"),
    invalid("affinity"),
    invalid("topology-spread"),
    invalid("probe-range"),
    invalid("budget-one-of"),
    invalid("budget-value"),
    invalid("istio-gateway-server"),
    invalid("kourier-service"),
    invalid("kourier-port"),
    invalid("config-key"),
    invalid("config-value"),
    invalid("custom-certificates"),
    invalid("sink-binding-selection-mode"),
    invalid("broker-class"),
];
