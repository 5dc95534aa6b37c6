//! The tabs: what each shows, that its address has what is filtered and open, and the keyboard.

use fantoccini::key::Key;
use knative_operator_tests::Result;
use knative_operator_tests::product::FLEET;
use serde_json::json;

use crate::browser::Browser;
use crate::fake::{CAUSE, Fake, OPERATOR, VERSIONS, name};
use crate::page::Page;
use crate::run;

/// Clusters: 10 canaries, 10 in the second stage, 40 in the third, of which 22 are updated.
pub const CLUSTERS: usize = 60;
/// Clusters whose image is changed to one that does not exist.
const BROKEN: [usize; 5] = [43, 44, 45, 46, 47];
/// Copies into a variable: no other program reads the clipboard.
const CLIPBOARD: &str = "navigator.clipboard.writeText = async (text) => { window.copied = text; };";

/// A hub of [`CLUSTERS`] clusters, of which one is unreachable and six are degraded, with events.
pub async fn scene(name: &str) -> Result<Fake> {
    let fake = Fake::start(name, CLUSTERS).await?;
    for number in BROKEN {
        fake.change(number, 1).await?;
        fake.event(number, ("Warning", "WorkloadNotReady", &format!("activator: {CAUSE}"))).await?;
    }
    let [from, to] = VERSIONS;
    for number in 20..26 {
        let note = format!("Installing version {to} from {from}: 79 objects in namespace knative-serving");
        fake.event(number, ("Normal", "Installing", &note)).await?;
    }
    fake.event(
        30,
        (
            "Normal",
            "DriftRepaired",
            "Repaired Deployment knative-serving/controller: field spec.replicas was changed by kubectl",
        ),
    )
    .await?;
    Ok(fake)
}

async fn count(browser: &Browser, selector: &str) -> Result<u64> {
    let count = browser.run(&format!("return document.querySelectorAll({}).length", json!(selector))).await?;
    Ok(count.as_u64().unwrap_or_default())
}

async fn hash(browser: &Browser) -> Result<String> {
    Ok(browser.run("return location.hash").await?.as_str().unwrap_or_default().to_owned())
}

#[test]
fn tabs_have_addresses_and_keys() {
    run(async {
        let fake = scene("ui-tabs").await?;
        let page = Page::start(&fake.hub.kubeconfig(), &[]).await?;
        let browser = Browser::start("light").await?;
        browser.resize(1280, 900).await?;
        browser.open(&page.url).await?;
        browser.shows("7 clusters of 60 need attention").await?;
        overview(&fake, &browser).await?;
        drawer(&browser).await?;
        clusters(&browser).await?;
        versions(&browser).await?;
        activity(&fake, &browser).await?;
        cluster(&browser).await?;
        themes(&browser).await
    });
}

/// The hub, the rollout with its versions and its time, and the approval as a command.
async fn overview(fake: &Fake, browser: &Browser) -> Result<()> {
    browser.shows(&fake.hub.url()).await?;
    for text in
        ["fleet/prod", VERSIONS[0], VERSIONS[1], "22 of 40", "4 updating", "Approved by jane", "left at this rate"]
    {
        browser.shows(text).await?;
    }
    assert_eq!(count(browser, ".step").await?, 3);
    // Those that are well have no symbol.
    assert_eq!(browser.run("return document.querySelector('.cell.Ready').textContent").await?, json!(""));
    // The worst is first.
    let first = "document.querySelectorAll('.grid')[2].querySelector('.cell').classList.contains('Degraded')";
    browser.holds(first).await?;
    browser.accessible("overview").await?;

    browser.run("document.querySelector('.cell[tabindex=\"0\"]').focus()").await?;
    let focused = "return document.activeElement.getAttribute('data-id')";
    let before = browser.run(focused).await?;
    browser.press(Key::Right).await?;
    assert_ne!(browser.run(focused).await?, before);
    browser.shows("RemoteClusterUnauthorized").await?;
    browser.press(Key::Home).await?;
    assert_eq!(browser.run(focused).await?, before);

    let waiting = json!({"type": "Progressing", "status": "False", "reason": "AwaitingApproval", "message": "Stage world waits for an approval"});
    fake.fleet(&waiting).await?;
    browser.shows("Waits for approval").await?;
    browser.shows("knative-operator fleet approve prod -n fleet").await?;
    browser.accessible("approval").await?;
    browser.run(CLIPBOARD).await?;
    browser.run("document.querySelector('.callout .copy').click()").await?;
    browser.shows("Copied").await?;
    assert_eq!(browser.run("return window.copied").await?, json!("knative-operator fleet approve prod -n fleet"));
    browser.picture("overview", false).await.map(drop)
}

