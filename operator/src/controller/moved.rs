//! A ClusterProfile that refers to another cluster than before: what is installed on the former one
//! stays there, and is remembered in the status. On the new one, the resource starts from the
//! beginning.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use knative_operator_shared::api::{Knative, KnativeStatus};
use knative_operator_shared::label::{CLUSTER_UID, FORMER_CLUSTERS};
use knative_operator_shared::reason::Reason;
use knative_operator_shared::time::truncate;
use serde::{Deserialize, Serialize};

use super::conditions::{InstallationReport, ReconcileResult};
use super::context::Context;
use super::outcome::{Outcome, Requeue};
use super::state::{Cluster, ReconcilerState};
use super::status;
use knative_operator_apply::claim::Installed;
use knative_operator_cluster_access::identity::NAMESPACE;
use knative_operator_overview::Unresolved;

/// Maximum number of former clusters that are remembered, the last ones.
const MAX_FORMER: usize = 8;
/// In place of a version.
const PARTLY: &str = "(partly installed)";
/// Interval of checks until the watch has the new status.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Changes of the cluster that are followed at once; the pause before the next one, which doubles;
/// and the time after which they are forgotten.
const FREE_MOVES: u32 = 3;
const PAUSE: Duration = Duration::from_secs(15);
const FORGET: Duration = Duration::from_secs(1800);

/// A cluster where an installation was left.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FormerCluster {
    /// Uid of its namespace `kube-system`.
    pub uid: String,
    /// The version that was installed there; `None` if not all of it was accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The namespace of the installation.
    pub namespace: String,
    /// Time at which the operator noticed that the ClusterProfile refers to another one (RFC 3339).
    pub left: String,
}

/// The former clusters in `status`.
fn recorded(status: &KnativeStatus) -> Vec<FormerCluster> {
    let text = status.annotations.get(FORMER_CLUSTERS);
    text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

/// The uid of another cluster than the one with the uid `now`, on which `resource` has installed
/// something, or began to, as its `status` says; and the version, if all of it was accepted.
fn left<'s>(resource: &Knative, status: &'s KnativeStatus, now: Option<&str>) -> Option<(&'s str, Option<&'s str>)> {
    let (uid, now) = (status.annotations.get(CLUSTER_UID)?, now?);
    let finalizer = resource.component().finalizer();
    let has_begun = resource.meta().finalizers.iter().flatten().any(|name| name == finalizer);
    let version = status.version.as_deref();
    (uid != now && (has_begun || version.is_some())).then_some((uid.as_str(), version))
}

/// Whether `resource` has left installations on other clusters.
pub fn has_former(resource: &Knative) -> bool {
    resource.status().is_some_and(|status| !recorded(status).is_empty())
}

/// Whether `resource` has installed a version on another cluster, where its author was permitted
/// to. Its finalizer, which its author may write, does not show that.
pub fn has_installed_elsewhere(resource: &Knative) -> bool {
    resource.status().is_some_and(|status| recorded(status).iter().any(|cluster| cluster.version.is_some()))
}

/// Why `cluster` may be another one than that of the status: its uid can't be read now.
pub fn unidentified(resource: &Knative, cluster: &Cluster) -> Option<Unresolved> {
    let known = resource.status()?.annotations.get(CLUSTER_UID).filter(|_| cluster.uid.is_none())?;
    let message = format!(
        "the cluster can't be identified: the operator can't read the uid of its namespace {NAMESPACE}, which was {known}; grant the account \
         get for this namespace"
    );
    Some(Unresolved::new(Reason::RemoteClusterUnreachable, message))
}

/// Whether `resource` has installed something on this cluster, as its status says.
pub fn has_installed(resource: &Knative, cluster: &Cluster) -> bool {
    let is_elsewhere = resource.status().is_some_and(|status| left(resource, status, cluster.uid.as_deref()).is_some());
    resource.has_installed() && !is_elsewhere
}

/// Whether `resource` has installed something, and on the cluster with the uid `now`, as its status
/// says.
pub fn installed(resource: &Knative, now: Option<&str>) -> Installed {
    let recorded = resource.status().and_then(|status| status.annotations.get(CLUSTER_UID));
    match recorded {
        _ if !resource.has_installed() => Installed::Nowhere,
        Some(uid) if now == Some(uid) => Installed::Here,
        Some(_) | None => Installed::Somewhere,
    }
}

/// Where installations of `resource`, which is in `namespace` of the cluster in the status, are
/// left, besides the cluster with the uid `now`.
fn former(resource: &Knative, namespace: &str, status: &KnativeStatus, now: Option<&str>) -> Vec<FormerCluster> {
    let mut all = recorded(status);
    if let Some((uid, version)) = left(resource, status, now) {
        all.push(FormerCluster {
            uid: uid.to_owned(),
            version: version.map(str::to_owned),
            namespace: namespace.to_owned(),
            left: truncate(Timestamp::now()).to_string(),
        });
    }
    all.retain(|cluster| Some(cluster.uid.as_str()) != now);
    all.drain(..all.len().saturating_sub(MAX_FORMER));
    all
}

