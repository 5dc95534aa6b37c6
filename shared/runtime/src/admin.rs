//! `/healthz`, `/readyz` and `/metrics`.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::ready::Readiness;

/// Media type of the metrics (OpenMetrics 1.0).
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Serves on `address` until `stop`. Fails immediately if it can't bind the address.
pub async fn serve(
    address: SocketAddr,
    readiness: Readiness,
    registry: Arc<Registry>,
    stop: CancellationToken,
) -> std::io::Result<()> {
    let router = Router::new()
        .route("/healthz", get(|| async { "ok" }))
        .route("/readyz", get(move || std::future::ready(ready(&readiness))))
        .route("/metrics", get(move || std::future::ready(metrics(&registry))));
    let listener = TcpListener::bind(address).await?;
    axum::serve(listener, router).with_graceful_shutdown(stop.cancelled_owned()).await
}

fn ready(readiness: &Readiness) -> impl IntoResponse + use<> {
    match readiness.missing() {
        missing if missing.is_empty() => (StatusCode::OK, "ok".to_owned()),
        missing => (StatusCode::SERVICE_UNAVAILABLE, format!("waiting for {}", missing.join(", "))),
    }
}

fn metrics(registry: &Registry) -> impl IntoResponse + use<> {
    let mut text = String::new();
    // Writing to a String can't fail.
    let _ = prometheus_client::encoding::text::encode(&mut text, registry);
    ([(header::CONTENT_TYPE, OPEN_METRICS)], text)
}
