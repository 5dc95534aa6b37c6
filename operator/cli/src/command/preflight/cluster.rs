//! Checks of a cluster that answers.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimeParser;
use k8s_openapi::api::core::v1::Namespace;
use knative_operator_runtime::error_text;
use knative_operator_shared::api::{ClusterProfileReference, Knative};
use kube::client::Body;
use kube::{Api, Client};

use super::admit::{self, Tried};
use super::check::{Finding, Id, Outcome, Report};
use super::pull::Pulls;
use super::{ownership, refusals, rights};
use crate::command::release_args::{InputError, ReleaseArgs};
use crate::spoke_role::Covered;
use knative_operator_objects::Owner;
use knative_operator_objects::plan::Plan;
use knative_operator_overview::preflight_remedy::PREFLIGHT;
use knative_operator_overview::remedy::{self, INSTALLED};
use knative_operator_overview::{Advice, Names};
use knative_operator_release::Library;

/// Time limit of a check.
const LIMIT: Duration = Duration::from_secs(60);
/// Difference of clocks from which on it is reported, in seconds.
const MAX_SKEW: i64 = 10;

/// A cluster that answers.
pub struct Subject<'a> {
    /// Its client.
    pub client: &'a Client,
    /// Uid of the hub; `None` if it is not known.
    pub hub: Option<&'a str>,
    /// Its ClusterProfile, if it was reached by one.
    pub reference: Option<&'a ClusterProfileReference>,
    /// What is to be installed.
    pub resources: &'a [Knative],
    /// Source of releases.
    pub releases: &'a ReleaseArgs,
    /// The same, opened.
    pub library: &'a Library,
    /// Pulls images by Pods, if that is wanted.
    pub pulls: Option<&'a Pulls>,
}

/// What was found about a resource, or about the cluster.
type Found<'a> = (Option<&'a Knative>, Finding);

/// What `check` finds in time.
async fn within(check: impl Future<Output = Finding>) -> Finding {
    let found = tokio::time::timeout(LIMIT, check).await;
    found.unwrap_or_else(|_| Finding::failed(format!("no answer within {LIMIT:?}")))
}

