//! `/healthz`, `/readyz`, `/metrics` and, where it is enabled, `/debug`.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::{MethodRouter, get};
use clap::Args;
use kube::Client;
use prometheus_client::registry::Registry;
use rustls::server::ResolvesServerCert;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::metrics_access::MetricsAccess;
use crate::ready::Readiness;
use crate::spaced::Spaced;
use crate::tls_server;

/// Media type of the metrics (OpenMetrics 1.0).
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Media type of `/debug`.
const JSON: &str = "application/json";

/// Makes what `/debug` answers.
pub type DebugReport = Arc<dyn Fn() -> serde_json::Value + Send + Sync>;

/// Flags of the admin server.
#[derive(Args, Clone, Debug)]
pub struct AdminArgs {
    /// Address to listen on.
    #[arg(long, env = "BIND_ADDRESS", default_value = "0.0.0.0")]
    pub bind_address: IpAddr,
    /// Port for /healthz, /readyz and /metrics.
    #[arg(long, env = "METRICS_PORT", default_value_t = 9090)]
    pub metrics_port: u16,
    /// Serve /metrics over TLS, to users with the verb get for this path. /healthz and /readyz move
    /// to --health-port.
    #[arg(long)]
    pub secure_metrics: bool,
    /// Port for /healthz and /readyz, if metrics are secure.
    #[arg(long, env = "HEALTH_PORT", default_value_t = 8081)]
    pub health_port: u16,
}

/// Why the admin server ended.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// It can't listen.
    #[error("cannot listen on {0}")]
    Bind(SocketAddr, #[source] std::io::Error),
}

impl AdminArgs {
    /// Serves until `stop`. Fails immediately if it can't listen. Secure metrics have the
    /// certificate of `certificate`; `client` asks the API server who may read them. Those may read
    /// `debug`, too; it is served with secure metrics only.
    pub async fn serve(
        self,
        readiness: Readiness,
        registry: Registry,
        certificate: Arc<dyn ResolvesServerCert>,
        client: Client,
        debug: Option<DebugReport>,
        stop: CancellationToken,
    ) -> Result<(), AdminError> {
        let metrics = Router::new().route("/metrics", answering(OPEN_METRICS, move || encode(&registry)));
        let health = Router::new()
            .route("/healthz", get(|| async { "ok" }))
            .route("/readyz", get(move || std::future::ready(ready(&readiness))));
        let address = SocketAddr::new(self.bind_address, self.metrics_port);
        if !self.secure_metrics {
            let listener = listen(address).await?;
            tls_server::serve_plain(listener, metrics.merge(health), stop).await;
            return Ok(());
        }
        let (secure, plain) =
            (listen(address).await?, listen(SocketAddr::new(self.bind_address, self.health_port)).await?);
        let metrics = match debug {
            // A value always serializes.
            Some(report) => {
                metrics.route("/debug", answering(JSON, move || serde_json::to_vec(&report()).unwrap_or_default()))
            }
            None => metrics,
        };
        let check = axum::middleware::from_fn_with_state(MetricsAccess::new(client), MetricsAccess::check);
        let secure = tls_server::serve_few(secure, certificate, metrics.layer(check), stop.clone());
        tokio::join!(secure, tls_server::serve_plain(plain, health, stop));
        Ok(())
    }
}

async fn listen(address: SocketAddr) -> Result<TcpListener, AdminError> {
    TcpListener::bind(address).await.map_err(|error| AdminError::Bind(address, error))
}

fn ready(readiness: &Readiness) -> impl IntoResponse + use<> {
    match readiness.missing() {
        missing if missing.is_empty() => (StatusCode::OK, "ok".to_owned()),
        missing => (StatusCode::SERVICE_UNAVAILABLE, format!("waiting for {}", missing.join(", "))),
    }
}

/// Answers what `make` makes, which has this media type.
fn answering(media_type: &'static str, make: impl Fn() -> Vec<u8> + Send + Sync + 'static) -> MethodRouter {
    let answer = Arc::new(Spaced::new(make));
    get(move || {
        let answer = Arc::clone(&answer);
        async move { ([(header::CONTENT_TYPE, media_type)], answer.get().await) }
    })
}

fn encode(registry: &Registry) -> Vec<u8> {
    let mut text = String::new();
    // Writing to a String can't fail.
    let _ = prometheus_client::encoding::text::encode(&mut text, registry);
    text.into_bytes()
}
