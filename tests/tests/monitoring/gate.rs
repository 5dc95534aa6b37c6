//! The recipe for a gate with a Prometheus query, in docs/user/fleet.md, with a real Prometheus
//! that scrapes requests of Knative Services.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures::future::try_join_all;
use knative_operator_tests::Result;
use knative_operator_tests::recipe::{self, container};
use knative_operator_tests::site::Site;

use super::{LIMIT, Prometheus, run};

/// The address in the recipe.
const ADDRESS: &str = "http://prometheus.monitoring:9090";
/// The label by which the recipe selects, and its value.
const OWN: &str = "namespace=\"default\"";
/// Good and bad requests in a second to the Knative Services of somebody else.
const OTHERS: u64 = 1000;
/// Prometheus has scraped this often, which suffices for a rate.
const SCRAPED: &str = "count_over_time(up[5m]) >= 4";

/// The metrics of queue-proxies after `scrapes`, between which there were `good` and `bad`
/// requests, and those of somebody else.
fn metrics(scrapes: u64, good: u64, bad: u64) -> String {
    let name = "kn_serving_invocation_duration_seconds";
    let mut text = format!("# TYPE {name} histogram\n");
    let others = "namespace=\"others\"";
    for (of, code, rate) in [(OWN, "200", good), (OWN, "503", bad), (others, "200", OTHERS), (others, "503", OTHERS)] {
        let requests = rate * scrapes;
        if requests > 0 {
            let label = format!("{of},http_response_status_code=\"{code}\"");
            // Writing to a String can't fail.
            let _ = writeln!(text, "{name}_bucket{{{label},le=\"+Inf\"}} {requests}");
            let _ = writeln!(text, "{name}_sum{{{label}}} {requests}");
            let _ = writeln!(text, "{name}_count{{{label}}} {requests}");
        }
    }
    text
}

/// Exit code and last words of the recipe, if there are `good` and `bad` requests in each second.
async fn answer(good: u64, bad: u64) -> Result<(i32, String)> {
    let scrapes = AtomicU64::new(0);
    let site = Site::open(Ipv4Addr::LOCALHOST, move |_| {
        (200, metrics(scrapes.fetch_add(1, Ordering::Relaxed) + 1, good, bad))
    });
    let prometheus = Prometheus::start(&[site.await?.address]).await?;
    let deadline = Instant::now() + LIMIT;
    // Polled: nothing reports it.
    while prometheus.query(SCRAPED).await?.is_empty() {
        if Instant::now() > deadline {
            return Err("Prometheus does not scrape".into());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let recipe = recipe::gate("errors")?;
    let address = format!("http://{}", prometheus.address);
    let ended = recipe::run(container(&recipe), &BTreeMap::new(), ADDRESS, &address).await?;
    Ok((ended.code, ended.last_words().to_owned()))
}

#[test]
fn query_of_the_recipe_measures_errors() {
    run(async {
        let cases = [
            // Good and bad requests in a second, and the rate of errors.
            (100, 0, 0, Some(0.0)),
            (199, 1, 0, Some(0.005)),
            (98, 2, 1, Some(0.02)),
            (0, 5, 1, Some(1.0)),
            (0, 0, 1, None),
        ];
        let answers = try_join_all(cases.map(|(good, bad, ..)| answer(good, bad))).await?;
        for ((good, bad, code, expected), (exit, words)) in cases.into_iter().zip(answers) {
            let what = format!("{good} good and {bad} bad requests: {words}");
            println!("{what}");
            let rate = words.strip_prefix("rate of errors: ").ok_or_else(|| what.clone())?;
            let is_expected = match expected {
                Some(expected) => rate.parse::<f64>().is_ok_and(|rate| (rate - expected).abs() < 1e-6),
                None => rate == "no requests",
            };
            assert!(is_expected && exit == code, "{what}");
        }
        Ok(())
    });
}
