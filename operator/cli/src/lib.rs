//! The command line of `knative-operator`, with its web page: flags and subcommands in `command`.
//! The operator itself is given to [`Args::execute`], so that nothing here depends on it.
//!
//! `images` and `spoke_role` are what the subcommands of these names print. Both are pure.

mod command;
mod images;
mod spoke_role;

pub use command::run_args::{MAX_SHARDS, RunArgs};
pub use command::{Args, answer_completions};