impl Subject<'_> {
    /// Makes all checks.
    pub async fn check(&self, report: &mut Report) {
        self.add(report, Id::Clock, vec![(None, within(self.clock()).await)]);
        let (mut versions, mut covered) = (vec![(None, within(self.kubernetes()).await)], Vec::new());
        for resource in self.resources {
            let called = format!("{} {}", resource.component(), resource.name());
            match self.covered(resource).await {
                Ok(one) => {
                    let finding = Finding::passed(format!("{} {}", one.resource.component(), one.version));
                    versions.push((Some(resource), finding));
                    covered.push(one);
                }
                Err(why) => versions.push((Some(resource), Finding::failed(format!("{called}: {why}")))),
            }
        }
        self.add(report, Id::Version, versions);
        if covered.is_empty() {
            return;
        }
        let mut found = Vec::new();
        for one in &covered {
            found.push((Some(&one.resource), within(self.rights(one)).await));
        }
        self.add(report, Id::Rights, found);
        let mut found = Vec::new();
        for one in &covered {
            let finding = within(ownership::finding(self.client, self.hub, &one.resource)).await;
            found.push((Some(&one.resource), finding));
        }
        self.add(report, Id::Owner, found);
        self.try_installations(report, &covered).await;
    }

    /// Tries what is in `covered`, without a write, except for the Pods that pull images.
    async fn try_installations(&self, report: &mut Report, covered: &[Covered]) {
        let knows_rights = report.has_failed(Id::Rights);
        let (mut namespaces, mut prerequisites, mut admission) = (Vec::new(), Vec::new(), Vec::new());
        let (mut pod_security, mut quota, mut pulled) = (Vec::new(), Vec::new(), Vec::new());
        for one in covered {
            let Covered { resource, plan, .. } = one;
            let (about, component) = (Some(resource), resource.component());
            let namespace = resource.target_namespace();
            let state = tokio::time::timeout(LIMIT, self.namespace(namespace)).await;
            let (finding, absent) = state.unwrap_or_else(|_| {
                let why = format!("namespace {namespace} was not read within {LIMIT:?}");
                (Finding::failed(why.clone()), Some(why))
            });
            namespaces.push((about, finding));
            let finding = match self.pulls {
                Some(pulls) => pulls.finding(self.client, one, absent.as_deref()).await,
                None => Finding::skipped("--pull runs a Pod that tries it"),
            };
            pulled.push((about, finding));
            let tried = tokio::time::timeout(
                LIMIT,
                Box::pin(admit::try_all(self.client, plan, absent.is_some().then_some(namespace))),
            );
            let Ok(tried) = tried.await else {
                let why = format!("{component}: the API server did not answer all dry runs within {LIMIT:?}");
                admission.push((about, Finding::failed(why)));
                continue;
            };
            let tried: &Tried = &tried;
            let absent = absent.as_deref();
            prerequisites.push((about, refusals::prerequisites(component, tried)));
            admission.push((about, refusals::admission(component, tried, absent, knows_rights)));
            pod_security.push((about, refusals::pod_security(component, tried, absent)));
            quota.push((about, refusals::quota(component, tried, absent)));
        }
        for (id, found) in [
            (Id::Namespace, namespaces),
            (Id::Prerequisites, prerequisites),
            (Id::Admission, admission),
            (Id::PodSecurity, pod_security),
            (Id::Quota, quota),
            (Id::ImagePull, pulled),
        ] {
            if !found.is_empty() {
                self.add(report, id, found);
            }
        }
    }

    /// Adds the check `id` with what was `found`, and what to do about the first problem.
    fn add(&self, report: &mut Report, id: Id, found: Vec<Found<'_>>) {
        let (about, findings): (Vec<Option<&Knative>>, Vec<Finding>) = found.into_iter().unzip();
        let all = Finding::of_all(&findings);
        let worst = findings.iter().position(|finding| finding.outcome == all.outcome);
        let about = worst.and_then(|worst| about.get(worst).copied().flatten()).or_else(|| self.resources.first());
        let is_problem = matches!(all.outcome, Outcome::Warning | Outcome::Failed);
        let advice = is_problem.then(|| self.advice(id, &all.detail, about)).flatten();
        report.add(id, all, advice);
    }

    /// What to do about the problem `detail` that the check `id` found.
    fn advice(&self, id: Id, detail: &str, about: Option<&Knative>) -> Option<Advice> {
        let (condition, reason) = match id {
            // The operator reports the same.
            Id::Prerequisites => (INSTALLED, "Error"),
            _ => (PREFLIGHT, id.as_str()),
        };
        let remedy = remedy::find(condition, reason, detail)?;
        let reference = self.reference;
        let mut names = Names {
            profile: reference.map_or("", |reference| reference.name.as_str()),
            profile_namespace: reference.map_or("", |reference| reference.namespace.as_str()),
            ..Names::default()
        };
        if let Some(resource) = about {
            (names.kind, names.name) = (resource.component().plural(), resource.name());
            (names.namespace, names.pod_namespace) = (resource.namespace(), resource.target_namespace());
            let mut owners = resource.meta().owner_references.iter().flatten();
            names.fleet = owners.find(|owner| owner.kind == "KnativeFleet").map_or("", |owner| owner.name.as_str());
        }
        Some(remedy.advice(&names))
    }

    /// Version and objects of `resource`.
    async fn covered(&self, resource: &Knative) -> Result<Covered, InputError> {
        let version = knative_operator_release::select_version(&self.library.bundle, resource, false)?;
        let (rendered, _) = self.releases.render_version(self.library, resource, &version).await?;
        let plan = Plan::new(Arc::new(rendered), &Owner::of(resource, ""));
        // The namespace of a spoke is created with the anchor.
        let is_remote = resource.common().cluster_profile_ref.is_some();
        let plan = if is_remote { plan.without_namespaces() } else { plan };
        Ok(Covered { resource: resource.clone(), version, plan })
    }

    async fn kubernetes(&self) -> Finding {
        let version = match self.client.apiserver_version().await {
            Ok(info) => info.git_version,
            Err(error) => return Finding::failed(error_text(&error)),
        };
        match self.releases.kubernetes_min_version.as_deref().filter(|minimum| is_older(&version, minimum)) {
            Some(minimum) => Finding::failed(format!(
                "Kubernetes {version} is older than {minimum}, the minimum that is set for Knative (--kubernetes-min-version)"
            )),
            None => Finding::passed(format!("Kubernetes {version}")),
        }
    }

    async fn clock(&self) -> Finding {
        let before = Timestamp::now();
        let request = http::Request::get("/version").body(Body::empty());
        let request = request.map_err(kube::Error::HttpError);
        let response = match request {
            Ok(request) => self.client.send(request).await,
            Err(error) => Err(error),
        };
        let after = Timestamp::now();
        match response {
            Ok(response) => {
                let date = response.headers().get(http::header::DATE).and_then(|date| date.to_str().ok());
                let date = date.and_then(|date| DateTimeParser::new().parse_timestamp(date).ok());
                skew((before, after), date)
            }
            Err(error) => Finding::failed(error_text(&error)),
        }
    }

    async fn rights(&self, covered: &Covered) -> Finding {
        let component = covered.resource.component();
        if covered.resource.common().cluster_profile_ref.is_none() {
            return Finding::skipped(format!(
                "{component}: the chart grants what an installation on the operator's own cluster needs"
            ));
        }
        match rights::missing(self.client, covered).await {
            Ok(missing) if missing.is_empty() => {
                Finding::passed(format!("suffice for {component} {}", covered.version))
            }
            Ok(missing) => Finding::failed(format!("{component}: the account lacks {}", rights::describe(&missing))),
            Err(why) => Finding::failed(format!("{component}: {why}")),
        }
    }

    /// Whether `name` can be installed into, and if not yet, why.
    async fn namespace(&self, name: &str) -> (Finding, Option<String>) {
        match Api::<Namespace>::all(self.client.clone()).get_metadata_opt(name).await {
            Ok(found) => existing(name, found.map(|found| found.metadata.deletion_timestamp.is_some())),
            Err(error) => {
                let why = format!("namespace {name} can't be read: {}", error_text(&error));
                (Finding::warning(why), None)
            }
        }
    }
}

