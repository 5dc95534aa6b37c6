//! What the refusals of the API server mean. Pure.

use knative_operator_shared::api::Component;

use super::admit::{Refusal, Tried};
use super::check::Finding;
use knative_operator_apply::error::ApplyError;
use knative_operator_overview::rejections::group_by_dependency;

/// Maximum number of objects that a message names.
const MAX_NAMED: usize = 3;

/// The account lacks a permission that the operator doesn't need.
const NO_PODS: &str = "the account may not create Pods, as only controllers do, so none were tried; \
                       try as an administrator of the cluster, by its own kubeconfig";

/// Why the API server refuses an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// The account lacks a permission.
    Rights,
    Quota,
    PodSecurity,
    /// A webhook, a policy, or the API server itself.
    Other,
}

impl Cause {
    /// By the API server's words: nothing else tells the plugins that refuse apart.
    fn of(why: &ApplyError) -> Self {
        let why = why.to_string();
        let is_forbidden = why.contains(" is forbidden: User \"") && why.contains("\" cannot ");
        if is_forbidden || why.contains("is attempting to grant RBAC permissions not currently ") {
            Self::Rights
        } else if ["exceeded quota: ", "failed quota: ", "status unknown for quota: "]
            .iter()
            .any(|part| why.contains(part))
        {
            Self::Quota
        } else if why.contains("violates PodSecurity ") {
            Self::PodSecurity
        } else {
            Self::Other
        }
    }
}

/// What the installation needs and the cluster lacks.
pub fn prerequisites(component: Component, tried: &Tried) -> Finding {
    let (sentences, _) = group_by_dependency(component, &tried.refused);
    if sentences.is_empty() {
        return Finding::passed(format!("nothing is missing for {component}"));
    }
    Finding::failed(sentences.join("; "))
}

/// What webhooks, policies and the API server refuse. `absent`: why objects in a namespace were not
/// tried. `knows_rights`: whether missing permissions are reported elsewhere.
pub fn admission(component: Component, tried: &Tried, absent: Option<&str>, knows_rights: bool) -> Finding {
    let (_, others) = group_by_dependency(component, &tried.refused);
    let refused: Vec<&Refusal> = others.into_iter().filter(|one| is_refused(one, knows_rights)).collect();
    let pods = tried.refused_pods.iter().filter(|(_, why)| Cause::of(why) == Cause::Other);
    let mut all: Vec<String> = refused.iter().map(|(id, why)| format!("{id}: {why}")).collect();
    all.extend(pods.map(|(id, why)| format!("a Pod of {id}: {why}")));
    if !all.is_empty() {
        return Finding::failed(format!("the API server refuses {}", listed(&all)));
    }
    let rest = match absent {
        Some(why) if tried.left_out > 0 => format!(", and {} are not tried: {why}", tried.left_out),
        _ => String::new(),
    };
    Finding::passed(format!("accepts {} objects of {component}{rest}", tried.accepted))
}

fn is_refused((_, why): &Refusal, knows_rights: bool) -> bool {
    match Cause::of(why) {
        Cause::Rights => !knows_rights,
        Cause::Quota | Cause::PodSecurity => false,
        Cause::Other => true,
    }
}

/// What Pod Security refuses.
pub fn pod_security(component: Component, tried: &Tried, absent: Option<&str>) -> Finding {
    about_pods(component, tried, absent, Cause::PodSecurity)
}

/// What the quota of the namespace refuses.
pub fn quota(component: Component, tried: &Tried, absent: Option<&str>) -> Finding {
    about_pods(component, tried, absent, Cause::Quota)
}

