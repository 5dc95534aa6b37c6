//! Flags, and the wiring of the process.

use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use knative_operator_certs::issue::Lifetimes;
use knative_operator_certs::{Keeper, Served, Settings};
use knative_operator_runtime::hub::{HubArgs, HubError};
use knative_operator_runtime::log::LogArgs;
use knative_operator_runtime::ready::Readiness;
use knative_operator_runtime::{admin, chain, process, signal};
use tokio::net::TcpListener;

use crate::metrics::Metrics;
use crate::{routes, serve};

/// Admission webhook for KnativeServing and KnativeEventing.
#[derive(Debug, Parser)]
#[command(name = "knative-operator-webhook", version)]
pub struct Args {
    #[command(flatten)]
    log: LogArgs,
    #[command(flatten)]
    hub: HubArgs,
    /// Address to listen on.
    #[arg(long, env = "BIND_ADDRESS", default_value = "0.0.0.0")]
    bind_address: IpAddr,
    /// Port for admission reviews, over TLS.
    #[arg(long, env = "WEBHOOK_PORT", default_value_t = 8443)]
    port: u16,
    /// Port for /healthz, /readyz and /metrics.
    #[arg(long, env = "METRICS_PORT", default_value_t = 9090)]
    metrics_port: u16,
    /// Namespace of the Secret and the Service.
    #[arg(long, env = "SYSTEM_NAMESPACE", default_value = "knative-operator")]
    namespace: String,
    /// Name of the Service that the API server calls.
    #[arg(long, env = "WEBHOOK_NAME", default_value = "operator-webhook")]
    service: String,
    /// Name of the Secret that holds the certificates.
    #[arg(long, env = "WEBHOOK_SECRET_NAME", default_value = "operator-webhook-certs")]
    secret: String,
    /// Name of the ValidatingWebhookConfiguration.
    #[arg(long, default_value = "validation.operator.knative.dev")]
    validating_configuration: String,
    /// Name of the MutatingWebhookConfiguration.
    #[arg(long, default_value = "defaulting.operator.knative.dev")]
    mutating_configuration: String,
    /// Life of the authority, in hours. Renewed after two thirds.
    #[arg(long, default_value_t = 24 * 365)]
    authority_hours: u32,
    /// Life of the certificate, in hours. Renewed after two thirds.
    #[arg(long, default_value_t = 24 * 30)]
    certificate_hours: u32,
}

/// Why the process ended.
#[derive(Debug, thiserror::Error)]
enum RunError {
    #[error(transparent)]
    Hub(#[from] HubError),
    #[error("{0} can't be listened on")]
    Bind(SocketAddr, #[source] std::io::Error),
    #[error("signals can't be received")]
    Signal(#[source] std::io::Error),
}

impl Args {
    /// Runs the webhook until it is told to stop.
    pub fn run(self) -> ExitCode {
        let log = self.log.clone();
        process::run(&log, self.serve())
    }

    async fn serve(self) -> Result<(), RunError> {
        let Self {
            log: _,
            hub,
            bind_address,
            port,
            metrics_port,
            namespace,
            service,
            secret,
            validating_configuration,
            mutating_configuration,
            authority_hours,
            certificate_hours,
        } = self;
        let stop = signal::stop().map_err(RunError::Signal)?;
        let client = hub.client().await?;
        let readiness = Readiness::waiting_for(&["certificate"]);
        let (metrics, registry) = Metrics::registered();

        let address = SocketAddr::new(bind_address, port);
        let listener = TcpListener::bind(address).await.map_err(|e| RunError::Bind(address, e))?;
        let names = [format!("{service}.{namespace}.svc"), format!("{service}.{namespace}.svc.cluster.local")];
        let lifetimes =
            Lifetimes { authority: time::Duration::hours(authority_hours.into()), leaf: time::Duration::hours(certificate_hours.into()) };
        let settings = Settings {
            namespace,
            secret,
            names: names.to_vec(),
            validating: validating_configuration,
            mutating: mutating_configuration,
            lifetimes,
        };
        let served = Served::default();
        let keeper = Keeper::new(client, settings, served.clone());
        let (ready, gauge) = (readiness.clone(), metrics.clone());
        let keep = keeper.run(move |outcome| match outcome {
            Ok(ends) => {
                ready.set("certificate", true);
                gauge.certificate_ends(ends.map(time::OffsetDateTime::unix_timestamp));
            }
            Err(error) => tracing::warn!(error = chain(error), "certificates are not right yet"),
        });

        let admin_address = SocketAddr::new(bind_address, metrics_port);
        let admin = admin::serve(admin_address, readiness.clone(), Arc::new(registry), stop.clone());
        tracing::info!(%address, %admin_address, version = env!("CARGO_PKG_VERSION"), "listening");
        let admission = serve::serve(listener, served, routes::router(metrics), stop.clone());
        let unready = async {
            stop.cancelled().await;
            readiness.set("shutdown", false);
            std::future::pending::<()>().await;
        };
        tokio::select! {
            // Ends when `stop` has come and what was under way is answered.
            () = admission => Ok(()),
            () = unready => Ok(()),
            result = async { let r = admin.await; if r.is_ok() { std::future::pending::<()>().await } r } => result.map_err(|e| RunError::Bind(admin_address, e)),
            () = keep => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn flags_are_consistent() {
        super::Args::command().debug_assert();
    }
}
