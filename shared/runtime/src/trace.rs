//! Traces in the OpenTelemetry protocol (OTLP over HTTP). Off, unless the standard environment
//! variables name an endpoint.

use std::time::Duration;

use async_trait::async_trait;
use http::{HeaderMap, Request, Response};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use opentelemetry::KeyValue;
use opentelemetry::trace::TracerProvider;
use opentelemetry_http::hyper::HyperClient;
use opentelemetry_http::{Bytes, HeaderExtractor, HttpClient, HttpError};
use opentelemetry_otlp::{SpanExporter, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use tokio::runtime::Handle;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

/// Time limit of an export.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Variables that name the endpoint.
const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];
/// Variables that name the protocol.
const PROTOCOLS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"];
/// The protocol that is supported.
const PROTOCOL: &str = "http/protobuf";
/// The spans that are exported: those of the operator and the webhook, and requests to the hub.
pub const FILTER: &str = "off,knative_operator=debug,knative_operator_webhook=debug,kube_client=debug";

/// Why traces can't be exported.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The protocol is not supported.
    #[error("{0}={1} is not supported; use {PROTOCOL}")]
    Protocol(&'static str, String),
    /// The system's certificates can't be read.
    #[error("cannot read the certificates of the system")]
    Certificates(#[source] std::io::Error),
    /// A variable is invalid.
    #[error("cannot export traces")]
    Exporter(#[source] opentelemetry_otlp::ExporterBuildError),
}

/// The exporter of traces.
#[derive(Clone, Debug)]
pub struct Traces(SdkTracerProvider);

impl Traces {
    /// The exporter of `program` that the environment asks for, if it does.
    ///
    /// # Errors
    ///
    /// If a variable is invalid.
    pub fn from_environment(program: &'static str) -> Result<Option<Self>, TraceError> {
        let set = |name: &&'static str| std::env::var(name).ok().filter(|value| !value.is_empty()).map(|v| (*name, v));
        let is =
            |name: &'static str, wanted: &str| set(&name).is_some_and(|(_, value)| value.eq_ignore_ascii_case(wanted));
        if !ENDPOINTS.iter().any(|name| set(name).is_some())
            || is("OTEL_SDK_DISABLED", "true")
            || is("OTEL_TRACES_EXPORTER", "none")
        {
            return Ok(None);
        }
        if let Some((name, protocol)) = PROTOCOLS.iter().find_map(set).filter(|(_, protocol)| protocol != PROTOCOL) {
            return Err(TraceError::Protocol(name, protocol));
        }
        let builder = HttpsConnectorBuilder::new().with_native_roots().map_err(TraceError::Certificates)?;
        let connector = builder.https_or_http().enable_http1().build();
        let client = Client { client: HyperClient::new(connector, TIMEOUT, None), runtime: Handle::current() };
        let exporter =
            SpanExporter::builder().with_http().with_http_client(client).build().map_err(TraceError::Exporter)?;
        let name = KeyValue::new("service.name", program);
        let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
        // Variables win: OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES.
        let named = is_set("OTEL_SERVICE_NAME");
        let resource =
            Resource::builder().with_attributes([version].into_iter().chain((!named).then_some(name))).build();
        opentelemetry::global::set_text_map_propagator(TraceContextPropagator::new());
        Ok(Some(Self(SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource).build())))
    }

    /// The tracer.
    pub fn tracer(&self) -> SdkTracer {
        self.0.tracer("knative-operator")
    }

    /// Exports what is left. Blocks, so it needs a thread of its own.
    pub fn shutdown(&self) {
        // A collector that is away must not delay the end.
        let _ = self.0.shutdown_with_timeout(Duration::from_secs(2));
    }
}

fn is_set(name: &str) -> bool {
    std::env::var_os(name).is_some_and(|value| !value.is_empty())
}

/// Makes `span` a child of the span in `headers` (`traceparent`), if traces are on and it has one.
pub fn continue_trace(span: &Span, headers: &HeaderMap) {
    if span.is_disabled() {
        return;
    }
    let parent = opentelemetry::global::get_text_map_propagator(|p| p.extract(&HeaderExtractor(headers)));
    // Err means that no layer for traces is there.
    let _ = span.set_parent(parent);
}

/// An HTTP client that works on the threads of `runtime`: the exporter has a thread of its own.
#[derive(Clone, Debug)]
struct Client {
    client: HyperClient<HttpsConnector<HttpConnector>>,
    runtime: Handle,
}

#[async_trait]
impl HttpClient for Client {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let client = self.client.clone();
        self.runtime.spawn(async move { client.send_bytes(request).await }).await?
    }
}
