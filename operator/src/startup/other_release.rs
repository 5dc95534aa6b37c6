//! Finds out whether the operator of another namespace manages the cluster. The chart refuses a
//! second release, but tools that render without access to the cluster can't.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReviewSpec};
use k8s_openapi::api::coordination::v1::Lease;
use knative_operator_runtime::{access, error_text};
use knative_operator_shared::api::Component;
use knative_operator_shared::label::{GROUP, SERVICE_ACCOUNT};
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use tokio_util::sync::CancellationToken;

use crate::leader::SHARDS_LABEL;

/// Interval of the checks until it is clear whether the Lease of another namespace is renewed.
const INTERVAL: Duration = Duration::from_secs(2);
/// Time without a renewal after which the holder of a Lease is gone: more than the duration of a
/// Lease, by the clock of this process.
const EXPIRY: Duration = Duration::from_secs(20);
/// Failed checks in a row after which the operator goes on.
const ATTEMPTS: u32 = 3;
/// Maximum number of Leases that are looked at.
const MAX_LEASES: u32 = 500;

/// A Lease that an operator has.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Leading {
    namespace: String,
    name: String,
    acquired: Option<Timestamp>,
    renewed: Option<Timestamp>,
}

/// The operator of another namespace that manages the cluster: it renews a Lease that it acquired
/// before the one in `namespace` acquired its own. Of two that start together, one goes on.
#[derive(Debug, thiserror::Error)]
#[error(
    "the operator in namespace {namespace} manages this cluster (Lease {lease}). Only one operator may: uninstall one of them"
)]
pub struct OtherOperator {
    namespace: String,
    lease: String,
}

/// Checks that no operator of another namespace manages the cluster. Takes a request, and up to
/// [`EXPIRY`] if there is the Lease of one. Returns whether that is known, rather than that `stop`
/// came first.
pub async fn check(client: &Client, namespace: &str, stop: &CancellationToken) -> Result<bool, OtherOperator> {
    tokio::select! {
        checked = find(client, namespace) => checked.map(|()| true),
        () = stop.cancelled() => Ok(false),
    }
}

