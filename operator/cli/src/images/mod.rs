//! The images of installations, their names in a mirror, and the settings with which an
//! installation takes them from there. Pure.
//!
//! [`Mirror`] makes names, [`Listing`] has the images, [`MirrorSettings`] the settings.

mod listing;
mod mirror;
mod settings;

pub use listing::{InvalidImage, Listing};
pub use mirror::{Mirror, registry_of};
pub use settings::{Found, MirrorSettings, differences};
