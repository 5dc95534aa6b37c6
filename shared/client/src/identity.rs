//! Identity in requests to API servers: user agent and field manager.

use kube::api::{PatchParams, PostParams};

/// User agent of `program` in the form of Kubernetes' components: `program/version
/// (os/architecture)`.
pub fn user_agent(program: &str) -> String {
    format!("{program}/{} ({}/{})", env!("CARGO_PKG_VERSION"), std::env::consts::OS, std::env::consts::ARCH)
}

/// Patch parameters with the field manager `manager`.
pub fn patch_as(manager: &str) -> PatchParams {
    PatchParams { field_manager: Some(manager.to_owned()), ..PatchParams::default() }
}

/// Create and update parameters with the field manager `manager`.
pub fn post_as(manager: &str) -> PostParams {
    PostParams { field_manager: Some(manager.to_owned()), ..PostParams::default() }
}

#[cfg(test)]
mod tests {
    #[test]
    fn user_agent_starts_with_field_manager() {
        let agent = super::user_agent("knative-operator");
        assert!(agent.starts_with(&format!("knative-operator/{} (", env!("CARGO_PKG_VERSION"))), "{agent}");
    }
}