/// The same for a namespace that could be read: `None` if it does not exist, or whether it is being
/// deleted.
fn existing(name: &str, is_terminating: Option<bool>) -> (Finding, Option<String>) {
    match is_terminating {
        Some(true) => {
            let why = format!("namespace {name} is being deleted");
            (Finding::failed(why.clone()), Some(why))
        }
        Some(false) => (Finding::passed(format!("{name} exists")), None),
        None => {
            let why = format!("namespace {name} does not exist yet");
            (Finding::passed(format!("{name} does not exist yet, and is created")), Some(why))
        }
    }
}

/// The difference between the clock of this machine, which was read before and after a request, and
/// the `date` of its response, in whole seconds.
fn skew((before, after): (Timestamp, Timestamp), date: Option<Timestamp>) -> Finding {
    let Some(date) = date else {
        return Finding::skipped("the response has no date: a proxy may have removed it");
    };
    let (ahead, behind) = (date.duration_since(after).as_secs(), before.duration_since(date).as_secs() - 1);
    let direction = if ahead > behind { "ahead of" } else { "behind" };
    match ahead.max(behind) {
        seconds if seconds > MAX_SKEW => {
            Finding::warning(format!("the clock of the cluster is {seconds} s {direction} the clock here"))
        }
        _ => Finding::passed(format!("differs by less than {} s", MAX_SKEW + 1)),
    }
}

/// Whether the version `found` is older than `minimum`, as far as both are versions.
fn is_older(found: &str, minimum: &str) -> bool {
    let numbers = |text: &str| {
        let text = text.trim_start_matches('v');
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        text[..end].split('.').map(str::parse).collect::<Result<Vec<u64>, _>>().ok()
    };
    matches!((numbers(found), numbers(minimum)), (Some(found), Some(minimum)) if found < minimum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_tried_in_a_namespace_that_ends_or_does_not_exist() {
        for (is_terminating, outcome, why) in [
            (Some(true), Outcome::Failed, Some("namespace n is being deleted")),
            (Some(false), Outcome::Passed, None),
            (None, Outcome::Passed, Some("namespace n does not exist yet")),
        ] {
            let (finding, absent) = existing("n", is_terminating);
            assert_eq!((finding.outcome, absent.as_deref()), (outcome, why), "{finding:?}");
        }
    }

    #[test]
    fn clocks_are_compared_by_seconds() {
        let at = |seconds: i64| Timestamp::from_second(seconds).unwrap();
        let of = |date: i64| skew((at(100), at(102)), Some(at(date)));
        for (date, outcome, part) in [
            (100, Outcome::Passed, "less than 11 s"),
            (112, Outcome::Passed, ""),
            (89, Outcome::Passed, ""),
            (113, Outcome::Warning, "11 s ahead of"),
            (88, Outcome::Warning, "11 s behind"),
            (3702, Outcome::Warning, "3600 s ahead of"),
        ] {
            let found = of(date);
            assert!(found.outcome == outcome && found.detail.contains(part), "{date}: {found:?}");
        }
        assert_eq!(skew((at(0), at(0)), None).outcome, Outcome::Skipped);
        let date = DateTimeParser::new().parse_timestamp("Sat, 28 Nov 2026 06:50:33 GMT").unwrap();
        assert_eq!(date.to_string(), "2026-11-28T06:50:33Z");
    }

    #[test]
    fn versions_of_kubernetes_are_compared_by_numbers() {
        for (found, minimum, expected) in [
            ("v1.9.5", "v1.10.0", true),
            ("v1.34.2-gke.100", "v1.34.0", false),
            ("v1.33.9+k3s1", "1.34.0", true),
            ("v1.34.0", "v1.34.0", false),
            ("main", "v1.34.0", false),
            ("v1.34.0", "", false),
        ] {
            assert_eq!(is_older(found, minimum), expected, "{found} {minimum}");
        }
    }
}
