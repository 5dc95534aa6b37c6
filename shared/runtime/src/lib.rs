//! What both processes need to run: [`admin`] serves health and metrics, [`ready`] says whether there is work to be
//! sent here, [`process`], [`log`] and [`signal`] set a process up, [`hub`] builds the client for the cluster that it runs in, [`identity`]
//! says as whom, [`words`] what went wrong.

pub mod admin;
pub mod duration;
pub mod hub;
pub mod identity;
pub mod log;
pub mod process;
pub mod ready;
pub mod signal;
pub mod words;

pub use words::words;

/// Makes `ring` the provider of cryptography. Call it first in `main`: with two providers linked, rustls can't choose.
pub fn install_crypto() {
    // Err means that one is installed already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
}