fn about_pods(component: Component, tried: &Tried, absent: Option<&str>, cause: Cause) -> Finding {
    let objects = tried.refused.iter().filter(|(_, why)| Cause::of(why) == cause);
    let mut all: Vec<String> = objects.map(|(id, why)| format!("{id}: {why}")).collect();
    let pods: Vec<&Refusal> = tried.refused_pods.iter().filter(|(_, why)| Cause::of(why) == cause).collect();
    // What has its Pods needs no more of the quota, unless a rollout adds some.
    let has_pods = cause == Cause::Quota && all.is_empty() && pods.iter().all(|(id, _)| tried.existing.contains(id));
    all.extend(pods.iter().map(|(id, why)| format!("a Pod of {id}: {why}")));
    if !all.is_empty() {
        let refused = listed(&all);
        return if has_pods {
            Finding::warning(format!("{component} is installed, but the API server refuses more Pods: {refused}"))
        } else {
            Finding::failed(format!("the API server refuses {refused}"))
        };
    }
    if let Some(why) = absent {
        return Finding::skipped(format!("{component}: {why}"));
    }
    // Quota is checked last.
    let hides = |one: Cause| one != cause && !(cause == Cause::PodSecurity && one == Cause::Quota);
    match tried.refused_pods.iter().map(|(_, why)| Cause::of(why)).find(|one| hides(*one)) {
        Some(Cause::Rights) => Finding::skipped(format!("{component}: {NO_PODS}")),
        Some(_) => Finding::skipped(format!("{component}: another refusal of its Pods comes first")),
        None => Finding::passed(format!("accepts the Pods of {component}")),
    }
}

/// Why the API server does not create the Pod that pulls the images.
pub fn image_pull(component: Component, why: &ApplyError) -> Finding {
    let refused = format!("{component}: the API server refuses the Pod that pulls the images: {why}");
    match Cause::of(why) {
        Cause::Rights => Finding::skipped(format!("{component}: {NO_PODS}")),
        // Other checks are about these.
        Cause::Quota | Cause::PodSecurity => Finding::skipped(refused),
        Cause::Other => Finding::failed(refused),
    }
}

/// The first of `all`, and how many more there are.
fn listed(all: &[String]) -> String {
    let shown = all.iter().take(MAX_NAMED).map(String::as_str).collect::<Vec<_>>().join("; ");
    let more = all.len().saturating_sub(MAX_NAMED);
    if more == 0 { shown } else { format!("{shown}; and {more} more") }
}

#[cfg(test)]
mod tests {
    use knative_operator_objects::ObjectId;

    use super::super::check::Outcome;
    use super::*;

    const SERVING: Component = Component::Serving;
    const ABSENT: Option<&str> = Some("namespace n does not exist yet");
    const RIGHTS: &str = "deployments.apps \"a\" is forbidden: User \"u\" cannot patch resource \"deployments\" in API group \"apps\" in the namespace \"n\"";
    const QUOTA: &str =
        "pods \"preflight-x\" is forbidden: exceeded quota: q, requested: pods=1, used: pods=0, limited: pods=0";
    const SECURITY: &str =
        "pods \"preflight-x\" is forbidden: violates PodSecurity \"restricted:latest\": runAsNonRoot != true";
    const WEBHOOK: &str = "Internal error occurred: failed calling webhook \"w.example.com\": service \"w\" not found";

    fn refusal(why: &str) -> Refusal {
        (ObjectId::new("apps", "Deployment", "n", "a"), ApplyError::Other(why.to_owned()))
    }

    fn tried(refused: &[&str], pods: &[&str]) -> Tried {
        let all = |whys: &[&str]| whys.iter().map(|why| refusal(why)).collect();
        Tried { accepted: 7, left_out: 2, refused: all(refused), refused_pods: all(pods), ..Tried::default() }
    }

    #[test]
    fn refusals_are_distinguished() {
        let escalation = "roles \"r\" is forbidden: user \"u\" (groups=[\"g\"]) is attempting to grant RBAC permissions not currently …";
        for (why, cause) in [
            (RIGHTS, Cause::Rights),
            (escalation, Cause::Rights),
            (QUOTA, Cause::Quota),
            (
                "deployments.apps \"a\" is forbidden: exceeded quota: q, requested: count/deployments.apps=1",
                Cause::Quota,
            ),
            ("pods \"a\" is forbidden: failed quota: q: must specify limits.cpu for: c", Cause::Quota),
            (SECURITY, Cause::PodSecurity),
            (WEBHOOK, Cause::Other),
            ("admission webhook \"w\" denied the request: no", Cause::Other),
            ("deployments.apps \"a\" is forbidden: ValidatingAdmissionPolicy 'p' denied request: no", Cause::Other),
        ] {
            assert_eq!(Cause::of(&refusal(why).1), cause, "{why}");
        }
    }

