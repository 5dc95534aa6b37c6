//! Fleets of thousands of clusters: time from a change to the screen, and frames while scrolling.

use std::time::{Duration, Instant};

use knative_operator_tests::Result;
use knative_operator_tests::picture;
use knative_operator_tests::product::FLEET;
use serde_json::json;

use crate::browser::Browser;
use crate::fake::{CAUSE, Fake, PLACE, name};
use crate::page::Page;
use crate::run;

/// Number of changes whose latency is measured.
const CHANGES: usize = 20;

#[test]
fn thousand_clusters_are_live_and_smooth() {
    run(async {
        let (fake, browser, _page) = open("ui-large", 1000, "14 clusters of 1,000 need attention").await?;
        let violations = browser.violations().await?;
        assert!(violations.is_empty(), "{violations:#?}");
        browser.picture("fleet", true).await?;
        for (name, arguments) in
            [("status", format!("status -n {PLACE}")), ("fleet-status", format!("fleet status prod -n {PLACE}"))]
        {
            let terminal = picture::of_command(&fake.hub.kubeconfig(), name, &arguments).await?;
            assert!(terminal.contains("canary") && terminal.contains("europe"), "{terminal}");
        }
        changes_are_on_the_screen_soon(&fake, &browser).await?;
        scrolling_is_smooth(&browser).await?;
        cause_is_shown(&browser).await?;

        // The number of a state is a link to its clusters.
        browser.click("4 Unreachable").await?;
        browser.shows("4 of 1,000 clusters").await?;
        let rows = browser.run("return document.querySelectorAll('.clusters tbody tr:not(.spacer)').length").await?;
        assert_eq!(rows, json!(4));
        table_is_smooth(&browser, 1000).await
    });
}

#[test]
fn five_thousand_clusters_are_live_and_smooth() {
    run(async {
        let (fake, browser, _page) = open("ui-larger", 5000, "70 clusters of 5,000 need attention").await?;
        changes_are_on_the_screen_soon(&fake, &browser).await?;
        scrolling_is_smooth(&browser).await?;
        table_is_smooth(&browser, 5000).await
    });
}

/// A page of a hub with `clusters` clusters, once it shows `headline`.
async fn open(hub: &str, clusters: usize, headline: &str) -> Result<(Fake, Browser, Page)> {
    let fake = Fake::start(hub, clusters).await?;
    let page = Page::start(&fake.hub.kubeconfig(), &[]).await?;
    let browser = Browser::start("light").await?;
    browser.resize(1280, 900).await?;
    let started = Instant::now();
    browser.open(&page.url).await?;
    browser.shows(headline).await?;
    let seconds = started.elapsed().as_secs_f64();
    let cells = browser.run("return document.querySelectorAll('.cell').length").await?;
    println!("{clusters} clusters: {cells} cells on the page {seconds:.1} s after it was opened");
    assert_eq!(cells, json!(clusters));
    Ok((fake, browser, page))
}

async fn changes_are_on_the_screen_soon(fake: &Fake, browser: &Browser) -> Result<()> {
    let mut latencies = Vec::new();
    for change in 1..=CHANGES {
        let number = 100;
        let expected = if change % 2 == 1 { "Degraded" } else { "Ready" };
        let script = format!(
            "const cell = document.querySelector('[data-id=\"{FLEET}/{}\"]'); \
             await new Promise((resolve) => {{ const check = () => cell.classList.contains('{expected}') && (observer.disconnect(), requestAnimationFrame(resolve)); \
             const observer = new MutationObserver(check); observer.observe(cell, {{attributes: true}}); check(); }}); return Date.now();",
            name(number)
        );
        let write = async {
            // The observer is there first.
            tokio::time::sleep(Duration::from_millis(200)).await;
            let at = jiff::Timestamp::now().as_millisecond();
            fake.change(number, change).await?;
            Ok::<i64, knative_operator_tests::Error>(at)
        };
        let (shown, written) = tokio::try_join!(browser.run_async(&script), write)?;
        latencies.push(shown.as_i64().ok_or("no time")? - written);
    }
    latencies.sort_unstable();
    println!(
        "a change is on the screen after {} ms (median), {} ms at most, of {CHANGES}",
        latencies[CHANGES / 2],
        latencies[CHANGES - 1]
    );
    Ok(())
}

/// The page of a cluster has the cause of the Pods, and what to do about it.
async fn cause_is_shown(browser: &Browser) -> Result<()> {
    browser.go(&format!("#/cluster/{FLEET}/{}", name(42))).await?;
    browser.shows(CAUSE).await?;
    browser.shows("Check the image").await?;
    browser.go("#/").await?;
    browser.shows("need attention").await
}

async fn scrolling_is_smooth(browser: &Browser) -> Result<()> {
    browser.resize(500, 700).await?;
    let frames = browser
        .run_async(
            "const times = []; const begin = performance.now(); \
             await new Promise((resolve) => { const step = (now) => { times.push(now); scrollBy(0, 12); \
             if (now - begin < 3000) requestAnimationFrame(step); else resolve(); }; requestAnimationFrame(step); }); \
             const gaps = times.slice(1).map((t, i) => t - times[i]).sort((a, b) => a - b); \
             return {frames: times.length, seconds: (times.at(-1) - times[0]) / 1000, slowest: gaps.at(-1), p95: gaps[Math.floor(gaps.length * 0.95)], height: document.documentElement.scrollHeight};",
        )
        .await?;
    let number = |key: &str| frames[key].as_f64().unwrap_or_default();
    println!(
        "scrolling: {:.0} frames a second, 95 % of frames within {:.1} ms, slowest {:.1} ms, page of {} pixels",
        number("frames") / number("seconds"),
        number("p95"),
        number("slowest"),
        frames["height"]
    );
    browser.resize(1280, 900).await
}

/// The table has the rows on the screen only, also at its end.
async fn table_is_smooth(browser: &Browser, clusters: usize) -> Result<()> {
    browser.go("#/clusters?sort=name").await?;
    browser
        .holds(&format!("document.querySelector('.clusters')?.getAttribute('aria-rowcount') === '{}'", clusters + 1))
        .await?;
    scrolling_is_smooth(browser).await?;
    browser.run("scrollTo(0, document.documentElement.scrollHeight)").await?;
    let last = format!("document.querySelector('.clusters tr[aria-rowindex=\"{}\"]')", clusters + 1);
    browser.holds(&last).await?;
    let rows = browser.run("return document.querySelectorAll('.clusters tbody tr').length").await?;
    assert!(rows.as_u64().is_some_and(|rows| rows < 100), "{rows} rows are in the page");
    Ok(())
}
