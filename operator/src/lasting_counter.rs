//! Counters of what happens when a resource is deleted. Their series outlive it, so that alerts see
//! them. Users who create and delete resources choose the names of clusters, so the number of
//! series is limited.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

/// Number of series of a counter, apart from those of [`OTHERS`].
const MOST: usize = 1000;
/// Stands for all further clusters. No ClusterProfile has this name.
const OTHERS: &str = "others";

/// Labels of a series.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Labels {
    kind: &'static str,
    cluster: String,
}

/// Counts by kind and cluster. Clones share the numbers.
#[derive(Clone, Default)]
pub struct LastingCounter {
    family: Family<Labels, Counter>,
    known: Arc<Mutex<HashSet<Labels>>>,
}

impl LastingCounter {
    /// What is exported.
    pub fn family(&self) -> Family<Labels, Counter> {
        self.family.clone()
    }

    /// Adds `count` for `cluster`, or for all further ones if there are too many.
    pub fn add(&self, kind: &'static str, cluster: String, count: usize) {
        let mut labels = Labels { kind, cluster };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() < MOST {
            known.insert(labels.clone());
        } else if !known.contains(&labels) {
            OTHERS.clone_into(&mut labels.cluster);
        }
        drop(known);
        self.family.get_or_create(&labels).inc_by(count as u64);
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::registry::Registry;

    use super::*;

    #[test]
    fn further_clusters_share_a_series() {
        let (counter, mut registry) = (LastingCounter::default(), Registry::default());
        registry.register("left", "Objects", counter.family());
        for number in 0..5000 {
            counter.add("KnativeServing", format!("n/{number}"), 2);
        }
        counter.add("KnativeServing", "n/0".to_owned(), 1);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        assert_eq!(text.lines().filter(|line| !line.starts_with('#')).count(), MOST + 1);
        for (cluster, count) in [("n/0", 3), ("n/999", 2), (OTHERS, 8000)] {
            let line = format!("left_total{{kind=\"KnativeServing\",cluster=\"{cluster}\"}} {count}\n");
            assert!(text.contains(&line), "{line}");
        }
    }
}
