//! `knative-operator audit`, against the hubs of other tests.

use knative_operator_tests::Result;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::kubeconfig::{User, kubeconfig};

use crate::status::command;

/// Runs `audit` with `arguments` as an administrator; its exit status and standard output.
pub async fn audit(hub: &Cluster, arguments: &[&str]) -> Result<(Option<i32>, String)> {
    let (code, text, error) = command(&hub.kubeconfig(), &[&["audit"], arguments].concat()).await?;
    println!("audit {}:\n{text}{error}", arguments.join(" "));
    Ok((code, text))
}

/// The part of `text` about `resource`, such as `KnativeServing a/b`.
pub fn block<'t>(text: &'t str, resource: &str) -> &'t str {
    let start = format!("{resource}\n");
    text.split("\n\n").find(|block| block.starts_with(&start)).unwrap_or_default()
}

/// Without the permission to list, the error names it.
pub async fn needs_permission_to_list(hub: &Cluster, namespace: &str) -> Result<()> {
    hub.kubectl(&["create", "serviceaccount", "auditor", "-n", namespace], "").await?;
    let token = hub.token(namespace, "auditor", 3600).await?;
    let file = hub.dir().join("auditor.kubeconfig");
    let user = User::Token(&token);
    std::fs::write(&file, kubeconfig("auditor", &hub.url(), hub.authority(), namespace, &user))?;
    let (code, text, error) = command(&file, &["audit"]).await?;
    assert_eq!((code, text.as_str()), (Some(2), ""), "{error}");
    let needed = "you need the permission \"list\" on knativeservings.operator.knative.dev in all namespaces";
    assert!(error.contains(needed), "{error}");

    // Who may list everything, but not ask about others.
    let bind = ["create", "clusterrolebinding", "auditor", "--clusterrole=auditor"];
    let account = format!("--serviceaccount={namespace}:auditor");
    let resources = "--resource=knativeservings.operator.knative.dev,knativeeventings.operator.knative.dev,\
        knativefleets.operator.knative.dev,knativefleetapprovals.operator.knative.dev,rolebindings.rbac.authorization.k8s.io,\
        clusterrolebindings.rbac.authorization.k8s.io";
    hub.kubectl(&["create", "clusterrole", "auditor", "--verb=list", resources], "").await?;
    hub.kubectl(&[&bind[..], &[account.as_str()]].concat(), "").await?;
    let (code, text, error) = command(&file, &["audit"]).await?;
    assert_eq!((code, text.as_str()), (Some(2), ""), "{error}");
    let needed = "you need the permission \"create\" on subjectaccessreviews.authorization.k8s.io";
    assert!(error.contains(needed), "{error}");
    hub.kubectl(&["delete", "clusterrole,clusterrolebinding", "auditor"], "").await?;
    Ok(())
}
