//! The names in a remedy.

/// Maximum length of a name in Kubernetes, in bytes.
const MAX_NAME: usize = 253;
/// Prints the ClusterRole for a resource, and for one of the other kind with its name, from the
/// releases of the operator.
const PRINT_SPOKE_ROLE: &str = "kubectl get knativeservings,knativeeventings {name} -n {namespace} --ignore-not-found -o yaml \
     >knative.yaml && kubectl exec -i -n knative-operator deploy/knative-operator -- \
     /knative-operator spoke-role -f - <knative.yaml";

/// Names of a resource, of its cluster and of its fleet. An empty one is not known.
#[derive(Clone, Copy, Debug, Default)]
pub struct Names<'a> {
    /// Plural of its kind.
    pub kind: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its namespace.
    pub namespace: &'a str,
    /// Name of its ClusterProfile.
    pub profile: &'a str,
    /// Namespace of its ClusterProfile.
    pub profile_namespace: &'a str,
    /// Namespace of its Pods, on its cluster.
    pub pod_namespace: &'a str,
    /// Name of the fleet that owns it, in its namespace.
    pub fleet: &'a str,
}

impl Names<'_> {
    /// `text` with the names in place of `{kind}`, `{name}` and so on, and with a word such as
    /// `NAME` in place of one that is not known. `{edit}` is the command that edits the spec: that
    /// of the fleet, which repairs its resources. `{spokeRole}` is the command that prints the role
    /// of the credential for the resource.
    pub fn fill(&self, text: &str) -> String {
        let edited = if is_name(self.fleet) { "knativefleets {fleet}" } else { "{kind} {name}" };
        let edit = format!("kubectl edit {edited} -n {{namespace}}");
        let mut filled = text.replace("{edit}", &edit).replace("{spokeRole}", PRINT_SPOKE_ROLE);
        for (placeholder, value, word) in [
            ("{kind}", self.kind, "KIND"),
            ("{name}", self.name, "NAME"),
            ("{namespace}", self.namespace, "NAMESPACE"),
            ("{profile}", self.profile, "PROFILE"),
            ("{profileNamespace}", self.profile_namespace, "PROFILE_NAMESPACE"),
            ("{podNamespace}", self.pod_namespace, "POD_NAMESPACE"),
            ("{fleet}", self.fleet, "FLEET"),
        ] {
            filled = filled.replace(placeholder, if is_name(value) { value } else { word });
        }
        filled
    }
}

/// Whether a shell reads `text` as one word, and a program doesn't read it as a flag: the author of
/// a resource chose it.
fn is_name(text: &str) -> bool {
    text.len() <= MAX_NAME
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_filled_in() {
        let own = Names { kind: "knativeservings", name: "a", namespace: "n", profile: "eu-1.x", ..Names::default() };
        assert_eq!(
            own.fill("`{edit}`, {profile} in {profileNamespace}"),
            "`kubectl edit knativeservings a -n n`, eu-1.x in PROFILE_NAMESPACE"
        );
        let of_fleet = Names { fleet: "prod", pod_namespace: "knative-serving", ..own };
        assert_eq!(of_fleet.fill("{edit} {podNamespace}"), "kubectl edit knativefleets prod -n n knative-serving");
        assert_eq!(Names::default().fill("{edit}"), "kubectl edit KIND NAME -n NAMESPACE");
        // A fleet creates both kinds with one name.
        let role = of_fleet.fill("{spokeRole}");
        assert!(role.starts_with("kubectl get knativeservings,knativeeventings a -n n --ignore-not-found "), "{role}");
        assert!(role.contains(" >knative.yaml && kubectl exec -i -n knative-operator "), "{role}");
        assert!(role.ends_with(" -- /knative-operator spoke-role -f - <knative.yaml"), "{role}");
        // JSON stays.
        assert_eq!(own.fill(r#"-p '{"spec":{"name":1}}'"#), r#"-p '{"spec":{"name":1}}'"#);
    }

    #[test]
    fn names_run_nothing_in_a_shell() {
        let long = "a".repeat(254);
        for hostile in
            [long.as_str(), "$(id)", "a;id", "a b", "`id`", "--all", "a'b", "a\nb", "a\u{202e}", "{name}", ""]
        {
            assert_eq!(
                Names { profile: hostile, ..Names::default() }.fill("get {profile}"),
                "get PROFILE",
                "{hostile}"
            );
        }
    }
}
