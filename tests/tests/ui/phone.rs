//! The page on a narrow screen: nothing is wider than it, and all views can be used.

use fantoccini::key::Key;
use knative_operator_tests::product::FLEET;
use serde_json::json;

use crate::browser::Browser;
use crate::fake::name;
use crate::page::Page;
use crate::run;
use crate::tabs::scene;

#[test]
fn views_fit_narrow_screens() {
    run(async {
        let fake = scene("ui-phone").await?;
        for (scheme, width) in [("light", 320), ("dark", 390)] {
            let page = Page::start(&fake.hub.kubeconfig(), &[]).await?;
            let browser = Browser::phone(scheme, width).await?;
            browser.open(&page.url).await?;
            browser.shows("7 clusters of 60 need attention").await?;
            assert_eq!(browser.run("return document.documentElement.clientWidth").await?, json!(width));
            for (hash, text) in [
                ("#/".to_owned(), "Needs attention"),
                ("#/clusters".to_owned(), "60 clusters"),
                ("#/versions".to_owned(), "Not at target"),
                ("#/activity".to_owned(), "was approved by jane"),
                (format!("#/cluster/{FLEET}/{}", name(43)), "WorkloadNotReady"),
                (format!("#/resource/KnativeServing/fleet/{}", name(43)), "clusterProfileRef"),
            ] {
                browser.go(&hash).await?;
                browser.shows(text).await?;
                browser.accessible_here(&format!("{hash} at {width} pixels, {scheme}")).await?;
                let file = hash.trim_start_matches("#/").split('/').next().unwrap_or_default().to_owned();
                browser
                    .picture(
                        &format!("phone-{scheme}-{}", if file.is_empty() { "overview" } else { file.as_str() }),
                        false,
                    )
                    .await?;
            }
            browser.go("#/").await?;
            browser.click("Show all 6").await?;
            browser.shows("Copy diagnosis").await?;
            browser.accessible_here(&format!("drawer at {width} pixels, {scheme}")).await?;
            browser.press(Key::Escape).await?;
            browser.holds("!document.querySelector('dialog[open]')").await?;
        }
        Ok(())
    });
}