    #[test]
    fn missing_dependencies_are_prerequisites_and_nothing_else() {
        let mut tried = tried(&[WEBHOOK, WEBHOOK], &[]);
        tried.refused[0].1 = ApplyError::NoNamespace("istio-system".to_owned());
        let found = prerequisites(SERVING, &tried);
        assert!(found.outcome == Outcome::Failed && found.detail.starts_with("Istio is not installed"), "{found:?}");
        assert!(found.detail.contains(", so the operator can't apply 1 object"), "{found:?}");
        let found = admission(SERVING, &tried, None, true);
        assert_eq!(found, Finding::failed(format!("the API server refuses Deployment n/a: {WEBHOOK}")));
        assert_eq!(prerequisites(SERVING, &self::tried(&[WEBHOOK], &[])).outcome, Outcome::Passed);
    }

    #[test]
    fn permissions_are_reported_once() {
        let tried = tried(&[RIGHTS], &[RIGHTS]);
        assert_eq!(admission(SERVING, &tried, None, true).outcome, Outcome::Passed);
        assert_eq!(admission(SERVING, &tried, None, false).outcome, Outcome::Failed);
        let found = pod_security(SERVING, &tried, None);
        assert!(found.outcome == Outcome::Skipped && found.detail.contains("may not create Pods"), "{found:?}");
        assert_eq!(quota(SERVING, &tried, None).outcome, Outcome::Skipped);
    }

    #[test]
    fn pods_are_refused_by_pod_security_and_quota() {
        let both = tried(&[], &[SECURITY, QUOTA]);
        assert!(pod_security(SERVING, &both, None).detail.contains("a Pod of Deployment n/a: pods"));
        assert_eq!(quota(SERVING, &both, None).outcome, Outcome::Failed);
        assert_eq!(admission(SERVING, &both, None, true).outcome, Outcome::Passed);
        // The first refusal hides the second.
        assert_eq!(quota(SERVING, &tried(&[], &[SECURITY]), None).outcome, Outcome::Skipped);
        assert_eq!(pod_security(SERVING, &tried(&[], &[QUOTA]), None).outcome, Outcome::Passed);
        let good = tried(&[], &[]);
        assert_eq!(pod_security(SERVING, &good, None), Finding::passed("accepts the Pods of KnativeServing"));
        let skipped = Finding::skipped("KnativeServing: namespace n does not exist yet");
        assert_eq!(quota(SERVING, &good, ABSENT), skipped);
        let expected = "accepts 7 objects of KnativeServing, and 2 are not tried: namespace n does not exist yet";
        assert_eq!(admission(SERVING, &good, ABSENT, true), Finding::passed(expected));
    }

    #[test]
    fn refused_pod_pulls_nothing() {
        for (why, outcome, part) in [
            (RIGHTS, Outcome::Skipped, "may not create Pods"),
            (QUOTA, Outcome::Skipped, "exceeded quota"),
            (SECURITY, Outcome::Skipped, "violates PodSecurity"),
            ("admission webhook \"w\" denied the request: registry r.io is not allowed", Outcome::Failed, "r.io"),
        ] {
            let found = image_pull(SERVING, &refusal(why).1);
            assert!(found.outcome == outcome && found.detail.contains(part), "{found:?}");
        }
    }

    #[test]
    fn used_quota_stops_only_what_is_new() {
        let mut tried = tried(&[], &[QUOTA]);
        assert_eq!(quota(SERVING, &tried, None).outcome, Outcome::Failed);
        tried.existing.insert(tried.refused_pods[0].0.clone());
        let found = quota(SERVING, &tried, None);
        let expected = "KnativeServing is installed, but the API server refuses more Pods: a Pod of Deployment n/a: ";
        assert!(found.outcome == Outcome::Warning && found.detail.starts_with(expected), "{found:?}");
        tried.refused_pods.push((ObjectId::new("apps", "Deployment", "n", "b"), ApplyError::Other(QUOTA.to_owned())));
        assert_eq!(quota(SERVING, &tried, None).outcome, Outcome::Failed);
        let mut insecure = self::tried(&[], &[SECURITY]);
        insecure.existing.insert(insecure.refused_pods[0].0.clone());
        assert_eq!(pod_security(SERVING, &insecure, None).outcome, Outcome::Failed);
    }

    #[test]
    fn long_lists_are_shortened() {
        let found = admission(SERVING, &tried(&[WEBHOOK; 5], &[]), None, true);
        assert!(found.detail.ends_with("; and 2 more"), "{found:?}");
    }
}
