//! The way to a spoke, with the operator's own code: profile, provider, credential, connection.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use knative_operator_cluster_access::Unmeasured;
use knative_operator_cluster_access::connections::Connections;
use knative_operator_cluster_access::credential::CredentialFetcher;
use knative_operator_cluster_access::profile::{self, insecurity};
use knative_operator_cluster_access::provider::Providers;
use knative_operator_cluster_access::secret::SecretReader;
use knative_operator_runtime::error_text;
use knative_operator_runtime::inventory::InventoryKind;
use knative_operator_shared::api::cluster_profile::HEALTHY;
use knative_operator_shared::api::{ClusterProfile, ClusterProfileReference};
use knative_operator_shared::label::FIELD_MANAGER;
use knative_operator_shared::reason::Reason;
use kube::Client;

use super::check::{Finding, Id, Report};
use crate::command::access_args::AccessArgs;
use knative_operator_cluster_access::profiles::ClusterProfiles;
use knative_operator_overview::preflight_remedy::PREFLIGHT;
use knative_operator_overview::remedy::{self, RESOLVED};
use knative_operator_overview::unresolved::{ANNOTATIONS, unbound};
use knative_operator_overview::{Advice, Names, Unresolved};

/// Where the chart mounts the provider file.
const MOUNTED: &str = "/etc/cluster-inventory/config.json";

/// What leads to spokes.
pub struct Ways {
    /// The ClusterProfiles.
    pub profiles: ClusterProfiles,
    providers: Providers,
    access: AccessArgs,
    connections: Connections,
}

/// The provider file at `path`, or that of the operator's Pod.
pub fn providers(path: Option<&Path>) -> Result<Providers, String> {
    let mounted = Some(Path::new(MOUNTED)).filter(|path| path.exists());
    let path = path.or(mounted).ok_or_else(|| {
        format!(
            "there is no provider file {MOUNTED}, which leads to the clusters; run the command in the operator's Pod, \
             name another file with --clusterprofile-provider-file, or check a cluster by its own kubeconfig, without its name"
        )
    })?;
    Providers::read(path).map_err(|error| error_text(&error))
}

/// Which credentials are used.
pub struct Credentials<'a> {
    /// The provider file.
    pub providers: Providers,
    /// Namespace of the Secrets.
    pub namespace: String,
    /// What is allowed.
    pub access: &'a AccessArgs,
    /// Time limit of a provider.
    pub timeout: Duration,
}

impl Ways {
    /// Those that `hub` has.
    pub async fn read(hub: &Client, credentials: Credentials<'_>) -> Self {
        let Credentials { providers, namespace, access, timeout } = credentials;
        let profiles = ClusterProfiles::default();
        match InventoryKind::ClusterProfile.list(hub, None).await {
            Ok(all) => profiles.reset(all.iter().map(ClusterProfile::read).collect()),
            Err(kube::Error::Api(status)) if status.code == 404 => profiles.set_kind_missing(),
            Err(error) => profiles.set_unreadable(error_text(&error)),
        }
        let secrets = SecretReader {
            hub: hub.clone(),
            namespace,
            requires_binding: access.require_bound_secrets,
            annotations: ANNOTATIONS,
            program: FIELD_MANAGER,
        };
        let fetcher = CredentialFetcher { secrets, timeout, metrics: Arc::new(Unmeasured) };
        // No Lease: reviews and dry runs store nothing.
        let connections = Connections::new(fetcher, Arc::new(|| true));
        Self { profiles, providers, access: access.clone(), connections }
    }

    /// A client for the cluster of `reference`, if it answers. Adds what that finds to `report`.
    pub async fn connect(&self, reference: &ClusterProfileReference, report: &mut Report) -> Option<Client> {
        let names = Names { profile: &reference.name, profile_namespace: &reference.namespace, ..Names::default() };
        let profile = match self.profiles.permitted(reference, &self.access.profile_namespaces) {
            Ok(profile) => profile,
            Err(why) => return fail(report, Id::Profile, why, &names),
        };
        let access = profile::access(reference, &profile, &self.providers, self.access.allow_http_servers);
        let access = access.map_err(Unresolved::from);
        if let Err(why) = &access
            && why.reason == Reason::ClusterProfileNotReady
        {
            return fail(report, Id::Profile, why.clone(), &names);
        }
        report.add(Id::Profile, health(&profile), None);
        let access = match access {
            Ok(access) => access,
            Err(why) => return fail(report, Id::Provider, why, &names),
        };
        let (server, insecurity) = (access.server.to_string(), insecurity(reference, &access));
        report.add(Id::Provider, Finding::passed(access.source.provider()), None);
        let connection = match Box::pin(self.connections.get(reference, access, false)).await {
            Ok(connection) => connection,
            Err(failure) => {
                let why = Unresolved::from(failure.error);
                if matches!(why.reason, Reason::AccessProviderFailed | Reason::CredentialNotBound) {
                    return fail(report, Id::Credential, why, &names);
                }
                report.add(Id::Credential, Finding::passed("the provider returns one"), None);
                return fail(report, Id::Connection, why, &names);
            }
        };
        match connection.remedy() {
            Some(why) => {
                let why = unbound(&why);
                let advice = resolved(Reason::CredentialNotBound, &why, &names);
                report.add(Id::Credential, Finding::warning(why), advice);
            }
            None => report.add(Id::Credential, Finding::passed("the provider returns one"), None),
        }
        if connection.cluster_uid.is_none() {
            let why = "the cluster can't be identified: the credential may not read the namespace kube-system";
            let unresolved = Unresolved::new(Reason::RemoteClusterUnreachable, why);
            fail(report, Id::Connection, unresolved, &names);
        } else if let Some(why) = insecurity {
            let advice = remedy::find(PREFLIGHT, Id::Connection.as_str(), "").map(|remedy| remedy.advice(&names));
            report.add(Id::Connection, Finding::warning(why), advice);
        } else {
            report.add(Id::Connection, Finding::passed(&server), None);
        }
        Some(connection.client)
    }
}

/// Adds that the check `id` failed, as the operator reports it.
fn fail(report: &mut Report, id: Id, why: impl Into<Unresolved>, names: &Names<'_>) -> Option<Client> {
    let why = why.into();
    let advice = resolved(why.reason, &why.message, names);
    report.add(id, Finding::failed(&why.message), advice);
    None
}

/// What to do about a condition of the cluster.
fn resolved(reason: Reason, message: &str, names: &Names<'_>) -> Option<Advice> {
    remedy::find(RESOLVED, reason.as_str(), message).map(|remedy| remedy.advice(names))
}

/// Who vouches for the cluster of `profile`, which can be used.
fn health(profile: &ClusterProfile) -> Finding {
    match profile.health() {
        Some(healthy) => Finding::passed(format!("{HEALTHY}={}", healthy.status)),
        None => Finding::warning(format!(
            "it has no condition {HEALTHY}, so only the connection shows whether the cluster works"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_provider_file_is_explained() {
        // No machine of tests is the operator's Pod.
        let error = providers(None).unwrap_err();
        assert!(error.contains(MOUNTED) && error.contains("--clusterprofile-provider-file"), "{error}");
        let error = providers(Some(Path::new("/none"))).unwrap_err();
        assert!(error.contains("cannot read /none"), "{error}");
    }
}
