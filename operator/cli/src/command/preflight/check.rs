//! What checks find. Pure.

use serde_json::{Value, json};

use knative_operator_overview::Advice;

/// A check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Id {
    /// The ClusterProfile exists, and its cluster manager vouches for the cluster.
    Profile,
    /// It has a provider that the provider file has, too.
    Provider,
    /// The provider returns a credential.
    Credential,
    /// The API server accepts it.
    Connection,
    /// The versions of Kubernetes and of Knative fit.
    Version,
    /// The clocks agree.
    Clock,
    /// The credential has the permissions that the operator needs.
    Rights,
    /// Nobody else owns the installation.
    Owner,
    /// The namespace is not being deleted.
    Namespace,
    /// What the ingress and TLS need is installed.
    Prerequisites,
    /// The API server accepts the objects.
    Admission,
    /// It accepts the Pods.
    PodSecurity,
    /// The quota of the namespace suffices for each of them.
    Quota,
    /// The nodes can pull the images.
    ImagePull,
}

impl Id {
    /// All checks, in the order in which they are shown.
    pub const ALL: [Self; 14] = [
        Self::Profile,
        Self::Provider,
        Self::Credential,
        Self::Connection,
        Self::Version,
        Self::Clock,
        Self::Rights,
        Self::Owner,
        Self::Namespace,
        Self::Prerequisites,
        Self::Admission,
        Self::PodSecurity,
        Self::Quota,
        Self::ImagePull,
    ];

    /// The name, for programs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Profile => "profile",
            Self::Provider => "provider",
            Self::Credential => "credential",
            Self::Connection => "connection",
            Self::Version => "version",
            Self::Clock => "clock",
            Self::Rights => "rights",
            Self::Owner => "owner",
            Self::Namespace => "namespace",
            Self::Prerequisites => "prerequisites",
            Self::Admission => "admission",
            Self::PodSecurity => "pod-security",
            Self::Quota => "quota",
            Self::ImagePull => "image-pull",
        }
    }

    /// The name, for people.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Profile => "ClusterProfile",
            Self::Provider => "Access provider",
            Self::Credential => "Credential",
            Self::Connection => "Connection",
            Self::Version => "Versions",
            Self::Clock => "Clock",
            Self::Rights => "Permissions",
            Self::Owner => "Owner",
            Self::Namespace => "Namespace",
            Self::Prerequisites => "Prerequisites",
            Self::Admission => "Admission",
            Self::PodSecurity => "Pod Security",
            Self::Quota => "Quota",
            Self::ImagePull => "Image pull",
        }
    }

    /// Whether it is about the way to the cluster, rather than about the cluster.
    fn is_about_profile(self) -> bool {
        matches!(self, Self::Profile | Self::Provider | Self::Credential)
    }
}

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// It was not made.
    Skipped,
    /// All is well.
    Passed,
    /// The installation can succeed, but somebody should know.
    Warning,
    /// The installation can't succeed.
    Failed,
}

impl Outcome {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Skipped => "skipped",
            Self::Passed => "passed",
            Self::Warning => "warning",
            Self::Failed => "failed",
        }
    }
}

/// What a check found about a cluster, or about one of its resources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How it ended.
    pub outcome: Outcome,
    /// Why, for people.
    pub detail: String,
}

impl Finding {
    /// All is well.
    pub fn passed(detail: impl Into<String>) -> Self {
        Self { outcome: Outcome::Passed, detail: detail.into() }
    }

    /// Somebody should know.
    pub fn warning(detail: impl Into<String>) -> Self {
        Self { outcome: Outcome::Warning, detail: detail.into() }
    }

    /// It prevents the installation.
    pub fn failed(detail: impl Into<String>) -> Self {
        Self { outcome: Outcome::Failed, detail: detail.into() }
    }

    /// Not checked.
    pub fn skipped(detail: impl Into<String>) -> Self {
        Self { outcome: Outcome::Skipped, detail: detail.into() }
    }

    /// All `findings` as one: the details of the worst; and if they are good, of those that were
    /// skipped, too.
    pub fn of_all(findings: &[Self]) -> Self {
        let outcome = findings.iter().map(|finding| finding.outcome).max().unwrap_or(Outcome::Skipped);
        let is_shown = |finding: &&Self| {
            finding.outcome == outcome || outcome == Outcome::Passed && finding.outcome == Outcome::Skipped
        };
        let mut details: Vec<&str> = Vec::new();
        for finding in findings.iter().filter(is_shown) {
            if !details.contains(&finding.detail.as_str()) {
                details.push(&finding.detail);
            }
        }
        Self { outcome, detail: details.join("; ") }
    }
}

/// A check of a cluster.
#[derive(Clone, Debug)]
pub struct Check {
    /// Which.
    pub id: Id,
    /// What it found.
    pub finding: Finding,
    /// What to do.
    pub remedy: Option<Advice>,
}