async fn find(client: &Client, namespace: &str) -> Result<(), OtherOperator> {
    let leases = Api::<Lease>::all(client.clone());
    let (mut seen, mut permitted, mut failures) = (HashMap::new(), HashMap::new(), 0);
    loop {
        match leases.list(&ListParams::default().labels(SHARDS_LABEL).limit(MAX_LEASES)).await {
            Ok(all) => {
                failures = 0;
                let mut all: Vec<Leading> = all.iter().filter_map(leading).collect();
                for lease in all.iter().filter(|lease| lease.namespace != namespace) {
                    if !permitted.contains_key(&lease.namespace) {
                        permitted.insert(lease.namespace.clone(), is_operator(client, &lease.namespace).await);
                    }
                }
                all.retain(|lease| lease.namespace == namespace || permitted.get(&lease.namespace) == Some(&true));
                match other_leader(&all, namespace, &mut seen, Instant::now()) {
                    None => return Ok(()),
                    Some((other, true)) => {
                        return Err(OtherOperator { namespace: other.namespace.clone(), lease: other.name.clone() });
                    }
                    Some((_, false)) => {}
                }
            }
            Err(error) => {
                tracing::warn!(error = error_text(&error), "cannot list the Leases of operators in other namespaces");
                failures += 1;
                if failures == ATTEMPTS || matches!(&error, kube::Error::Api(status) if status.code == 403) {
                    return Ok(());
                }
            }
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

/// Whether the account of an operator in `namespace` may do what an operator does. Anybody who may
/// write to a namespace can create a Lease there.
async fn is_operator(client: &Client, namespace: &str) -> bool {
    let question = SubjectAccessReviewSpec {
        user: Some(format!("system:serviceaccount:{namespace}:{SERVICE_ACCOUNT}")),
        groups: Some(vec![
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{namespace}"),
            "system:authenticated".to_owned(),
        ]),
        resource_attributes: Some(ResourceAttributes {
            group: Some(GROUP.to_owned()),
            resource: Some(Component::Serving.plural().to_owned()),
            subresource: Some("status".to_owned()),
            verb: Some("patch".to_owned()),
            ..ResourceAttributes::default()
        }),
        ..SubjectAccessReviewSpec::default()
    };
    access::is_allowed(client, question).await.unwrap_or_else(|error| {
        tracing::warn!(namespace, error = error_text(&error), "cannot ask whether there is another operator");
        false
    })
}

fn leading(lease: &Lease) -> Option<Leading> {
    let spec = lease.spec.as_ref()?;
    spec.holder_identity.as_deref().filter(|holder| !holder.is_empty())?;
    let time = |time: Option<&k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime>| time.map(|time| time.0);
    Some(Leading {
        namespace: lease.namespace().unwrap_or_default(),
        name: lease.name_any(),
        acquired: time(spec.acquire_time.as_ref()),
        renewed: time(spec.renew_time.as_ref()),
    })
}

/// When the renewals of a Lease were seen: the last one, since when, and whether it is another one
/// than the first.
type Seen = HashMap<(String, String), (Option<Timestamp>, Instant, bool)>;

/// The Lease of another namespace than `own` that may be renewed, and that was acquired before all
/// those in `own`; and whether it was seen to be renewed.
fn other_leader<'a>(leading: &'a [Leading], own: &str, seen: &mut Seen, now: Instant) -> Option<(&'a Leading, bool)> {
    let ours = leading.iter().filter(|lease| lease.namespace == own).map(|lease| (lease.acquired, own)).min();
    let others = leading.iter().filter(|lease| lease.namespace != own).filter_map(|lease| {
        let key = (lease.namespace.clone(), lease.name.clone());
        let known = seen.entry(key).or_insert((lease.renewed, now, false));
        if known.0 != lease.renewed {
            *known = (lease.renewed, now, true);
        }
        (now.duration_since(known.1) < EXPIRY).then_some((lease, known.2))
    });
    let oldest = others.min_by_key(|(lease, _)| (lease.acquired, lease.namespace.as_str()));
    oldest.filter(|(lease, _)| ours.is_none_or(|ours| (lease.acquired, lease.namespace.as_str()) < ours))
}

#[cfg(test)]
mod tests {
    use kube::client::Body;

    use super::*;

    fn lease(namespace: &str, acquired: i64, renewed: i64) -> Leading {
        let at = |seconds| Timestamp::from_second(seconds).ok();
        Leading { namespace: namespace.to_owned(), name: "l".to_owned(), acquired: at(acquired), renewed: at(renewed) }
    }

    #[tokio::test]
    async fn check_ends_with_the_process() {
        let silent = tower::service_fn(|_: http::Request<Body>| {
            std::future::pending::<Result<http::Response<Body>, std::convert::Infallible>>()
        });
        let (client, stop) = (Client::new(silent, "a"), CancellationToken::new());
        let stopped = async {
            tokio::task::yield_now().await;
            stop.cancel();
        };
        let (checked, ()) = futures::join!(check(&client, "a", &stop), stopped);
        assert!(checked.is_ok_and(|is_known| !is_known));
    }

    #[test]
    fn first_operator_goes_on() {
        let (start, mut seen) = (Instant::now(), HashMap::new());
        let both = [lease("a", 10, 20), lease("b", 11, 20)];
        assert_eq!(other_leader(&both, "a", &mut seen, start), None);
        assert_eq!(other_leader(&both, "b", &mut seen, start), Some((&both[0], false)));
        let later = [lease("a", 10, 22), lease("b", 11, 22)];
        assert_eq!(other_leader(&later, "b", &mut seen, start), Some((&later[0], true)));
        // At the same time, one of them.
        let same = [lease("a", 10, 20), lease("b", 10, 20)];
        assert_eq!(other_leader(&same, "a", &mut HashMap::new(), start), None);
        assert_eq!(other_leader(&same, "b", &mut HashMap::new(), start), Some((&same[0], false)));
        assert_eq!(other_leader(&[], "a", &mut HashMap::new(), start), None);
    }

    #[test]
    fn operator_that_is_gone_does_not_count() {
        let (start, mut seen) = (Instant::now(), HashMap::new());
        let ours = lease("b", 11, 20);
        let at = |renewed| [lease("a", 10, renewed), ours.clone()];
        assert!(other_leader(&at(20), "b", &mut seen, start).is_some());
        assert!(other_leader(&at(25), "b", &mut seen, start + EXPIRY / 2).is_some());
        assert!(other_leader(&at(25), "b", &mut seen, start + EXPIRY).is_some());
        assert_eq!(other_leader(&at(25), "b", &mut seen, start + EXPIRY * 2), None);
        // Its clock doesn't matter.
        assert_eq!(other_leader(&at(25), "b", &mut seen, start + EXPIRY * 3), None);
        assert!(other_leader(&at(5), "b", &mut seen, start + EXPIRY * 3).is_some());
    }
}