/// All clusters of a problem, in a drawer that has an address.
async fn drawer(browser: &Browser) -> Result<()> {
    browser
        .run("[...document.querySelectorAll('.more')].find((e) => e.textContent.includes('Show all 6')).focus()")
        .await?;
    browser.press(Key::Enter).await?;
    browser.shows("Copy diagnosis").await?;
    assert!(hash(browser).await?.contains("show=NotReady"), "{}", hash(browser).await?);
    assert_eq!(count(browser, ".drawer-list > li").await?, 6);
    browser.accessible("drawer").await?;
    browser.run(CLIPBOARD).await?;
    browser.click("Copy diagnosis").await?;
    browser.holds("window.copied.split('KnativeServing fleet/').length === 7").await?;
    browser.press(Key::Escape).await?;
    browser.holds("!document.querySelector('dialog[open]') && !location.hash.includes('show')").await?;
    browser.holds("document.activeElement.textContent.includes('Show all 6')").await?;

    // Back opens it again, and so does its address.
    browser.run("history.back()").await?;
    browser.holds("document.querySelector('dialog[open]')").await?;
    browser.run("location.reload()").await?;
    browser.holds("document.querySelector('dialog[open] .drawer-list')").await?;
    browser.press(Key::Escape).await?;
    browser.holds("!document.querySelector('dialog[open]')").await
}

async fn clusters(browser: &Browser) -> Result<()> {
    browser.go("#/clusters?state=Degraded").await?;
    browser.shows("6 of 60 clusters").await?;
    browser.holds("document.querySelector('.chip.Degraded').getAttribute('aria-pressed') === 'true'").await?;
    assert_eq!(count(browser, ".clusters tbody tr:not(.spacer)").await?, 6);
    browser.click("Unreachable 1").await?;
    browser.shows("7 of 60 clusters").await?;
    browser.run("history.back()").await?;
    browser.shows("6 of 60 clusters").await?;

    // A search: by the reason, and in the address.
    browser.go("#/clusters").await?;
    browser.keys("/").await?;
    browser.holds("document.activeElement.type === 'search'").await?;
    browser.keys("unauthorized").await?;
    browser.shows("1 of 60 clusters").await?;
    assert_eq!(hash(browser).await?, "#/clusters?q=unauthorized");
    browser.accessible("clusters").await?;

    // Sorted, and by arrow keys.
    browser.go("#/clusters").await?;
    browser.shows("60 clusters").await?;
    browser
        .run("[...document.querySelectorAll('.sort')].find((e) => e.textContent.startsWith('Cluster')).click()")
        .await?;
    browser.holds("document.querySelector('th[aria-sort]')?.textContent.startsWith('Cluster')").await?;
    let names = "[...document.querySelectorAll('.clusters tbody th a')].map((e) => e.textContent)";
    let sorted = browser.run(&format!("return {names}")).await?;
    assert_eq!([&sorted[0], &sorted[1]], [&json!(name(11)), &json!(name(14))]);
    browser.run("document.querySelector('.clusters tbody a').focus()").await?;
    browser.press(Key::Down).await?;
    browser.holds("document.activeElement.textContent === 'asia-014'").await?;
    browser.press(Key::Enter).await?;
    browser.holds("location.hash.startsWith('#/cluster/')").await?;
    browser.shows("6/6 conditions are fine").await
}

