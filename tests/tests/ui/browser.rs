//! Debian's Chromium, headless, driven by ChromeDriver.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fantoccini::key::Key;
use fantoccini::{Client, ClientBuilder};
use knative_operator_tests::{Result, tools};
use serde_json::{Value, json};

/// Time limit of what a page shows.
const LIMIT: Duration = Duration::from_secs(60);
/// Widths of a laptop and a wall screen, in pixels.
pub const WIDTHS: [u32; 2] = [1280, 3840];
/// Arguments without which Chromium needs a desktop, or contacts the internet.
const ARGUMENTS: [&str; 9] = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
];

/// A browser with one page. Dropping it stops it.
pub struct Browser {
    client: Client,
    driver: Child,
    /// The checks of axe-core.
    axe: String,
    _profile: tempfile::TempDir,
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The driver ends its browser. Err means that it ended already.
        let group = rustix::process::Pid::from_child(&self.driver);
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::TERM);
        let _ = self.driver.wait();
    }
}

/// Whether the programs are installed; else what is missing.
pub fn is_installed() -> std::result::Result<(), String> {
    for program in ["chromium", "chromedriver"] {
        let found = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        if !found.is_ok_and(|status| status.success()) {
            return Err(format!("{program} is not installed (Debian: apt-get install chromium chromium-driver)"));
        }
    }
    Ok(())
}

impl Browser {
    /// Starts a browser whose colors are `scheme`, `light` or `dark`.
    pub async fn start(scheme: &str) -> Result<Self> {
        Self::start_with(scheme, None).await
    }

    /// Starts a browser with the screen of a phone, `width` pixels wide. Windows of a desktop are
    /// wider.
    pub async fn phone(scheme: &str, width: u32) -> Result<Self> {
        Self::start_with(scheme, Some(json!({"deviceMetrics": {"width": width, "height": 844, "pixelRatio": 2.0}})))
            .await
    }

