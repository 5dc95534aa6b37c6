//! How many writes for a fleet are sent at the same time: fewer to a hub that has too much to do,
//! and refuses some (429, API priority and fairness). Pure.

use super::write::CONCURRENT_WRITES;

/// One more write at the same time is tried after this many times as many were stored as there are
/// at a time.
const PATIENCE: usize = 4;

/// The number of writes at the same time: half as many after a refusal, and one more after a while.
#[derive(Clone, Copy, Debug)]
pub struct Width {
    current: usize,
    stored: usize,
}

impl Default for Width {
    fn default() -> Self {
        Self { current: CONCURRENT_WRITES, stored: 0 }
    }
}

impl Width {
    /// The number.
    pub fn get(self) -> usize {
        self.current
    }

    /// A write was stored.
    pub fn accept(&mut self) {
        self.stored += 1;
        if self.stored >= self.current * PATIENCE {
            *self = Self { current: (self.current + 1).min(CONCURRENT_WRITES), stored: 0 };
        }
    }

    /// A write was refused that was sent when there were this many at the same time. Those that
    /// were sent together count once. Returns whether fewer are possible.
    pub fn refuse(&mut self, at: usize) -> bool {
        *self = Self { current: self.current.min((at / 2).max(1)), stored: 0 };
        at > 1
    }
}

#[cfg(test)]
mod tests {
    use http::Method;
    use knative_operator_shared::label::FLEET_FINALIZER;
    use serde_json::json;

    use super::*;
    use crate::controller::fleets::clusters::Selections;
    use crate::controller::fleets::reconcile::reconcile;
    use crate::controller::fleets::state::{FleetState, Next};
    use crate::controller::fleets::store::{Store, StoredFleet};
    use crate::controller::fleets::tests::{context, hub};

    #[test]
    fn writes_that_are_refused_together_count_once() {
        let mut width = Width::default();
        assert!((0..14).all(|_| width.refuse(CONCURRENT_WRITES)));
        assert_eq!(width.get(), CONCURRENT_WRITES / 2);
        assert!(width.refuse(2) && !width.refuse(1));
        assert_eq!(width.get(), 1);
        (0..1000).for_each(|_| width.accept());
        assert_eq!(width.get(), CONCURRENT_WRITES);
    }

    #[test]
    fn few_writes_are_refused_by_a_hub_that_takes_few_at_a_time() {
        for seats in 1..=CONCURRENT_WRITES {
            let (mut width, mut stored, mut refused) = (Width::default(), 0, 0);
            while stored < 1000 {
                let at = width.get();
                (0..at.min(seats)).for_each(|_| width.accept());
                for _ in seats..at {
                    width.refuse(at);
                }
                (stored, refused) = (stored + at.min(seats), refused + at.saturating_sub(seats));
            }
            assert!(refused <= 250, "{seats}: {refused}");
        }
    }

    #[tokio::test]
    async fn hub_that_refuses_each_write_gets_few() {
        let fleet = json!({"apiVersion": "operator.knative.dev/v1alpha1", "kind": "KnativeFleet",
            "metadata": {"name": "prod", "namespace": "n", "uid": "1", "generation": 1, "resourceVersion": "1",
                "finalizers": [FLEET_FINALIZER]},
            "spec": {"placement": {"clusterSelector": {}}, "serving": {"spec": {"version": "1.22.1"}},
                "rollout": {"stages": [{"name": "all", "maxConcurrent": 100}]}}});
        let is_child = |method: &Method, path: &str| *method == Method::PATCH && path.contains("/knativeservings/");
        let (client, mut requests) =
            hub(vec![fleet.clone()], move |method, path| is_child(method, path).then_some(429));
        let (cx, _) = context(&client);
        let profile = |number: usize| {
            let healthy = json!({"conditions": [{"type": "ControlPlaneHealthy", "status": "True"}]});
            let meta = json!({"name": number.to_string(), "namespace": "n"});
            serde_json::from_value(json!({"metadata": meta, "spec": {}, "status": healthy})).unwrap()
        };
        cx.profiles.reset((0..100).map(profile).collect());
        let stored = StoredFleet { fleet: serde_json::from_value(fleet).unwrap(), unreadable: None };
        let (store, selections, mut state) = (Store::default(), Selections::default(), FleetState::default());
        // Each time half as many, then one in each pass.
        for expected in [16 + 8 + 4 + 2 + 1, 1, 1] {
            let next = Box::pin(reconcile(&cx, &store, &stored, &selections, &mut state)).await;
            assert!(matches!(next, Next::After(delay) if delay.as_secs() <= 1), "{next:?}");
            let mut sent = 0;
            while let Ok((method, path, _)) = requests.try_recv() {
                sent += usize::from(is_child(&method, &path));
            }
            assert_eq!(sent, expected);
        }
    }
}