/// The checks of a cluster.
#[derive(Clone, Debug)]
pub struct Report {
    /// The cluster.
    pub cluster: String,
    /// Its checks, in the order of [`Id::ALL`] once it is complete.
    pub checks: Vec<Check>,
}

impl Report {
    /// No checks of `cluster` yet.
    pub fn new(cluster: String) -> Self {
        Self { cluster, checks: Vec::new() }
    }

    /// Adds a check.
    pub fn add(&mut self, id: Id, finding: Finding, remedy: Option<Advice>) {
        self.checks.push(Check { id, finding, remedy });
    }

    /// Whether the check `id` failed.
    pub fn has_failed(&self, id: Id) -> bool {
        self.checks.iter().any(|check| check.id == id && check.finding.outcome == Outcome::Failed)
    }

    /// Whether no check failed.
    pub fn has_passed(&self) -> bool {
        self.checks.iter().all(|check| check.finding.outcome != Outcome::Failed)
    }

    /// The same with the checks that were not made, because another one failed. `is_direct`:
    /// without those of the ClusterProfile.
    #[must_use]
    pub fn complete(mut self, is_direct: bool) -> Self {
        let failed: Vec<Id> = self.checks.iter().filter(|check| self.has_failed(check.id)).map(|c| c.id).collect();
        for id in Id::ALL.into_iter().filter(|id| !(is_direct && id.is_about_profile())) {
            if self.checks.iter().any(|check| check.id == id) {
                continue;
            }
            let cause = failed.iter().rfind(|cause| **cause < id).map_or("an earlier check", |cause| cause.title());
            self.add(id, Finding::skipped(format!("not checked, because {cause} failed")), None);
        }
        self.checks.sort_by_key(|check| check.id);
        self
    }

    /// For programs.
    pub fn value(&self) -> Value {
        let checks = self.checks.iter().map(|Check { id, finding, remedy }| {
            json!({"id": id.as_str(), "title": id.title(), "outcome": finding.outcome.as_str(), "detail": finding.detail, "remedy": remedy})
        });
        json!({"cluster": self.cluster, "passed": self.has_passed(), "checks": checks.collect::<Vec<_>>()})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worst_finding_counts() {
        let of = |findings: &[Finding]| Finding::of_all(findings);
        assert_eq!(of(&[]), Finding::skipped(""));
        let (good, skipped) = (Finding::passed("a"), Finding::skipped("b"));
        assert_eq!(of(&[good.clone(), skipped.clone(), good.clone()]), Finding::passed("a; b"));
        assert_eq!(of(std::slice::from_ref(&skipped)), skipped);
        let (warning, failed) = (Finding::warning("c"), Finding::failed("d"));
        assert_eq!(of(&[good.clone(), warning.clone(), skipped.clone()]), warning);
        assert_eq!(of(&[warning, failed.clone(), skipped, good, Finding::failed("e")]), Finding::failed("d; e"));
    }

    #[test]
    fn checks_after_a_failure_are_skipped_with_the_cause() {
        let mut report = Report::new("f/a".to_owned());
        report.add(Id::Profile, Finding::passed("x"), None);
        report.add(Id::Provider, Finding::failed("y"), None);
        let report = report.complete(false);
        assert!(!report.has_passed() && report.has_failed(Id::Provider) && !report.has_failed(Id::Profile));
        assert_eq!(report.checks.iter().map(|check| check.id).collect::<Vec<_>>(), Id::ALL);
        let rest = report.checks.iter().skip(2);
        let expected = Finding::skipped("not checked, because Access provider failed");
        assert!(rest.clone().count() == 12 && rest.clone().all(|check| check.finding == expected), "{report:#?}");
        // A warning prevents nothing.
        let mut direct = Report::new("https://a".to_owned());
        direct.add(Id::Rights, Finding::warning("z"), None);
        direct.add(Id::Connection, Finding::passed("z"), None);
        let direct = direct.complete(true);
        assert!(direct.has_passed() && direct.checks.len() == Id::ALL.len() - 3);
        assert_eq!(direct.checks[0].id, Id::Connection);
    }

    #[test]
    fn programs_get_names_and_remedies() {
        let mut report = Report::new("f/a".to_owned());
        let remedy = Advice { text: "Do it.".to_owned(), general: "Do.".to_owned(), can_recover: false };
        report.add(Id::PodSecurity, Finding::failed("why"), Some(remedy));
        let expected = json!({"cluster": "f/a", "passed": false, "checks": [{
            "id": "pod-security", "title": "Pod Security", "outcome": "failed", "detail": "why",
            "remedy": {"text": "Do it.", "general": "Do.", "canRecover": false},
        }]});
        assert_eq!(report.value(), expected);
    }

    #[test]
    fn names_are_distinct() {
        let names: std::collections::BTreeSet<_> = Id::ALL.iter().map(|id| id.as_str()).collect();
        assert_eq!(names.len(), Id::ALL.len());
        assert!(Id::ALL.is_sorted());
    }
}
