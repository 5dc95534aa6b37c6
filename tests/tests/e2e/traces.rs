//! Traces: the tree of spans of a reconcile and of a review, at an OTLP receiver; and the fields of
//! log lines.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::product::{self, Product};
use knative_operator_tests::{Result, releases, tools};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::support::{apply, namespace, ready, run, serving};

/// Time limit until spans arrive: the exporter sends them every 5 s.
const LIMIT: Duration = knative_operator_tests::wait::LIMIT;
/// A trace of a client: version, trace, parent span, sampled.
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

type Spans = Arc<Mutex<Vec<(String, Span)>>>;

/// A receiver of traces: collects spans with the name of their service.
async fn receiver() -> Result<(SocketAddr, Spans)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let (address, spans) = (listener.local_addr()?, Spans::default());
    let received = Arc::clone(&spans);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let received = Arc::clone(&received);
            let service = service_fn(move |request: hyper::Request<Incoming>| {
                let received = Arc::clone(&received);
                async move {
                    let body = request.into_body().collect().await.map(http_body_util::Collected::to_bytes);
                    let request = ExportTraceServiceRequest::decode(body.unwrap_or_default()).unwrap_or_default();
                    let mut received = received.lock().unwrap_or_else(PoisonError::into_inner);
                    for resource in request.resource_spans {
                        let attributes = resource.resource.map(|resource| resource.attributes).unwrap_or_default();
                        let attribute =
                            |name: &str| attributes.iter().find(|a| a.key == name).map(|a| text(a.value.as_ref()));
                        let service = attribute("service.name").unwrap_or_default();
                        let spans = resource.scope_spans.into_iter().flat_map(|scope| scope.spans);
                        received.extend(spans.map(|span| (service.clone(), span)));
                    }
                    Ok::<_, Infallible>(hyper::Response::new(Full::<hyper::body::Bytes>::default()))
                }
            });
            tokio::spawn(async move {
                // The exporter closes its connection.
                let _ =
                    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    Ok((address, spans))
}

fn text(value: Option<&opentelemetry_proto::tonic::common::v1::AnyValue>) -> String {
    match value.and_then(|value| value.value.as_ref()) {
        Some(Any::StringValue(text)) => text.clone(),
        Some(Any::IntValue(number)) => number.to_string(),
        _ => String::new(),
    }
}

fn attributes(span: &Span) -> BTreeMap<String, String> {
    span.attributes.iter().map(|a| (a.key.clone(), text(a.value.as_ref()))).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Waits until `find` finds something in the received spans.
async fn until<T>(spans: &Spans, what: &str, find: impl Fn(&[(String, Span)]) -> Option<T>) -> Result<T> {
    let deadline = Instant::now() + LIMIT;
    loop {
        let received = spans.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(found) = find(&received) {
            return Ok(found);
        }
        if Instant::now() > deadline {
            let names: Vec<_> = received.iter().map(|(service, span)| format!("{service} {}", span.name)).collect();
            return Err(format!("no {what} in {} spans: {names:?}", received.len()).into());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// The spans below `parent`, one line each; equal ones are counted.
fn tree(spans: &[(String, Span)], parent: &Span, depth: usize, text: &mut String) {
    let duration = |span: &Span| Duration::from_nanos(span.end_time_unix_nano - span.start_time_unix_nano);
    let _ = writeln!(text, "{}{} {:.1?}", "  ".repeat(depth), parent.name, duration(parent));
    let mut below: Vec<&Span> =
        spans.iter().map(|(_, span)| span).filter(|s| s.parent_span_id == parent.span_id).collect();
    below.sort_by_key(|span| span.start_time_unix_nano);
    let mut counted: HashMap<&str, usize> = HashMap::new();
    for span in &below {
        *counted.entry(&span.name).or_default() += 1;
    }
    let mut shown: HashMap<&str, usize> = HashMap::new();
    for span in below {
        let number = shown.entry(&span.name).or_default();
        *number += 1;
        match (*number, counted[span.name.as_str()]) {
            (1, _) => tree(spans, span, depth + 1, text),
            (2, count) => {
                let _ = writeln!(text, "{}{} ({} more)", "  ".repeat(depth + 1), span.name, count - 1);
            }
            _ => {}
        }
    }
}

#[test]
fn reconciles_and_reviews_are_traced() {
    run(async {
        let (hub, spoke) = tokio::try_join!(Cluster::hub("traces-hub"), Cluster::spoke("traces-spoke"))?;
        let (address, spans) = receiver().await?;
        let (releases, plugins) = (releases::small(), tempfile::tempdir()?);
        let mut values = product::values(&[]);
        values["tracing"] = json!({"endpoint": format!("http://{address}")});
        values["knative_operator"]["knative_operator"]["logLevel"] = json!("info");
        let product = Product::create(&hub, &releases, values, plugins.path()).await?;
        product::register(&hub, &spoke, "one").await?;
        namespace(&hub, "traced").await?;
        let resource = serving("traced", "ks", Some("one"), &releases);
        apply(&hub, &resource).await?;
        ready(&hub, &resource).await?;

        // The reconcile that installed: its steps, the plugin, and the requests to the spoke.
        let is_install = |span: &Span, spans: &[(String, Span)]| {
            let is_below = |other: &&(String, Span)| other.1.trace_id == span.trace_id && other.1.name == "write";
            span.name == "reconcile" && spans.iter().filter(is_below).count() > 10
        };
        let root = until(&spans, "reconcile that installs", |spans| {
            spans.iter().find(|(_, span)| is_install(span, spans)).cloned()
        })
        .await?;
        assert_eq!(root.0, "knative-operator");
        let fields = attributes(&root.1);
        let expected = [
            ("kind", "KnativeServing"),
            ("namespace", "traced"),
            ("name", "ks"),
            ("cluster", "fleet-system/one"),
            ("generation", "1"),
        ];
        for (key, value) in expected {
            assert_eq!(fields.get(key).map(String::as_str), Some(value), "{key}: {fields:?}");
        }
        let received = spans.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut shape = String::new();
        tree(&received, &root.1, 0, &mut shape);
        println!("{shape}");
        for line in ["\n  resolve", "\n  install", "\n    render", "\n    apply", "\n      write", "\n        request"]
        {
            assert!(shape.contains(line), "{line}: {shape}");
        }
        // This reconcile writes the status; or the next one, if the spec changed less than 250 ms
        // before. A long apply writes its progress as well.
        until(&spans, "write_status", |spans| {
            let of = |name: &'static str| spans.iter().map(|(_, span)| span).filter(move |span| span.name == name);
            of("reconcile").find(|own| of("write_status").any(|write| write.parent_span_id == own.span_id)).cloned()
        })
        .await?;
        let plugin = received.iter().find(|(_, span)| span.name == "credential_plugin").ok_or("no plugin")?;
        assert_eq!(attributes(&plugin.1).get("provider").map(String::as_str), Some("secretreader"));
        let all = received.iter().map(|(_, span)| format!("{:?}", attributes(span))).collect::<String>();
        assert!(!all.contains("eyJ"), "a token is in the traces");

        // A review belongs to the trace of its client.
        let (webhook, _) = product.webhook.as_ref().ok_or("no webhook")?;
        let url = product::webhook_addresses(&[webhook])[0];
        let client = reqwest::Client::builder().tls_danger_accept_invalid_certs(true).build()?;
        let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "u",
            "kind": {"group": "operator.knative.dev", "version": "v1beta1", "kind": "KnativeServing"},
            "resource": {"group": "operator.knative.dev", "version": "v1beta1", "resource": "knativeservings"},
            "operation": "CREATE", "namespace": "traced", "name": "x", "userInfo": {}, "object": resource}});
        let request = client.post(format!("https://{url}/validate"));
        let answer =
            request.header("traceparent", format!("00-{TRACE}-{PARENT}-01")).body(review.to_string()).send().await?;
        assert!(answer.status().is_success(), "{}", answer.status());
        let review = until(&spans, "review", |spans| {
            spans.iter().find(|(_, span)| span.name == "review" && hex(&span.trace_id) == TRACE).cloned()
        })
        .await?;
        assert_eq!((review.0.as_str(), hex(&review.1.parent_span_id).as_str()), ("knative-operator-webhook", PARENT));

        // Log lines of a reconcile have its fields.
        let log = product.operator.process.log();
        let lines: Vec<Value> = log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        // Each message of this run is in the documents.
        let page = std::fs::read_to_string(tools::project().join("docs/operate/traces.md"))?;
        for line in lines.iter().filter(|line| line["level"] != "DEBUG") {
            let message = format!("| `{}` |", line["message"].as_str().unwrap_or_default());
            assert!(page.contains(&message), "docs/operate/traces.md: {line}");
        }
        let line = lines.iter().find(|line| line["reason"] == "InstallSucceeded").ok_or("no event in the log")?;
        for (key, value) in expected.iter().filter(|(key, _)| *key != "generation") {
            assert_eq!(line[*key], json!(value), "{line}");
        }
        assert_eq!(line["generation"], json!(1), "{line}");
        assert_eq!(line["reconcile_id"].as_str().map(str::len), Some(16), "{line}");
        Ok(())
    });
}
