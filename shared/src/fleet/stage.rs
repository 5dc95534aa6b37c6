//! Stages of a rollout, and their limits.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::selector::{ClusterSelector, ClusterSelectorError, Traits};
use crate::api::fleet::{ApprovalPolicy, Rollout, Stage};

/// Name of the stage of the clusters that no other stage selects.
pub const REST: &str = "rest";
/// Name of the stage in the approval of a removal.
pub const REMOVAL: &str = "removal";
/// Seconds after which a cluster that is not updated counts as failed, by default.
const PROGRESS_DEADLINE: i64 = 900;

/// Settings of a stage.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StageSettings {
    /// Name.
    pub name: String,
    /// Maximum number of clusters that are updated at the same time.
    pub max_concurrent: Option<IntOrString>,
    /// Maximum number of clusters that may fail.
    pub max_failures: Option<IntOrString>,
    /// Key of the label that orders its clusters.
    pub sorting_label: Option<String>,
    /// Time for which a cluster must be Ready before another one gets its place.
    pub min_ready: SignedDuration,
    /// Time for which a cluster must be Ready before its update has succeeded: at least
    /// `min_ready`.
    pub soak: SignedDuration,
    /// Time after which a cluster counts as failed.
    pub deadline: SignedDuration,
    /// Whether it waits for an approval.
    pub needs_approval: bool,
}

impl StageSettings {
    fn of(stage: &Stage) -> Self {
        let time = |seconds: Option<i32>| SignedDuration::from_secs(seconds.unwrap_or_default().into());
        let min_ready = time(stage.min_ready_seconds);
        Self {
            name: stage.name.clone(),
            max_concurrent: stage.max_concurrent.clone(),
            max_failures: stage.max_failures.clone(),
            sorting_label: stage.sorting_label_key.clone(),
            min_ready,
            soak: min_ready.max(time(stage.soak_seconds)),
            deadline: SignedDuration::from_secs(stage.progress_deadline_seconds.map_or(PROGRESS_DEADLINE, Into::into)),
            needs_approval: stage.approval == Some(ApprovalPolicy::Required),
        }
    }

    /// The place of a cluster with `labels` in the order of its clusters.
    pub fn place(&self, labels: &BTreeMap<String, String>) -> u64 {
        let value = self.sorting_label.as_ref().and_then(|key| labels.get(key));
        value.and_then(|value| value.parse().ok()).unwrap_or(u64::MAX)
    }

    /// Maximum number of `clusters` that are updated at the same time.
    pub fn concurrency(&self, clusters: usize) -> usize {
        limit(self.max_concurrent.as_ref(), 1, clusters).max(1)
    }

    /// Maximum number of `clusters` that may fail.
    pub fn failures(&self, clusters: usize) -> usize {
        limit(self.max_failures.as_ref(), 0, clusters)
    }
}

/// A selector of a stage is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("spec.rollout.stages: {0}")]
pub struct InvalidStages(ClusterSelectorError);

/// The stages of a fleet.
#[derive(Clone, Debug)]
pub struct Stages {
    settings: Vec<StageSettings>,
    selectors: Vec<Option<ClusterSelector>>,
}

impl Stages {
    /// The stages of `rollout`, with a last one for the clusters that no other selects.
    ///
    /// # Errors
    ///
    /// If a selector is invalid.
    pub fn of(rollout: &Rollout) -> Result<Self, InvalidStages> {
        let mut settings: Vec<_> = rollout.stages.iter().map(StageSettings::of).collect();
        let selectors = rollout.stages.iter().map(ClusterSelector::of).collect::<Result<Vec<_>, _>>();
        let mut selectors = selectors.map_err(InvalidStages)?;
        if selectors.iter().all(Option::is_some) {
            let rest = Stage { name: REST.to_owned(), ..Stage::default() };
            settings.push(StageSettings::of(&rest));
            selectors.push(None);
        }
        Ok(Self { settings, selectors })
    }

    /// The settings of the stages, in order.
    pub fn settings(&self) -> &[StageSettings] {
        &self.settings
    }

    /// Index of the stage of a cluster with `traits`.
    pub fn index_of(&self, traits: &Traits<'_>) -> usize {
        let selects =
            |selector: &Option<ClusterSelector>| selector.as_ref().is_none_or(|selector| selector.matches(traits));
        self.selectors.iter().position(selects).unwrap_or_default()
    }
}