/// The matrix of versions, and the clusters behind.
async fn versions(browser: &Browser) -> Result<()> {
    browser.click("Versions").await?;
    browser.shows("Not at target: 18 clusters").await?;
    browser.shows("10 clusters with different minor versions").await?;
    assert_eq!(count(browser, ".matrix .skewed").await?, 1);
    browser.accessible("versions").await?;
    browser.picture("versions", true).await?;
    browser.run("document.querySelector('#behind a').click()").await?;
    browser.shows("18 of 60 clusters").await?;
    browser.click("version: not at target").await?;
    browser.shows("60 clusters").await?;
    assert_eq!(hash(browser).await?, "#/clusters");
    browser.go("#/versions").await?;
    browser.run("document.querySelector('.matrix .skewed a').click()").await?;
    browser.shows("10 of 60 clusters").await
}

/// One time line, by topic and by cluster, that is live.
async fn activity(fake: &Fake, browser: &Browser) -> Result<()> {
    browser.click("Activity").await?;
    browser.shows("Stage europe was approved by jane").await?;
    browser.shows("field spec.replicas was changed by kubectl").await?;
    browser.accessible("activity").await?;
    browser.picture("activity", true).await?;
    browser.go("#/activity?topic=upgrade").await?;
    browser.holds("document.querySelectorAll('.entry').length === 6").await?;
    fake.event(26, ("Normal", "Installing", "Installing version 1.23.0 from 1.22.1: 79 objects")).await?;
    browser.holds("document.querySelectorAll('.entry').length === 7").await?;
    browser.go(&format!("#/activity?q={}", name(30))).await?;
    browser.holds("document.querySelectorAll('.entry').length === 1").await
}

/// A cluster with what its Pods tell, and how to check it.
async fn cluster(browser: &Browser) -> Result<()> {
    browser.go(&format!("#/cluster/{FLEET}/{}", name(43))).await?;
    browser.shows(CAUSE).await?;
    browser.shows("WorkloadNotReady").await?;
    browser.holds("document.querySelector('.causes dt').textContent === 'activator'").await?;
    browser.accessible("degraded cluster").await?;
    browser.picture("cluster", true).await?;
    browser.go(&format!("#/cluster/{FLEET}/{}", name(7))).await?;
    let exec = format!("kubectl exec --namespace {OPERATOR} deploy/knative-operator");
    browser.shows(&format!("{exec} -- /knative-operator preflight {FLEET}/{}", name(7))).await?;
    browser.accessible("unreachable cluster").await?;
    // An address that somebody mistyped.
    browser.go("#/cluster/none/%zz").await?;
    browser.shows("no resource refers to cluster").await
}

async fn themes(browser: &Browser) -> Result<()> {
    let color = "return getComputedStyle(document.body).backgroundColor";
    let light = browser.run(color).await?;
    browser.go("#/").await?;
    for theme in ["light", "dark"] {
        browser.run("document.querySelector('.theme').click()").await?;
        browser.holds(&format!("document.documentElement.dataset.theme === '{theme}'")).await?;
        assert_eq!(browser.run(color).await? == light, theme == "light");
    }
    browser.shows("need attention").await?;
    browser.accessible("overview, dark").await?;
    browser.picture("fleet-dark", false).await?;
    browser.go("#/versions").await?;
    browser.accessible("versions, dark").await?;
    browser.go("#/activity").await?;
    browser.shows("was approved by jane").await?;
    browser.accessible("activity, dark").await?;
    // The choice stays.
    browser.run("location.reload()").await?;
    browser.holds("document.documentElement.dataset.theme === 'dark'").await
}
