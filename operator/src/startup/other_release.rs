//! Waits while the operator of another namespace manages the cluster. The chart refuses a second
//! release, but tools that render without access to the cluster can't.

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

use crate::leader::SHARDS_LABEL;

/// Interval of the checks while there is a Lease of another namespace.
const INTERVAL: Duration = Duration::from_secs(5);
/// Time without a renewal after which the holder of a Lease is gone: more than the duration of a
/// Lease, by the clock of this process.
const EXPIRY: Duration = Duration::from_secs(20);
/// Failed checks after which the operator goes on, for example without the permission.
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

/// Waits while an operator of another namespace renews a Lease that it acquired before the operator
/// in `namespace` acquired its own: of two that start together, one goes on.
pub async fn wait(client: &Client, namespace: &str) {
    let leases = Api::<Lease>::all(client.clone());
    let (mut seen, mut permitted, mut failures, mut reported) = (HashMap::new(), HashMap::new(), 0, false);
    loop {
        match leases.list(&ListParams::default().labels(SHARDS_LABEL).limit(MAX_LEASES)).await {
            Ok(all) => {
                let mut all: Vec<Leading> = all.iter().filter_map(leading).collect();
                for lease in all.iter().filter(|lease| lease.namespace != namespace) {
                    if !permitted.contains_key(&lease.namespace) {
                        permitted.insert(lease.namespace.clone(), is_operator(client, &lease.namespace).await);
                    }
                }
                all.retain(|lease| lease.namespace == namespace || permitted.get(&lease.namespace) == Some(&true));
                match other_leader(&all, namespace, &mut seen, Instant::now()) {
                    Some(other) if !reported => {
                        reported = true;
                        tracing::error!(
                            "the operator in namespace {} manages this cluster (Lease {}): this one waits. Uninstall one of them",
                            other.namespace,
                            other.name
                        );
                    }
                    Some(_) => {}
                    None => return,
                }
            }
            Err(error) => {
                tracing::warn!(error = error_text(&error), "cannot list the Leases of operators in other namespaces");
                failures += 1;
                if failures == ATTEMPTS {
                    return;
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

/// The Lease of another namespace than `own` that is renewed, and that was acquired before all
/// those in `own`. `seen`: when the renewals were seen first.
fn other_leader<'a>(
    leading: &'a [Leading],
    own: &str,
    seen: &mut HashMap<(String, String), (Option<Timestamp>, Instant)>,
    now: Instant,
) -> Option<&'a Leading> {
    let ours = leading.iter().filter(|lease| lease.namespace == own).map(|lease| (lease.acquired, own)).min();
    let others = leading.iter().filter(|lease| lease.namespace != own).filter(|lease| {
        let key = (lease.namespace.clone(), lease.name.clone());
        let known = seen.entry(key).or_insert((lease.renewed, now));
        if known.0 != lease.renewed {
            *known = (lease.renewed, now);
        }
        now.duration_since(known.1) < EXPIRY
    });
    let oldest = others.min_by_key(|lease| (lease.acquired, lease.namespace.as_str()));
    oldest.filter(|lease| ours.is_none_or(|ours| (lease.acquired, lease.namespace.as_str()) < ours))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(namespace: &str, acquired: i64, renewed: i64) -> Leading {
        let at = |seconds| Timestamp::from_second(seconds).ok();
        Leading { namespace: namespace.to_owned(), name: "l".to_owned(), acquired: at(acquired), renewed: at(renewed) }
    }

    #[test]
    fn first_operator_goes_on_and_second_waits() {
        let (start, mut seen) = (Instant::now(), HashMap::new());
        let both = [lease("a", 10, 20), lease("b", 11, 20)];
        assert_eq!(other_leader(&both, "a", &mut seen, start), None);
        assert_eq!(other_leader(&both, "b", &mut seen, start), Some(&both[0]));
        // At the same time, one of them.
        let same = [lease("a", 10, 20), lease("b", 10, 20)];
        assert_eq!(other_leader(&same, "a", &mut HashMap::new(), start), None);
        assert_eq!(other_leader(&same, "b", &mut HashMap::new(), start), Some(&same[0]));
        assert_eq!(other_leader(&[], "a", &mut HashMap::new(), start), None);
    }

    #[test]
    fn operator_that_is_gone_is_no_rival() {
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
