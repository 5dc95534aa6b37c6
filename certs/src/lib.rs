//! The webhook's certificates ([`material`]): issued ([`issue`]), judged ([`plan`]), kept in a Secret ([`secret`]), told to the API
//! server ([`inject`]), served ([`resolver`]), and all of that kept right ([`keeper`]).

pub mod inject;
pub mod issue;
pub mod keeper;
pub mod material;
pub mod plan;
pub mod resolver;
pub mod secret;

pub use keeper::{KeepError, Keeper, Settings, Source, State};
pub use resolver::Served;
