//! Flags, and the wiring of the process.

use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use knative_operator_certs::issue::Lifetimes;
use knative_operator_certs::{KeepError, Keeper, Served, Settings, Source, State};
use knative_operator_runtime::duration::duration;
use knative_operator_runtime::hub::{HubArgs, HubError};
use knative_operator_runtime::log::LogArgs;
use knative_operator_runtime::ready::Readiness;
use knative_operator_runtime::{admin, process, signal, words};
use knative_operator_shared::label::WEBHOOK_FIELD_MANAGER;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::known::Known;
use crate::metrics::Metrics;
use crate::{learn, routes, serve};

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
    /// Who issues the certificates.
    #[arg(long, value_enum, default_value_t = Certificates::Own)]
    certificates: Certificates,
    /// Life of the authority, such as 8760h. Replaced after two thirds, in steps that overlap.
    #[arg(long, default_value = "8760h", value_name = "DURATION", value_parser = lifetime)]
    authority_lifetime: Duration,
    /// Life of the certificate, such as 720h. Renewed after two thirds.
    #[arg(long, default_value = "720h", value_name = "DURATION", value_parser = lifetime)]
    certificate_lifetime: Duration,
    /// How long new connections are still taken after SIGTERM, until every API server has heard of it.
    #[arg(long, default_value = "5s", value_name = "DURATION", value_parser = duration)]
    drain_delay: Duration,
}

/// Who issues the certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Certificates {
    /// The webhook itself.
    Own,
    /// Somebody else, such as cert-manager, into the Secret.
    Provided,
}

/// Shortest and longest life of a certificate: a second is as exact as they are, and no calendar has years enough.
const LIVES: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(100 * 365 * 24 * 3600));

fn lifetime(text: &str) -> Result<Duration, String> {
    let life = duration(text)?;
    let fine = (LIVES.0..=LIVES.1).contains(&life);
    if fine { Ok(life) } else { Err("a certificate lives from 5s to 876000h".to_owned()) }
}

/// Why the process ended.
#[derive(Debug, thiserror::Error)]
enum RunError {
    #[error(transparent)]
    Hub(#[from] HubError),
    #[error("{0} can't be listened on")]
    Bind(SocketAddr, #[source] std::io::Error),
    #[error(
        "--authority-lifetime {0:?} is less than twice --certificate-lifetime {1:?}: a certificate must not outlive its authority"
    )]
    Lives(Duration, Duration),
    #[error("signals can't be received")]
    Signal(#[source] std::io::Error),
}

impl Args {
    /// Runs the webhook until it is told to stop.
    pub fn run(self) -> ExitCode {
        let log = self.log.clone();
        // A review takes a tenth of a millisecond: what a second thread costs it does not bring in.
        process::run(&log, 1, self.serve())
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
            certificates,
            authority_lifetime,
            certificate_lifetime,
            drain_delay,
        } = self;
        if authority_lifetime < certificate_lifetime * 2 {
            return Err(RunError::Lives(authority_lifetime, certificate_lifetime));
        }
        let stop = signal::stop().map_err(RunError::Signal)?;
        let client = hub.client(WEBHOOK_FIELD_MANAGER).await?;
        let readiness =
            Readiness::waiting_for(&["a valid certificate whose authority is in the webhook configurations"]);
        let (metrics, registry) = Metrics::registered();

        let address = SocketAddr::new(bind_address, port);
        let listener = TcpListener::bind(address).await.map_err(|e| RunError::Bind(address, e))?;
        let names = [format!("{service}.{namespace}.svc"), format!("{service}.{namespace}.svc.cluster.local")];
        let life = |duration| time::Duration::try_from(duration).unwrap_or(time::Duration::DAY);
        let source = match certificates {
            Certificates::Own => {
                Source::Own(Lifetimes { authority: life(authority_lifetime), leaf: life(certificate_lifetime) })
            }
            Certificates::Provided => Source::Provided,
        };
        let settings = Settings {
            namespace: namespace.clone(),
            secret,
            names: names.to_vec(),
            validating: validating_configuration,
            mutating: mutating_configuration,
            deployment: service.clone(),
            manager: WEBHOOK_FIELD_MANAGER,
            source,
        };
        let served = Served::default();
        let keeper = Keeper::new(client.clone(), settings, served.clone());
        let keep = keeper.run(kept(readiness.clone(), metrics.clone()));
        let known = Known::default();
        let learn = learn::run(client, namespace, known.clone());

        let (draining, drained) = (stop.child_token(), CancellationToken::new());
        let admin_address = SocketAddr::new(bind_address, metrics_port);
        // Until the very end: whoever asks is told that no more reviews are wanted.
        let admin = admin::serve(admin_address, readiness.clone(), Arc::new(registry), drained.clone());
        tracing::info!(%address, %admin_address, version = env!("CARGO_PKG_VERSION"), "listening");
        let delayed = CancellationToken::new();
        let admission = serve::serve(listener, served, routes::router(metrics, known, draining), delayed.clone());
        let drain = async {
            stop.cancelled().await;
            readiness.set("the end: it is shutting down", false);
            // Who hasn't heard of it yet goes on sending for a moment; each answer is the last on its connection.
            tokio::time::sleep(drain_delay).await;
            delayed.cancel();
            std::future::pending::<()>().await;
        };
        tokio::select! {
            // Ends when `delayed` has come and what was under way is answered.
            () = admission => Ok(()),
            () = drain => Ok(()),
            result = async { let r = admin.await; if r.is_ok() { std::future::pending::<()>().await } r } => result.map_err(|e| RunError::Bind(admin_address, e)),
            () = keep => Ok(()),
            () = learn => Ok(()),
        }
    }
}

/// Tells how the certificates are: whoever has one that is trusted and not ended is ready.
fn kept(readiness: Readiness, metrics: Metrics) -> impl FnMut(Result<State, &KeepError>) {
    let mut ends = None;
    move |outcome| {
        match outcome {
            Ok(state) => {
                ends = state.ends;
                let unix = |time: Option<time::OffsetDateTime>| time.map(time::OffsetDateTime::unix_timestamp);
                metrics.certificate(unix(state.ends), unix(state.authority_ends), state.another);
            }
            Err(error) => {
                metrics.certificate_failed();
                tracing::warn!(error = words(error), "certificates are not right yet");
            }
        }
        // What was right a moment ago is good until it ends, whatever the API server says now.
        readiness.set(
            "a valid certificate whose authority is in the webhook configurations",
            ends.is_some_and(|ends| ends > time::OffsetDateTime::now_utc()),
        );
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn flags_are_consistent() {
        super::Args::command().debug_assert();
    }

    #[test]
    fn a_certificate_lives_neither_too_short_nor_too_long() {
        for (text, fine) in [
            ("5s", true),
            ("720h", true),
            ("876000h", true),
            ("0s", false),
            ("4s", false),
            ("99999999h", false),
            ("soon", false),
        ] {
            assert_eq!(super::lifetime(text).is_ok(), fine, "{text}");
        }
    }
}
