//! What both processes need to run: [`admin`] serves health and metrics, [`ready`] says whether there is work to be
//! sent here, [`process`], [`log`] and [`signal`] set a process up, [`hub`] builds the client for the cluster that it runs in.

pub mod admin;
pub mod duration;
pub mod hub;
pub mod log;
pub mod process;
pub mod ready;
pub mod signal;

/// Makes `ring` the provider of cryptography. Call it first in `main`: with two providers linked, rustls can't choose.
pub fn install_crypto() {
    // Err means that one is installed already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// An error and everything that caused it, as one sentence.
pub fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        cause = inner.source();
    }
    text
}
