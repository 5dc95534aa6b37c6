//! Signals that stop a process.

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// A token that is canceled at the first SIGTERM or SIGINT; the second signal exits immediately.
pub fn stop() -> std::io::Result<CancellationToken> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let token = CancellationToken::new();
    let stop = token.clone();
    tokio::spawn(async move {
        for _ in 0..2 {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            if stop.is_cancelled() {
                tracing::warn!("exiting immediately");
                std::process::exit(130);
            }
            tracing::info!("stopping");
            stop.cancel();
        }
    });
    Ok(token)
}