    async fn start_with(scheme: &str, screen: Option<Value>) -> Result<Self> {
        use std::os::unix::process::CommandExt;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let profile = tempfile::tempdir()?;
        let driver = Command::new("chromedriver")
            .arg(format!("--port={port}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        let mut arguments: Vec<String> = ARGUMENTS.map(str::to_owned).to_vec();
        arguments.push(format!("--user-data-dir={}", profile.path().display()));
        if scheme == "dark" {
            arguments.push("--force-dark-mode".to_owned());
            arguments.push("--blink-settings=preferredColorScheme=0".to_owned());
        }
        let mut options = json!({"goog:chromeOptions": {"args": arguments}});
        if let Some(screen) = screen {
            options["goog:chromeOptions"]["mobileEmulation"] = screen;
        }
        let capabilities = options.as_object().cloned().unwrap_or_default();
        let deadline = Instant::now() + LIMIT;
        let client = loop {
            let mut builder = ClientBuilder::new(hyper_util::client::legacy::connect::HttpConnector::new());
            match builder.capabilities(capabilities.clone()).connect(&format!("http://127.0.0.1:{port}")).await {
                Ok(client) => break client,
                Err(error) if Instant::now() > deadline => return Err(error.into()),
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        };
        let axe = std::fs::read_to_string(tools::control_plane("axe.min.js")?)?;
        Ok(Self { client, driver, axe, _profile: profile })
    }

    /// Opens `url`.
    pub async fn open(&self, url: &str) -> Result<()> {
        Ok(self.client.goto(url).await?)
    }

    /// Sets the size of the window, in pixels.
    pub async fn resize(&self, width: u32, height: u32) -> Result<()> {
        Ok(self.client.set_window_size(width, height).await?)
    }

    /// The result of `script`, the body of a function.
    pub async fn run(&self, script: &str) -> Result<Value> {
        Ok(self.client.execute(script, Vec::new()).await?)
    }

    /// The result of an asynchronous function with the body `script`.
    pub async fn run_async(&self, script: &str) -> Result<Value> {
        let script = format!(
            "const done = arguments[0]; (async () => {{ {script} }})().then(done, (error) => done(`error: ${{error}}`));"
        );
        Ok(self.client.execute_async(&script, Vec::new()).await?)
    }

    /// The text of the page, as people see it.
    pub async fn text(&self) -> Result<String> {
        Ok(self.run("return document.body.innerText").await?.as_str().unwrap_or_default().to_owned())
    }

    /// Waits until the page shows `text`.
    pub async fn shows(&self, text: &str) -> Result<()> {
        self.until(text, |page| page.contains(text)).await
    }

    /// Waits until the page no longer shows `text`.
    pub async fn hides(&self, text: &str) -> Result<()> {
        self.until(&format!("no {text}"), |page| !page.contains(text)).await
    }

    /// Waits until `condition`, an expression, is true in the page.
    pub async fn holds(&self, condition: &str) -> Result<()> {
        let deadline = Instant::now() + LIMIT;
        while self.run(&format!("return Boolean({condition})")).await? != true {
            if Instant::now() > deadline {
                return Err(format!("{condition} does not hold on the page:\n{}", self.text().await?).into());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// Goes to the view with the address `hash`.
    pub async fn go(&self, hash: &str) -> Result<()> {
        self.run(&format!("location.hash = {}", json!(hash))).await.map(drop)
    }

    /// Types `text` where the focus is.
    pub async fn keys(&self, text: &str) -> Result<()> {
        Ok(self.client.active_element().await?.send_keys(text).await?)
    }

    /// Presses `key` where the focus is.
    pub async fn press(&self, key: Key) -> Result<()> {
        self.keys(&char::from(key).to_string()).await
    }

    async fn until(&self, what: &str, holds: impl Fn(&str) -> bool) -> Result<()> {
        let deadline = Instant::now() + LIMIT;
        loop {
            let text = self.text().await?;
            if holds(&text) {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(format!("the page does not show {what:?} but:\n{text}").into());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Clicks the button or link whose text contains `text`.
    pub async fn click(&self, text: &str) -> Result<()> {
        let script = format!(
            "const found = [...document.querySelectorAll('a, button, summary')].find((e) => e.textContent.includes({})); \
             if (!found) return false; found.click(); return true;",
            json!(text)
        );
        if self.run(&script).await? == true {
            Ok(())
        } else {
            Err(format!("no button {text:?}: {}", self.text().await?).into())
        }
    }

    /// What axe-core finds: rules, and the elements that violate them.
    pub async fn violations(&self) -> Result<Vec<String>> {
        self.run(&self.axe).await?;
        let found = self
            .run_async(
                "const report = await axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']}); \
                 return {passes: report.passes.length, violations: report.violations.map((v) => `${v.id}: ${v.help}: ${v.nodes.map((n) => `${n.html} ${n.failureSummary}`).slice(0, 3).join(' | ')}`)};",
            )
            .await?;
        if found["passes"].as_u64().unwrap_or_default() == 0 {
            return Err(format!("axe-core did not run: {found}").into());
        }
        Ok(serde_json::from_value(found["violations"].clone())?)
    }

    /// Checks the view at all widths with axe-core, and that it fits.
    pub async fn accessible(&self, view: &str) -> Result<()> {
        for width in WIDTHS {
            self.resize(width, 900).await?;
            self.accessible_here(&format!("{view} at {width} pixels")).await?;
        }
        self.resize(1280, 900).await?;
        println!("axe-core finds nothing in: {view}, at {WIDTHS:?} pixels");
        Ok(())
    }

    /// Checks the view with axe-core, and that it fits the width of the window.
    pub async fn accessible_here(&self, view: &str) -> Result<()> {
        let violations = self.violations().await?;
        if !violations.is_empty() {
            return Err(format!("{view}: {violations:#?}").into());
        }
        let overflow =
            self.run("return document.documentElement.scrollWidth - document.documentElement.clientWidth").await?;
        if overflow.as_i64().unwrap_or(1) > 0 {
            return Err(format!("{view} is {overflow} pixels too wide").into());
        }
        Ok(())
    }

    /// Writes a picture of the window to `target/ui`, and to `docs/images` if `UPDATE_IMAGES` is
    /// set and the picture belongs there.
    pub async fn picture(&self, name: &str, is_in_docs: bool) -> Result<PathBuf> {
        let folder = tools::project().join("target/ui");
        std::fs::create_dir_all(&folder)?;
        let path = folder.join(format!("{name}.png"));
        let png = self.client.screenshot().await?;
        std::fs::write(&path, &png)?;
        if is_in_docs && std::env::var_os("UPDATE_IMAGES").is_some() {
            let docs = tools::project().join("docs/images");
            std::fs::create_dir_all(&docs)?;
            std::fs::write(docs.join(format!("{name}.png")), &png)?;
        }
        Ok(path)
    }
}