/// What is left on former clusters when `resource` is deleted, for people; `None` if nothing is.
pub fn left_behind(resource: &Knative, cluster: &Cluster) -> Option<String> {
    let left = former(resource, resource.target_namespace(), resource.status()?, cluster.uid.as_deref());
    let all: Vec<String> = left.iter().map(|cluster| describe(resource, cluster)).collect();
    (!all.is_empty()).then(|| {
        format!(
            "Left on clusters that the ClusterProfile referred to before: {}. To uninstall there, create a {} with the same name and \
             namespace for a ClusterProfile of that cluster, and delete it",
            all.join(", "),
            resource.component()
        )
    })
}

fn describe(resource: &Knative, cluster: &FormerCluster) -> String {
    let FormerCluster { uid, version, namespace, .. } = cluster;
    let version = version.as_deref().unwrap_or(PARTLY);
    format!("{} {version} in namespace {namespace} of the cluster with the uid {uid}", resource.component())
}

/// The status of a resource that was in `namespace`, and starts on the cluster with the uid `now`.
fn started(resource: &Knative, namespace: &str, status: &KnativeStatus, now: &str) -> KnativeStatus {
    let former = former(resource, namespace, status, Some(now));
    let mut new = KnativeStatus { observed_generation: status.observed_generation, ..KnativeStatus::default() };
    new.annotations.insert(CLUSTER_UID.to_owned(), now.to_owned());
    // Strings always serialize.
    new.annotations.insert(FORMER_CLUSTERS.to_owned(), serde_json::to_string(&former).unwrap_or_default());
    new
}

/// How long a cluster rests that is another one again and again, as a hostile one may claim to be.
fn rest(state: &mut ReconcilerState, now: Instant) -> Option<Duration> {
    let (moves, at) = state.moves.filter(|(_, at)| now.duration_since(*at) < FORGET).unwrap_or((0, now));
    let pause =
        if moves < FREE_MOVES { Duration::ZERO } else { PAUSE * 2u32.saturating_pow((moves - FREE_MOVES).min(5)) };
    let rest = pause.saturating_sub(now.duration_since(at));
    if rest.is_zero() {
        state.moves = Some((moves + 1, now));
        return None;
    }
    Some(rest)
}

/// The namespace of the installation on the cluster that `state` knows.
fn left_in<'r>(resource: &'r Knative, state: &ReconcilerState) -> &'r str {
    let stays_in_own_namespace = state.stays_in_own_namespace == Some(true);
    if stays_in_own_namespace { resource.namespace() } else { resource.target_namespace() }
}

/// If `cluster` is another one than that of the status: records what is left there, so that the
/// resource starts from the beginning, and returns the outcome of this reconcile.
pub async fn start_over(
    cx: &Context,
    resource: &Knative,
    state: &mut ReconcilerState,
    cluster: &Cluster,
) -> Option<Outcome> {
    let (stored, now) = (resource.status()?, cluster.uid.as_deref()?);
    let (uid, version) = left(resource, stored, Some(now))?;
    let pending = vec![format!("the cluster of the ClusterProfile has another uid: {now}, not {uid}")];
    let report = InstallationReport { pending, ..InstallationReport::of(resource.component()) };
    let outcome = Outcome::new(ReconcileResult::Installation(report), Requeue::After(CHECK_INTERVAL));
    // The watch has not reported the status yet that was written for it.
    let effective = state.status(resource);
    if left(resource, &effective, Some(now)).is_none() {
        return Some(outcome);
    }
    if let Some(rest) = rest(state, Instant::now()) {
        return Some(Outcome { requeue: Requeue::After(rest), ..outcome });
    }
    let namespace = left_in(resource, state);
    let new = started(resource, namespace, &effective, now);
    state.forget_cluster();
    if status::replace(cx, resource, state, new).await {
        state.cluster_uid.clone_from(&cluster.uid);
        let profile = resource.common().cluster_profile_ref.as_ref();
        let profile = profile.map_or_else(|| "The hub".to_owned(), |profile| format!("ClusterProfile {profile}"));
        let note = format!(
            "{profile} is another cluster now: its uid was {uid}, and is {now}. {} {} was left on the former one, in namespace {}, \
             and nothing there is watched or repaired any more",
            resource.component(),
            version.unwrap_or(PARTLY),
            namespace
        );
        cx.events.warning(resource, "ClusterChanged", note);
        cx.metrics.orphaned(resource);
    }
    Some(outcome)
}

#[cfg(test)]
mod tests {
    use knative_operator_shared::api::{ClusterProfileReference, Component, KnativeServing};

    use super::*;

