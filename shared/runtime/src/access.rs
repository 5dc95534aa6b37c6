//! Asks the API server who somebody is, and what they are allowed to do.

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{SubjectAccessReview, SubjectAccessReviewSpec};
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
