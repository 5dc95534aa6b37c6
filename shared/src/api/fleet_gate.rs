//! Gates of a stage of a rollout: what is measured on a cluster before its update succeeds.

use k8s_openapi::api::batch::v1::JobSpec;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::strict;

/// Seconds between a measurement and the next one, by default.
const INTERVAL: u32 = 10;

/// A gate: exactly one of `http`, `event` and `job` is measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Gate {
    /// Name, unique in its stage: a DNS label.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// Sends a request through the API server of the cluster to a Service there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpGate>,
    /// Sends an event to a Broker on the cluster, and waits until it arrives at a Service there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<EventGate>,
    /// Runs a Job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobGate>,
    /// Number of measurements that must succeed. Defaults to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub count: Option<i32>,
    /// Number of measurements that may fail: the gate fails with the next one. Defaults to 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1000))]
    pub failure_limit: Option<i32>,
    /// Seconds between a measurement and the next one. Defaults to 10.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 86_400))]
    pub interval_seconds: Option<i32>,
    /// Seconds that a measurement may take: at most 600, or for a Job a day. Defaults to 30 (of a
    /// Job: 600).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 86_400))]
    pub timeout_seconds: Option<i32>,
}

/// A request to a Service on the cluster, and the response that is expected.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HttpGate {
    /// The Service that gets the request, such as that of an ingress gateway.
    pub service: GateService,
    /// Header `Host` of the request: the host of a Knative Service, if a gateway gets the request.
    /// Without it, the header has the host of the API server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub host: Option<String>,
    /// Path of the request, with its query. Defaults to `/`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 2048))]
    pub path: Option<String>,
    /// Status of the response. Redirects are not followed. Defaults to 200.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 200, max = 599))]
    pub expected_status: Option<i32>,
    /// Text in the first 64 KiB of the response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub expected_body: Option<String>,
    /// Maximum time until the whole response is there, in milliseconds, with the way through the
    /// API server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 86_400_000))]
    pub max_latency_milliseconds: Option<i32>,
}

/// A port of a Service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GateService {
    /// Namespace of the Service.
    #[schemars(length(min = 1, max = 63))]
    pub namespace: String,
    /// Name of the Service.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// Number of the port, which speaks HTTP. Defaults to 80.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65_535))]
    pub port: Option<i32>,
}

/// An event, and where it arrives.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EventGate {
    /// The Broker that gets the event.
    pub broker: GateBroker,
    /// Type of the event. Defaults to `dev.knative.operator.gate`.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub type_: Option<String>,
    /// A request whose response has the ID of the event after it arrived. It is sent once a second.
    pub reply: HttpGate,
}

/// A Broker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GateBroker {
    /// Namespace of the Broker.
    #[schemars(length(min = 1, max = 63))]
    pub namespace: String,
    /// Name of the Broker.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// A Job, which succeeds if it completes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobGate {
    /// Namespace on the cluster in which the Job runs.
    #[schemars(length(min = 1, max = 63))]
    pub namespace: String,
    /// Spec of the Job (`batch/v1`). Its containers get environment variables with the cluster, the
    /// stage, the revisions and the versions.
    pub spec: Map<String, Value>,
}

impl Gate {
    /// Number of measurements that must succeed.
    pub fn count(&self) -> i32 {
        self.count.unwrap_or(1)
    }

    /// Number of measurements that may fail.
    pub fn failure_limit(&self) -> i32 {
        self.failure_limit.unwrap_or_default()
    }

    /// Seconds between a measurement and the next one.
    pub fn interval_seconds(&self) -> u32 {
        self.interval_seconds.and_then(|seconds| u32::try_from(seconds).ok()).unwrap_or(INTERVAL)
    }
}

impl GateService {
    /// Number of the port.
    pub fn port(&self) -> i32 {
        self.port.unwrap_or(80)
    }
}

impl HttpGate {
    /// Path of the request.
    pub fn path(&self) -> &str {
        self.path.as_deref().unwrap_or("/")
    }

    /// Status of the response.
    pub fn expected_status(&self) -> i32 {
        self.expected_status.unwrap_or(200)
    }
}

impl JobGate {
    /// The spec as a Job has it.
    ///
    /// # Errors
    ///
    /// The field that has another type.
    pub fn job_spec(&self) -> Result<JobSpec, serde_json::Error> {
        strict::read(&Value::Object(self.spec.clone()))
    }
}
