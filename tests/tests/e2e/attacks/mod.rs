//! What users without permission try to get, with the chart in `enforce`. Each attack does what the
//! attacker would do, with the attacker's rights, and then looks for what the attacker wanted: a
//! token, an image, a label, an installation. Whether a request was refused is only the reason why
//! it is not there.
//!
//! [`tenant`] has a hub and a spoke for those who may edit resources in a namespace, or write
//! ClusterProfiles or a status; [`fleets`] has a hub and two spokes for those who may edit fleets.
//! [`all`] runs the attacks on each, and prints a table of what became of them ([`report`]).

mod all;
mod approvals;
mod attacker;
mod content;
mod credentials;
mod fleets;
mod former;
mod local;
mod placements;
mod queue;
mod report;
mod settle;
mod spokes;
mod templates;
mod tenant;
