//! The documentation site in a browser: every page with axe-core, light and dark, and on a phone;
//! the keyboard, the search, and the choice of a version.

use std::path::{Path, PathBuf};
use std::process::Command;

use fantoccini::key::Key;
use knative_operator_tests::{Result, tools};

use crate::browser::Browser;
use crate::run;

/// Pages that repeat others, and the page for wrong addresses.
const OTHERS: [&str; 3] = ["print.html", "toc.html", "404.html"];

/// A site of this source and of two former releases.
struct Site {
    folder: tempfile::TempDir,
}

impl Site {
    /// Builds the site from a copy of the source that has three tags. The newest texts have a page
    /// more than those of the releases.
    fn build() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let source = folder.path().join("source");
        std::fs::create_dir(&source)?;
        script(tools::project(), "git ls-files -z | tar --null -T - -cf - | tar -xf - -C \"$0\"", &source)?;
        script(
            &source,
            "set -e; git init -q; git add .; commit() { git -c user.name=test -c user.email=test@example.com commit -qm \"$1\"; }
             commit texts; git tag v0.1.0; git tag v0.1.1; git tag v0.2.0; git tag v0.3.0-rc.1
             echo '# Newest page' >docs/user/newest.md; sed -i 's|^- .Install.(user/install.md)|&\\n- [Newest](user/newest.md)|' docs/SUMMARY.md
             git add .; commit newest; OUT=$0 tests/package/docs.sh",
            &folder.path().join("site"),
        )?;
        Ok(Self { folder })
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("site")
    }

    fn url(&self, page: &str) -> String {
        format!("file://{}/{page}", self.path().display())
    }

    /// The pages of the newest texts.
    fn pages(&self) -> Result<Vec<String>> {
        let mut pages = Vec::new();
        let mut folders = vec![self.path()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder)? {
                let path = entry?.path();
                let name = path.strip_prefix(self.path())?.display().to_string();
                if path.is_dir() && !name.starts_with('v') {
                    folders.push(path);
                } else if path.extension().is_some_and(|kind| kind == "html") && !OTHERS.contains(&name.as_str()) {
                    pages.push(name);
                }
            }
        }
        Ok(pages)
    }
}

/// Runs `text` with bash in `folder`, with `argument` as `$0`.
fn script(folder: &Path, text: &str, argument: &Path) -> Result<()> {
    let output = Command::new("bash").args(["-c", text]).arg(argument).current_dir(folder).output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{text}: {}", String::from_utf8_lossy(&output.stderr)).into())
}

#[test]
fn every_page_of_the_site_is_accessible() {
    run(async {
        let site = Site::build()?;
        let links = Command::new(tools::binary("check-links")?).arg(site.path()).output()?;
        assert!(links.status.success(), "{}", String::from_utf8_lossy(&links.stderr));

        let pages = site.pages()?;
        assert!(pages.len() > 50, "{pages:?}");
        for scheme in ["light", "dark"] {
            let browser = Browser::start(scheme).await?;
            browser.resize(1280, 900).await?;
            for page in &pages {
                browser.open(&site.url(page)).await?;
                browser.accessible_here(&format!("{page}, {scheme}")).await?;
            }
            println!("axe-core finds nothing in {} pages of the site, {scheme}", pages.len());
            browser.open(&site.url("index.html")).await?;
            browser.picture(&format!("site-{scheme}"), false).await?;
        }
        let phone = Browser::phone("light", 390).await?;
        for page in &pages {
            phone.open(&site.url(page)).await?;
            phone.accessible_here(&format!("{page} at 390 pixels")).await?;
        }
        println!("axe-core finds nothing in {} pages of the site, 390 pixels", pages.len());
        Ok(())
    });
}

#[test]
fn site_has_versions_a_search_and_keys() {
    run(async {
        let site = Site::build()?;
        let browser = Browser::start("light").await?;
        browser.resize(1280, 900).await?;
        let versions = "return [...document.querySelector('.site-versions').options].map((o) => o.text).join(' ')";
        let choose = |version: &str| {
            format!(
                "const choice = document.querySelector('.site-versions'); \
                 choice.value = [...choice.options].find((o) => o.text === '{version}').value; \
                 choice.dispatchEvent(new Event('change'));"
            )
        };

        // The last release of each minor, and the same page in it.
        browser.open(&site.url("docs/user/fleet.html")).await?;
        assert_eq!(browser.run(versions).await?, "main v0.2.0 v0.1.1");
        browser.run(&choose("v0.1.1")).await?;
        browser.holds("location.pathname.endsWith('/site/v0.1.1/docs/user/fleet.html')").await?;
        browser.holds("document.querySelector('.site-versions').selectedOptions[0].text === 'v0.1.1'").await?;
        browser.accessible_here("page of a release").await?;
        browser.run(&choose("main")).await?;
        browser.holds("location.pathname.endsWith('/site/docs/user/fleet.html')").await?;
        // A release without the page has its start page.
        browser.open(&site.url("docs/user/newest.html")).await?;
        browser.run(&choose("v0.2.0")).await?;
        browser.holds("location.pathname.endsWith('/site/v0.2.0/index.html')").await?;

        // The table of contents by keyboard.
        browser.open(&site.url("index.html")).await?;
        let contents = "document.querySelector('[aria-controls=mdbook-sidebar]:not([hidden])')";
        browser.run(&format!("{contents}.focus()")).await?;
        browser.press(Key::Enter).await?;
        browser.holds(&format!("{contents}.getAttribute('aria-expanded') === 'false'")).await?;
        browser.holds("!document.documentElement.classList.contains('sidebar-visible')").await?;
        browser.run(&format!("{contents}.focus()")).await?;
        browser.press(Key::Enter).await?;
        browser.holds("document.documentElement.classList.contains('sidebar-visible')").await?;

        // The search by keyboard.
        browser.run("document.activeElement.blur()").await?;
        browser.keys("/").await?;
        browser.holds("document.activeElement.id === 'mdbook-searchbar'").await?;
        browser.keys("minReadySeconds").await?;
        browser.holds("[...document.querySelectorAll('#mdbook-searchresults a')].some((a) => a.href.includes('/docs/user/fleet.html'))").await?;
        browser.accessible_here("results of a search").await?;
        Ok(())
    });
}
