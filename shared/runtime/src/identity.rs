//! As whom the processes come to API servers: user agent and field manager.

use kube::api::{PatchParams, PostParams};

/// The user agent of `program`, as Kubernetes' own components write theirs: `program/version (os/architecture)`.
pub fn user_agent(program: &str) -> String {
    format!("{program}/{} ({}/{})", env!("CARGO_PKG_VERSION"), std::env::consts::OS, std::env::consts::ARCH)
}

/// Parameters of a patch by field manager `manager`.
pub fn patch_as(manager: &str) -> PatchParams {
    PatchParams { field_manager: Some(manager.to_owned()), ..PatchParams::default() }
}

/// Parameters of a create or update by field manager `manager`.
pub fn post_as(manager: &str) -> PostParams {
    PostParams { field_manager: Some(manager.to_owned()), ..PostParams::default() }
}

#[cfg(test)]
mod tests {
    #[test]
    fn user_agent_begins_with_the_field_manager() {
        let agent = super::user_agent("knative-operator");
        assert!(agent.starts_with(&format!("knative-operator/{} (", env!("CARGO_PKG_VERSION"))), "{agent}");
    }
}
