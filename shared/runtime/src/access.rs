//! Asks the API server who somebody is, and what they are allowed to do.

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec, SelfSubjectRulesReview,
    SelfSubjectRulesReviewSpec, SubjectAccessReview, SubjectAccessReviewSpec,
};
use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::api::PostParams;
use kube::{Api, Client};

/// The user of `token`; `None` if the token is invalid.
pub async fn user_of(client: &Client, token: &str) -> kube::Result<Option<UserInfo>> {
    let spec = TokenReviewSpec { token: token.to_owned(), ..TokenReviewSpec::default() };
    let review = TokenReview { spec, ..TokenReview::default() };
    let answer = Api::<TokenReview>::all(client.clone()).create(&PostParams::default(), &review).await?;
    let status = answer.status.unwrap_or_default();
    Ok(status.user.filter(|_| status.authenticated == Some(true)))
}

/// Whether the user of `question` is allowed to do what it says.
pub async fn is_allowed(client: &Client, question: SubjectAccessReviewSpec) -> kube::Result<bool> {
    let review = SubjectAccessReview { spec: question, ..SubjectAccessReview::default() };
    let answer = Api::<SubjectAccessReview>::all(client.clone()).create(&PostParams::default(), &review).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

/// What the user of `client` may do in `namespace`, and whether the API server could not list all
/// of it.
pub async fn own_rules(client: &Client, namespace: &str) -> kube::Result<(Vec<PolicyRule>, bool)> {
    let spec = SelfSubjectRulesReviewSpec { namespace: Some(namespace.to_owned()) };
    let review = SelfSubjectRulesReview { spec, ..SelfSubjectRulesReview::default() };
    let answer = Api::<SelfSubjectRulesReview>::all(client.clone()).create(&PostParams::default(), &review).await?;
    let status = answer.status.unwrap_or_default();
    let on_resources = status.resource_rules.into_iter().map(|rule| PolicyRule {
        api_groups: rule.api_groups,
        resources: rule.resources,
        resource_names: rule.resource_names,
        verbs: rule.verbs,
        non_resource_urls: None,
    });
    let on_paths = status.non_resource_rules.into_iter().map(|rule| PolicyRule {
        non_resource_urls: rule.non_resource_urls,
        verbs: rule.verbs,
        ..PolicyRule::default()
    });
    Ok((on_resources.chain(on_paths).collect(), status.incomplete))
}

/// Whether the user of `client` may do what `attributes` say.
pub async fn may(client: &Client, attributes: ResourceAttributes) -> kube::Result<bool> {
    let spec =
        SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), ..SelfSubjectAccessReviewSpec::default() };
    let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
    let answer = Api::<SelfSubjectAccessReview>::all(client.clone()).create(&PostParams::default(), &review).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}