    fn status(uid: &str, version: Option<&str>) -> KnativeStatus {
        let mut status = KnativeStatus { version: version.map(str::to_owned), ..KnativeStatus::default() };
        status.annotations.insert(CLUSTER_UID.to_owned(), uid.to_owned());
        status
    }

    fn uids(status: &KnativeStatus) -> Vec<String> {
        recorded(status).into_iter().map(|cluster| cluster.uid).collect()
    }

    #[test]
    fn installation_on_another_cluster_is_left() {
        let new = Knative::Serving(KnativeServing::default());
        let mut begun = KnativeServing::default();
        begun.metadata.finalizers = Some(vec![new.component().finalizer().to_owned()]);
        let (begun, installed) = (Knative::Serving(begun), status("a", Some("1.22.1")));
        assert_eq!(left(&new, &installed, Some("b")), Some(("a", Some("1.22.1"))));
        assert_eq!(left(&begun, &status("a", None), Some("b")), Some(("a", None)));
        for (status, now) in [
            (&installed, Some("a")),
            (&installed, None),
            (&status("a", None), Some("b")),
            (&KnativeStatus { version: Some("1.22.1".to_owned()), ..KnativeStatus::default() }, Some("b")),
        ] {
            assert_eq!(left(&new, status, now), None, "{now:?}");
        }
    }

    #[test]
    fn finalizer_shows_no_former_installation() {
        for (version, expected) in [(None, false), (Some("1.22.1"), true)] {
            let mut serving = KnativeServing::default();
            serving.metadata.finalizers = Some(vec![Component::Serving.finalizer().to_owned()]);
            serving.status = Some(started(&Knative::Serving(serving.clone()), "n", &status("a", version), "b"));
            let moved = Knative::Serving(serving);
            assert_eq!((has_former(&moved), has_installed_elsewhere(&moved)), (true, expected));
        }
    }

    #[test]
    fn cluster_that_is_another_one_again_and_again_rests() {
        let (mut state, start) = (ReconcilerState::default(), Instant::now());
        for _ in 0..FREE_MOVES {
            assert_eq!(rest(&mut state, start), None);
        }
        assert_eq!(rest(&mut state, start), Some(PAUSE));
        assert_eq!(rest(&mut state, start + PAUSE), None);
        assert_eq!(rest(&mut state, start + PAUSE), Some(PAUSE * 2));
        assert_eq!(rest(&mut state, start + PAUSE + FORGET), None);
        assert_eq!(rest(&mut state, start + PAUSE + FORGET), None);
    }

    #[test]
    fn former_clusters_are_remembered_until_they_are_back() {
        let resource = Knative::Serving(KnativeServing::default());
        let mut current = status("0", Some("1.22.1"));
        for number in 1..=12 {
            current = started(&resource, "n", &current, &number.to_string());
            assert_eq!((current.version.clone(), &current.annotations[CLUSTER_UID]), (None, &number.to_string()));
            current.version = Some("1.22.1".to_owned());
        }
        assert_eq!(uids(&current), ["4", "5", "6", "7", "8", "9", "10", "11"]);
        let back = started(&resource, "n", &current, "9");
        assert_eq!(uids(&back), ["4", "5", "6", "7", "8", "10", "11", "12"]);
        // Nothing was installed there.
        assert_eq!(uids(&started(&resource, "n", &back, "13")), ["4", "5", "6", "7", "8", "10", "11", "12"]);
    }

    #[test]
    fn namespace_of_an_installation_of_the_go_operator_is_remembered() {
        let mut own = KnativeServing::default();
        own.metadata.namespace = Some("team".to_owned());
        own.spec.common.cluster_profile_ref = Some(ClusterProfileReference::default());
        let (own, mut state) = (Knative::Serving(own), ReconcilerState::default());
        for (stays_in_own_namespace, namespace) in
            [(None, "knative-serving"), (Some(false), "knative-serving"), (Some(true), "team")]
        {
            state.stays_in_own_namespace = stays_in_own_namespace;
            let new = started(&own, left_in(&own, &state), &status("a", Some("1.22.1")), "b");
            assert_eq!(recorded(&new)[0].namespace, namespace);
        }
    }

    #[test]
    fn installation_on_this_cluster_is_that_of_the_status() {
        for (stored, uid, expected) in [
            (status("a", Some("1.22.1")), Some("a"), Installed::Here),
            (status("a", Some("1.22.1")), Some("b"), Installed::Somewhere),
            (status("a", Some("1.22.1")), None, Installed::Somewhere),
            (status("a", None), Some("a"), Installed::Nowhere),
            (
                KnativeStatus { version: Some("1.22.1".to_owned()), ..KnativeStatus::default() },
                Some("a"),
                Installed::Somewhere,
            ),
        ] {
            let resource = Knative::Serving(KnativeServing { status: Some(stored), ..KnativeServing::default() });
            assert_eq!(installed(&resource, uid), expected, "{uid:?}");
        }
    }
}
