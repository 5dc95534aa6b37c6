//! The number of series of a thousand clusters.

use knative_operator_shared::api::KnativeServing;
use serde_json::json;

use super::*;

/// Lines with a value.
fn series(registry: &Registry) -> usize {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
    text.lines().filter(|line| !line.starts_with('#')).count()
}

#[test]
fn number_of_series_is_bounded() {
    let (metrics, registry) = Metrics::registered();
    let before = series(&registry);
    let resource = |number: usize| -> Knative {
        let name = format!("spoke-{number}");
        let serving: KnativeServing = serde_json::from_value(json!({"metadata": {"name": name, "namespace": "n"},
            "spec": {"clusterProfileRef": {"name": name, "namespace": "f"}}}))
        .unwrap();
        Knative::Serving(serving)
    };
    for number in 0..1000 {
        let resource = resource(number);
        let cluster = resource.common().cluster_profile_ref.clone().unwrap();
        metrics.set_states(&resource, &States::of_each(|_| State::True));
        // Another reason replaces the series of the first.
        metrics.set_states(&resource, &States::of_each(|_| State::not_met("Error", "m")));
        metrics.set_objects(&resource, ObjectCounts::default());
        metrics.objects_written(&resource, 1, 1);
        metrics.set_connected(&cluster, true);
        for failed in [false, true] {
            metrics.reconciled(&resource, Duration::ZERO, failed);
            metrics.credential_requested(&cluster, "secretreader", Duration::ZERO, !failed);
        }
    }
    let each = (series(&registry) - before) / 1000;
    assert!(each <= 25, "{each} series for each cluster");
    for number in 0..1000 {
        let resource = resource(number);
        metrics.remove(&ResourceKey::of(&resource), true);
        metrics.remove_connection(resource.common().cluster_profile_ref.as_ref().unwrap());
    }
    // The durations of a provider stay.
    assert!(series(&registry) <= before + 12, "{} after, {before} before", series(&registry));
}
