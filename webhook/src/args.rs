//! Flags, and the setup of the process.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use knative_operator_certs::issue::Lifetimes;
use knative_operator_certs::{
    CertificateManager, CertificateResolver, CertificateSource, Report, Settings, retreat_with_namespace,
};
use knative_operator_runtime::admin::{AdminArgs, AdminError};
use knative_operator_runtime::duration::{InvalidDuration, duration};
use knative_operator_runtime::hub::{HubArgs, HubError};
use knative_operator_runtime::log::LogArgs;
use knative_operator_runtime::ready::Readiness;
use knative_operator_runtime::tls_server::{self, ClientCa, ClientCaError};
use knative_operator_runtime::{error_text, process, signal};
use knative_operator_shared::label::WEBHOOK_FIELD_MANAGER;
use kube::Client;
use rustls::server::danger::ClientCertVerifier;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::authorization::{Authorizer, Mode};
use crate::cluster_facts::ClusterFacts;
use crate::lifetime::CONTROLLERS;
use crate::live::Live;
use crate::metrics::Metrics;
use crate::{informers, routes};

/// Admission webhook for KnativeServing and KnativeEventing.
#[derive(Debug, Parser)]
// A flag that is given again replaces the one before, as in Go: a patch may append it.
#[command(name = "knative-operator-webhook", version, args_override_self = true)]
pub struct Args {
    #[command(flatten)]
    log: LogArgs,
    #[command(flatten)]
    hub: HubArgs,
    #[command(flatten)]
    admin: AdminArgs,
    /// Port for admission reviews, over TLS.
    #[arg(long, env = "WEBHOOK_PORT", default_value_t = 8443)]
    port: u16,
    /// Namespace of the Secret and the Service.
    #[arg(long, env = "SYSTEM_NAMESPACE", default_value = "knative-operator")]
    namespace: String,
    /// Name of the Service that the API server calls.
    #[arg(long, env = "WEBHOOK_NAME", default_value = "operator-webhook")]
    service: String,
    /// Name of the Secret with the certificates.
    #[arg(long, env = "WEBHOOK_SECRET_NAME", default_value = "operator-webhook-certs")]
    secret: String,
    /// Name of the ValidatingWebhookConfiguration.
    #[arg(long, default_value = "validation.operator.knative.dev")]
    validating_configuration: String,
    /// Name of the MutatingWebhookConfiguration.
    #[arg(long, default_value = "defaulting.operator.knative.dev")]
    mutating_configuration: String,
    /// Issuer of the certificates.
    #[arg(long, value_enum, default_value_t = Certificates::Own)]
    certificates: Certificates,
    /// Lifetime of the authority, such as 8760h. The webhook rotates it after two thirds, in
    /// overlapping steps.
    #[arg(long, default_value = "8760h", value_name = "DURATION", value_parser = lifetime)]
    authority_lifetime: Duration,
    /// Lifetime of the certificate, such as 720h. The webhook renews it after two thirds.
    #[arg(long, default_value = "720h", value_name = "DURATION", value_parser = lifetime)]
    certificate_lifetime: Duration,
    /// File with authorities (PEM) of client certificates. Only clients with a certificate of one
    /// of them can connect to the port for reviews. The file may change.
    #[arg(long, value_name = "FILE")]
    client_ca_file: Option<PathBuf>,
    /// Whether users need permission (verbs use and customize) to target a cluster and to set
    /// fields that not every user may set.
    #[arg(long, value_enum, default_value_t)]
    authorization: Mode,
    /// Whether resources without a ClusterProfile, for this cluster itself, may be created.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, value_name = "BOOL")]
    local_installation: bool,
    /// Name of the operator's ServiceAccount, which needs no permission.
    #[arg(long, default_value = "knative-operator", value_name = "NAME")]
    operator_service_account: String,
    /// Time after SIGTERM in which the webhook still accepts connections, until every API server
    /// has noticed.
    #[arg(long, default_value = "5s", value_name = "DURATION", value_parser = duration)]
    drain_delay: Duration,
}