/// `value` as a number of `clusters`: a percentage is rounded down. Invalid values count as
/// `default`.
pub fn limit(value: Option<&IntOrString>, default: usize, clusters: usize) -> usize {
    match value {
        None => default,
        Some(IntOrString::Int(number)) => usize::try_from(*number).unwrap_or(default),
        Some(IntOrString::String(text)) => {
            let percent = text.strip_suffix('%').and_then(|number| number.parse::<usize>().ok());
            percent.map_or(default, |percent| clusters.saturating_mul(percent) / 100)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

    use super::*;

    fn labeled(labels: BTreeMap<String, String>) -> Traits<'static> {
        Traits { labels: Cow::Owned(labels), ..Traits::default() }
    }

    #[test]
    fn cluster_belongs_to_first_stage_that_selects_it() {
        let label = |value: &str| BTreeMap::from([("tier".to_owned(), value.to_owned())]);
        let selecting = |name: &str, value: &str| Stage {
            name: name.to_owned(),
            cluster_selector: Some(LabelSelector { match_labels: Some(label(value)), ..LabelSelector::default() }),
            ..Stage::default()
        };
        let rollout =
            Rollout { stages: vec![selecting("canary", "canary"), selecting("again", "canary")], ..Rollout::default() };
        let stages = Stages::of(&rollout).unwrap();
        let names: Vec<_> = stages.settings().iter().map(|stage| stage.name.as_str()).collect();
        assert_eq!(names, ["canary", "again", REST]);
        let index_of = |stages: &Stages, value: &str| stages.index_of(&labeled(label(value)));
        assert_eq!((index_of(&stages, "canary"), index_of(&stages, "x")), (0, 2));
        // A stage without selector takes all others, so there is no further one.
        let all = Stage { name: "all".to_owned(), ..Stage::default() };
        let stages =
            Stages::of(&Rollout { stages: vec![selecting("canary", "canary"), all], ..Rollout::default() }).unwrap();
        assert_eq!((stages.settings().len(), index_of(&stages, "x")), (2, 1));
        // By a property, and by both.
        let by_region = |labels: Option<LabelSelector>| Stage {
            name: "eu".to_owned(),
            cluster_selector: labels,
            property_selector: selecting("", "eu").cluster_selector,
            ..Stage::default()
        };
        let in_eu =
            |labels: BTreeMap<String, String>| Traits { properties: Cow::Owned(label("eu")), ..labeled(labels) };
        let of = |stage: Stage| Stages::of(&Rollout { stages: vec![stage], ..Rollout::default() }).unwrap();
        let (any, canary) = (of(by_region(None)), of(by_region(selecting("", "canary").cluster_selector)));
        assert_eq!((any.settings().len(), any.index_of(&in_eu(label("x"))), index_of(&any, "eu")), (2, 0, 1));
        assert_eq!((canary.index_of(&in_eu(label("canary"))), canary.index_of(&in_eu(label("x")))), (0, 1));
    }

    #[test]
    fn soak_is_at_least_the_time_of_a_place() {
        for (min_ready, soak, expected) in
            [(None, None, (0, 0)), (Some(60), Some(10), (60, 60)), (None, Some(9), (0, 9))]
        {
            let stage = Stage { min_ready_seconds: min_ready, soak_seconds: soak, ..Stage::default() };
            let settings = StageSettings::of(&stage);
            assert_eq!((settings.min_ready.as_secs(), settings.soak.as_secs()), expected);
        }
    }

    #[test]
    fn clusters_without_a_number_come_last() {
        let stage = Stage { sorting_label_key: Some("wave".to_owned()), ..Stage::default() };
        let place =
            |value: &str| StageSettings::of(&stage).place(&BTreeMap::from([("wave".to_owned(), value.to_owned())]));
        assert_eq!([place("2"), place("10"), place("late"), place("-1")], [2, 10, u64::MAX, u64::MAX]);
        assert_eq!(StageSettings::of(&stage).place(&BTreeMap::new()), u64::MAX);
    }

    #[test]
    fn limits_are_numbers_or_percentages() {
        let text = |text: &str| Some(IntOrString::String(text.to_owned()));
        for (value, clusters, expected) in [
            (None, 100, 7),
            (Some(IntOrString::Int(3)), 100, 3),
            (Some(IntOrString::Int(-3)), 100, 7),
            (text("25%"), 100, 25),
            (text("25%"), 3, 0),
            (text("100%"), 3, 3),
            (text("x"), 3, 7),
        ] {
            assert_eq!(limit(value.as_ref(), 7, clusters), expected, "{value:?}");
        }
        let stage = StageSettings { max_concurrent: text("1%"), ..StageSettings::default() };
        assert_eq!((stage.concurrency(10), stage.failures(10)), (1, 0));
    }
}
