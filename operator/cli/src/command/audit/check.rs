//! Finds who lacks which permission for a stored resource.

use std::collections::BTreeSet;

use futures::{StreamExt, TryStreamExt, stream};
use knative_operator_rules::authorization::permission::{CREATE, Permission};
use knative_operator_rules::authorization::questions::Question;
use knative_operator_shared::label::GROUP;
use kube::Client;

use super::bindings::Bindings;
use super::reviewer::Reviewer;
use super::stored::{Stored, StoredKind};
use super::subject::Subject;

/// Maximum number of requests in progress.
const CONCURRENCY: usize = 32;
/// Verbs that write resources.
const WRITES: [&str; 3] = ["update", "patch", CREATE];
/// Those that a role can grant for one resource by its name.
const CHANGES: [&str; 2] = ["update", "patch"];

/// Who is asked about.
pub enum Suspects {
    /// One user, for all resources.
    One(Subject),
    /// The subjects of bindings that may write a resource.
    Bound(Bindings),
}

/// A resource that somebody could not create now.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The resource.
    pub resource: Stored,
    /// What is lacking, and who lacks it.
    pub lacking: Vec<(Question, Vec<Subject>)>,
}

/// Checks resources.
pub struct Auditor {
    reviewer: Reviewer,
    suspects: Suspects,
}

impl Auditor {
    /// Asks with `client` about `suspects`.
    pub fn new(client: Client, suspects: Suspects) -> Self {
        Self { reviewer: Reviewer::new(client), suspects }
    }

    /// The resources that somebody could not create now.
    pub async fn check(&self, resources: &[Stored]) -> Result<Vec<Finding>, String> {
        let checks: Vec<_> = resources.iter().map(|resource| self.check_one(resource)).collect();
        let found: Vec<Option<Finding>> = stream::iter(checks).buffered(CONCURRENCY).try_collect().await?;
        Ok(found.into_iter().flatten().collect())
    }

    async fn check_one(&self, resource: &Stored) -> Result<Option<Finding>, String> {
        if resource.questions.is_empty() {
            return Ok(None);
        }
        let suspects = self.suspects(resource).await?;
        let mut lacking = Vec::new();
        for question in &resource.questions {
            let mut who = Vec::new();
            for subject in &suspects {
                if !self.reviewer.is_allowed(subject, &question.permission).await? {
                    who.push((*subject).clone());
                }
            }
            if !who.is_empty() {
                lacking.push((question.clone(), who));
            }
        }
        Ok((!lacking.is_empty()).then(|| Finding { resource: resource.clone(), lacking }))
    }

    /// Who asked for `resource`, and those who could have changed it.
    async fn suspects<'a>(&'a self, resource: &'a Stored) -> Result<BTreeSet<&'a Subject>, String> {
        let bindings = match &self.suspects {
            Suspects::One(subject) => return Ok(BTreeSet::from([subject])),
            Suspects::Bound(bindings) => bindings,
        };
        // An approval is immutable: only its author counts.
        if resource.kind == StoredKind::Approval {
            return Ok(resource.author.iter().collect());
        }
        let mut found = BTreeSet::new();
        // The answers are the same for all resources of a kind, so each is requested once.
        let in_cluster = WRITES.map(|verb| to_write(verb, resource.kind, "", ""));
        for subject in &bindings.cluster {
            if self.is_any_allowed(subject, &in_cluster).await? {
                found.insert(subject);
            }
        }
        let in_namespace = WRITES.map(|verb| to_write(verb, resource.kind, &resource.namespace, ""));
        let by_name = CHANGES.map(|verb| to_write(verb, resource.kind, &resource.namespace, &resource.name));
        for subject in bindings.namespaced.get(&resource.namespace).into_iter().flatten() {
            let is_found = found.contains(subject)
                || self.is_any_allowed(subject, &in_namespace).await?
                || self.is_any_allowed(subject, &by_name).await?;
            if is_found {
                found.insert(subject);
            }
        }
        if let Some(author) = &resource.author
            && !bindings.operators.iter().any(|operator| operator.user == author.user)
        {
            found.insert(author);
        }
        Ok(found)
    }

    async fn is_any_allowed(&self, subject: &Subject, permissions: &[Permission]) -> Result<bool, String> {
        for permission in permissions {
            if self.reviewer.is_allowed(subject, permission).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// To write resources of `kind` with `verb`; empty names stand for all.
fn to_write(verb: &'static str, kind: StoredKind, namespace: &str, name: &str) -> Permission {
    Permission { verb, group: GROUP, resource: kind.plural(), namespace: namespace.to_owned(), name: name.to_owned() }
}