/// Issuer of the certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Certificates {
    /// The webhook itself.
    Own,
    /// Someone else, such as cert-manager, writes the Secret.
    Provided,
}

/// Minimum and maximum lifetime of a certificate: their resolution is a second, and years have four
/// digits.
const LIFETIMES: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(100 * 365 * 24 * 3600));

/// A text is no lifetime of a certificate.
#[derive(Debug, thiserror::Error)]
enum InvalidLifetime {
    #[error(transparent)]
    Duration(#[from] InvalidDuration),
    #[error("the lifetime of a certificate must be from 5s to 876000h")]
    OutOfRange,
}

fn lifetime(text: &str) -> Result<Duration, InvalidLifetime> {
    let life = duration(text)?;
    let is_valid = (LIFETIMES.0..=LIFETIMES.1).contains(&life);
    if is_valid { Ok(life) } else { Err(InvalidLifetime::OutOfRange) }
}

/// Why the process ended.
#[derive(Debug, thiserror::Error)]
enum RunError {
    #[error(transparent)]
    Hub(#[from] HubError),
    #[error(transparent)]
    Admin(AdminError),
    #[error("cannot listen on {0}")]
    Bind(SocketAddr, #[source] std::io::Error),
    #[error(
        "--authority-lifetime {0:?} is less than twice --certificate-lifetime {1:?}: a certificate must not outlive its authority"
    )]
    Lifetimes(Duration, Duration),
    #[error("cannot receive signals")]
    Signal(#[source] std::io::Error),
    #[error("--client-ca-file")]
    ClientCa(#[from] ClientCaError),
}

impl Args {
    /// Runs the webhook until it receives a signal.
    pub fn run(self) -> ExitCode {
        let log = self.log.clone();
        // A review takes 0.1 ms: a second thread costs more than it gains.
        process::run(WEBHOOK_FIELD_MANAGER, &log, 1, self.serve())
    }

    async fn serve(self) -> Result<(), RunError> {
        if self.authority_lifetime < self.certificate_lifetime * 2 {
            return Err(RunError::Lifetimes(self.authority_lifetime, self.certificate_lifetime));
        }
        let clients = self.client_ca_file.clone().map(ClientCa::read).transpose()?;
        let clients = clients.map(|clients| Arc::new(clients) as Arc<dyn ClientCertVerifier>);
        let stop = signal::stop().map_err(RunError::Signal)?;
        let client = self.hub.client(WEBHOOK_FIELD_MANAGER).await?;
        let readiness =
            Readiness::waiting_for(&["a valid certificate whose authority is in the webhook configurations"]);
        let (metrics, registry) = Metrics::registered();

        let address = SocketAddr::new(self.admin.bind_address, self.port);
        let listener = TcpListener::bind(address).await.map_err(|e| RunError::Bind(address, e))?;
        let resolver = CertificateResolver::default();
        let manager = CertificateManager::new(client.clone(), self.certificate_settings(), resolver.clone());
        let certificates = manager.run(report_state(readiness.clone(), metrics.clone()));
        let watching = client.clone();
        let retreat = retreat_with_namespace(
            &watching,
            WEBHOOK_FIELD_MANAGER,
            &self.namespace,
            &self.validating_configuration,
            &self.mutating_configuration,
        );
        let facts = ClusterFacts::default();
        let authorizer = self.authorizer(client.clone(), metrics.clone());
        let live = Live::new(client.clone());
        let informers = informers::run(client.clone(), self.namespace.clone(), facts.clone());

        let (draining, drained) = (stop.child_token(), CancellationToken::new());
        // Served until the end, to report that the webhook is not ready.
        let certificate = Arc::new(resolver.clone());
        let admin = self.admin.serve(readiness.clone(), registry, certificate, client, None, drained.clone());
        tracing::info!(%address, version = env!("CARGO_PKG_VERSION"), "listening");
        let delayed = CancellationToken::new();
        let admission = tls_server::serve(
            listener,
            Arc::new(resolver),
            clients,
            routes::router(metrics, facts, authorizer, live, draining),
            delayed.clone(),
        );
        let drain_delay = self.drain_delay;
        let drain = async {
            stop.cancelled().await;
            readiness.set("shutdown", false);
            // API servers that haven't noticed continue to send for a moment; each response closes
            // its connection.
            tokio::time::sleep(drain_delay).await;
            delayed.cancel();
            std::future::pending::<()>().await;
        };
        tokio::select! {
            // Ends after `delayed`, once reviews in progress are answered.
            () = admission => Ok(()),
            () = drain => Ok(()),
            result = async { let r = admin.await; if r.is_ok() { std::future::pending::<()>().await } r } => result.map_err(RunError::Admin),
            () = certificates => Ok(()),
            () = informers => Ok(()),
            () = retreat => Ok(()),
        }
    }

    fn certificate_settings(&self) -> Settings {
        let (service, namespace) = (&self.service, &self.namespace);
        let life = |duration| time::Duration::try_from(duration).unwrap_or(time::Duration::DAY);
        let source = match self.certificates {
            Certificates::Own => CertificateSource::Own(Lifetimes {
                authority: life(self.authority_lifetime),
                leaf: life(self.certificate_lifetime),
            }),
            Certificates::Provided => CertificateSource::Provided,
        };
        Settings {
            namespace: namespace.clone(),
            secret: self.secret.clone(),
            names: vec![format!("{service}.{namespace}.svc"), format!("{service}.{namespace}.svc.cluster.local")],
            validating: self.validating_configuration.clone(),
            mutating: self.mutating_configuration.clone(),
            deployment: service.clone(),
            manager: WEBHOOK_FIELD_MANAGER,
            source,
        }
    }

    fn authorizer(&self, client: Client, metrics: Metrics) -> Authorizer {
        // The garbage collector only removes owners that are gone, and the namespace controller
        // what is in a namespace that somebody was permitted to delete.
        let operator = format!("system:serviceaccount:{}:{}", self.namespace, self.operator_service_account);
        let exempt = CONTROLLERS.map(str::to_owned).into_iter().chain([operator]).collect();
        Authorizer::new(self.authorization, self.local_installation, exempt, client, metrics)
    }
}

/// Reports the state of the certificates: the webhook is ready with a trusted certificate that has
/// not expired.
fn report_state(readiness: Readiness, metrics: Metrics) -> impl FnMut(Report<'_>) {
    let mut expires = None;
    move |report| {
        metrics.set_suspended(report.suspended);
        match report.certificates {
            Ok(state) => {
                expires = state.certificate.map(|validity| validity.expires);
                metrics.set_certificate(&state);
            }
            Err(error) => {
                metrics.count_certificate_failure();
                tracing::warn!(error = error_text(error), "failed to manage the certificates");
            }
        }
        // A certificate stays valid until it expires, even if the API server is unreachable.
        readiness.set(
            "a valid certificate whose authority is in the webhook configurations",
            expires.is_some_and(|expires| expires > time::OffsetDateTime::now_utc()),
        );
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    #[test]
    fn flags_are_consistent() {
        super::Args::command().debug_assert();
    }

    #[test]
    fn repeated_flag_replaces_the_one_before() {
        let args = super::Args::try_parse_from(["x", "--port=1", "--port=2"]).unwrap();
        assert_eq!(args.port, 2);
    }

    #[test]
    fn lifetime_has_minimum_and_maximum() {
        for (text, is_valid) in [
            ("5s", true),
            ("720h", true),
            ("876000h", true),
            ("0s", false),
            ("4s", false),
            ("99999999h", false),
            ("soon", false),
        ] {
            assert_eq!(super::lifetime(text).is_ok(), is_valid, "{text}");
        }
    }
}
