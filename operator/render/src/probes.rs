//! Overrides of probes.

use knative_operator_shared::api::ContainerProbe;
use serde_json::{Value, json};

/// The given settings; zero means not given, as in Kubernetes.
pub fn settings(given: &ContainerProbe) -> impl Iterator<Item = (&'static str, i64)> {
    let ContainerProbe {
        container: _,
        initial_delay_seconds,
        timeout_seconds,
        period_seconds,
        success_threshold,
        failure_threshold,
        termination_grace_period_seconds,
    } = given;
    [
        ("initialDelaySeconds", *initial_delay_seconds),
        ("timeoutSeconds", *timeout_seconds),
        ("periodSeconds", *period_seconds),
        ("successThreshold", *success_threshold),
        ("failureThreshold", *failure_threshold),
        ("terminationGracePeriodSeconds", *termination_grace_period_seconds),
    ]
    .into_iter()
    .filter_map(|(field, value)| Some((field, value.filter(|v| *v != 0)?)))
}

/// Sets `given` in the probe at `field` of `container`; an override without settings removes the
/// probe.
pub fn set(container: &mut Value, field: &str, given: &ContainerProbe) {
    let mut given = settings(given).peekable();
    if given.peek().is_none() {
        container.as_object_mut().and_then(|c| c.remove(field));
        return;
    }
    for (setting, value) in given {
        container[field][setting] = json!(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_are_changed_added_and_removed() {
        let given = |period, failure| ContainerProbe {
            period_seconds: period,
            failure_threshold: failure,
            ..ContainerProbe::default()
        };
        let mut container =
            json!({"readinessProbe": {"periodSeconds": 5, "timeoutSeconds": 2, "exec": {}}, "livenessProbe": {}});
        set(&mut container, "readinessProbe", &given(Some(7), Some(0)));
        set(&mut container, "livenessProbe", &given(None, Some(0)));
        set(&mut container, "startupProbe", &given(Some(1), None));
        let expected = json!({"readinessProbe": {"periodSeconds": 7, "timeoutSeconds": 2, "exec": {}}, "startupProbe": {"periodSeconds": 1}});
        assert_eq!(container, expected);
    }
}
