//! Keeps the credential of one spoke fresh: one run of the plugin at a time, ahead of its end, and after a 401.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use http::HeaderValue;
use jiff::Timestamp;
use secrecy::ExposeSecret;
use tokio::sync::{Mutex, Semaphore};

use super::Unresolved;
use super::exec::{self, Credential};
use super::profile::Plugin;

/// Plugins that run at the same time, over all spokes.
static RUNS: Semaphore = Semaphore::const_new(8);

/// The credential of one spoke.
#[derive(Debug)]
pub struct Keeper {
    plugin: Plugin,
    limit: Duration,
    current: ArcSwap<Held>,
    refresh: Mutex<()>,
}

/// A credential, and when it was had.
#[derive(Debug)]
pub struct Held {
    /// The credential.
    pub credential: Credential,
    had: Timestamp,
}

impl Held {
    /// The `Authorization` header; none if it is a client certificate, or a token that no header can hold.
    pub fn authorization(&self) -> Option<HeaderValue> {
        let token = self.credential.token.as_ref()?;
        let mut header = HeaderValue::try_from(format!("Bearer {}", token.expose_secret().trim())).ok()?;
        header.set_sensitive(true);
        Some(header)
    }

    /// Whether four fifths of its life are over.
    fn due(&self, now: Timestamp) -> bool {
        self.credential.expires.is_some_and(|end| now.duration_since(self.had) * 5 >= end.duration_since(self.had) * 4)
    }
}

impl Keeper {
    /// Runs the plugin for the first time.
    pub async fn start(plugin: Plugin, limit: Duration) -> Result<Self, Unresolved> {
        let held = get(&plugin, limit).await?;
        Ok(Self { plugin, limit, current: ArcSwap::from_pointee(held), refresh: Mutex::default() })
    }

    /// The credential, refreshed first if it is due.
    pub async fn current(&self) -> Result<Arc<Held>, Unresolved> {
        let held = self.current.load_full();
        if held.due(Timestamp::now()) { self.newer_than(&held).await } else { Ok(held) }
    }

    /// A credential that isn't `old`: whoever comes while the plugin runs for somebody else takes that one's result.
    pub async fn newer_than(&self, old: &Arc<Held>) -> Result<Arc<Held>, Unresolved> {
        let _alone = self.refresh.lock().await;
        let held = self.current.load_full();
        if !Arc::ptr_eq(&held, old) {
            return Ok(held);
        }
        let fresh = Arc::new(get(&self.plugin, self.limit).await?);
        self.current.store(Arc::clone(&fresh));
        Ok(fresh)
    }
}

async fn get(plugin: &Plugin, limit: Duration) -> Result<Held, Unresolved> {
    // The semaphore is never closed, so this only waits.
    let _turn = RUNS.acquire().await;
    let credential = exec::run(plugin, limit).await?;
    Ok(Held { credential, had: Timestamp::now() })
}
