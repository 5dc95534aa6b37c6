//! Who owns an installation: decides the next step of a resource that wants to install, from the
//! anchors on its cluster. Pure.
//!
//! Each resource has an anchor of its own name, so two can be created at the same time. Therefore a
//! resource first records itself as the unconfirmed owner of its anchor, then looks for others, and
//! confirms only if no other is confirmed or was recorded earlier. resourceVersions tell what was
//! earlier, since an unconfirmed record is written once. A resource that is recorded later sees the
//! earlier one, so at most one is ever confirmed.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use knative_operator_shared::label::OWNER;

use knative_operator_objects::{InstallationOwner, version};

/// The record on an anchor.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Record {
    /// None: the anchor is of version 0.2.0 or of the Go operator, or somebody else created it.
    Absent,
    /// One that this version can't read.
    Unreadable,
    /// The owner.
    Owner(InstallationOwner),
}

/// An anchor, or the ConfigMap of an inventory on the local cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Anchor {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Its resourceVersion.
    pub version: u64,
    /// Time of its creation in seconds, which the API server sets.
    pub created: i64,
    /// Its record.
    pub record: Record,
}

/// Whether a resource installed a version before, as its status tells, which only the operator
/// writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Installed {
    /// It did not.
    Nowhere,
    /// It did, perhaps on another cluster.
    Somewhere,
    /// It did, on this very cluster.
    Here,
}

/// What a resource knows and wants.
#[derive(Clone, Debug)]
pub struct Claimant {
    /// Itself, as it would be recorded now.
    pub me: InstallationOwner,
    /// Whether it installed a version before.
    pub installed: Installed,
    /// Whether its own anchor, which has no record, names it, and it has the finalizer: it began to
    /// install with an earlier version.
    pub has_begun: bool,
    /// Whether the owner that its own anchor records is a resource of this hub that doesn't exist.
    pub is_abandoned: bool,
    /// The hub, or hub and time, or anchor, that it takes the installation over from, as its
    /// annotation asks.
    pub take_over: Option<String>,
}

/// The next step of a claimant.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// Nobody owns the installation: create the anchor with this record.
    Create(InstallationOwner),
    /// Replace the record of the own anchor, which must have the given resourceVersion still.
    Record(InstallationOwner),
    /// The claimant is the owner.
    Proceed,
    /// Another one was earlier: delete the own anchor, and look again.
    Withdraw,
    /// This anchor is in the way.
    Wait(Anchor),
}

impl Anchor {
    /// The anchor with `meta`.
    pub fn of(meta: &ObjectMeta) -> Self {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let record = match meta.annotations.as_ref().and_then(|annotations| annotations.get(OWNER)) {
            None => Record::Absent,
            Some(text) => InstallationOwner::decode(text).map_or(Record::Unreadable, Record::Owner),
        };
        Self {
            namespace: text(&meta.namespace),
            name: text(&meta.name),
            uid: text(&meta.uid),
            version: version(meta),
            created: meta.creation_timestamp.as_ref().map_or(0, |created| created.0.as_second()),
            record,
        }
    }

    /// Whether it has a confirmed owner.
    pub fn is_confirmed(&self) -> bool {
        matches!(&self.record, Record::Owner(owner) if owner.confirmed)
    }

    /// The record with which its owner leaves the installation to the next one; `None` if it has
    /// left it.
    pub fn released(&self) -> Option<InstallationOwner> {
        match &self.record {
            Record::Owner(owner) if !owner.released => Some(InstallationOwner { released: true, ..owner.clone() }),
            Record::Owner(_) | Record::Absent | Record::Unreadable => None,
        }
    }

    /// Whether it stands in the way of all others: it has a confirmed owner, or one that this
    /// version can't read.
    fn is_settled(&self) -> bool {
        self.is_confirmed() || self.record == Record::Unreadable
    }

    /// Whether it was created before `other`.
    fn is_older_than(&self, other: &Self) -> bool {
        (self.created, &self.uid) < (other.created, &other.uid)
    }

    /// Whether its owner is `owner`.
    pub fn is_of(&self, owner: &InstallationOwner) -> bool {
        matches!(&self.record, Record::Owner(recorded) if recorded.is_same(owner))
    }
}

impl Claimant {
    /// The next step, with the own anchor and all `others` of the component on the cluster, read
    /// after it.
    pub fn step(&self, own: Option<&Anchor>, others: &[Anchor]) -> Step {
        let mut competitors: Vec<&Anchor> = others.iter().filter(|other| !other.is_of(&self.me)).collect();
        competitors.sort_by_key(|competitor| (!competitor.is_settled(), competitor.version));
        let Some(own) = own else {
            // Not a second time.
            if let Some(elsewhere) = others.iter().find(|other| other.is_of(&self.me)) {
                return Step::Wait(elsewhere.clone());
            }
            if self.has_installed() {
                // The Go operator keeps no anchor on the local cluster, or somebody deleted it.
                // What others create meanwhile is no installation.
                competitors.retain(|competitor| competitor.is_settled());
            }
            return competitors
                .first()
                .map_or_else(|| Step::Create(self.me.clone()), |competitor| Step::Wait((*competitor).clone()));
        };
        // All who may write ConfigMaps can forge a record, but not the time of creation.
        let older = Self::older(own, &competitors);
        match &own.record {
            Record::Owner(owner) if owner.is_same(&self.me) && owner.confirmed => {
                // Nobody else can have installed it, regardless of what they write into ConfigMaps.
                if let Some(older) = older.filter(|_| self.installed != Installed::Here) {
                    return Step::Wait(older.clone());
                }
                if owner.uid == self.me.uid && owner.hub_name == self.me.hub_name && !owner.released {
                    return Step::Proceed;
                }
                // It was created again.
                let (uid, hub_name) = (self.me.uid.clone(), self.me.hub_name.clone());
                Step::Record(InstallationOwner { hub_name, uid, released: false, ..owner.clone() })
            }
            Record::Owner(owner) if owner.is_same(&self.me) => {
                let is_earlier = |competitor: &&&Anchor| {
                    competitor.is_settled()
                        || (matches!(competitor.record, Record::Owner(_)) && competitor.version < own.version)
                };
                match competitors.iter().find(is_earlier) {
                    None => {
                        let (uid, hub_name) = (self.me.uid.clone(), self.me.hub_name.clone());
                        Step::Record(InstallationOwner {
                            hub_name,
                            uid,
                            confirmed: true,
                            released: false,
                            ..owner.clone()
                        })
                    }
                    // An anchor that may own objects stays.
                    Some(competitor) if owner.adopted => Step::Wait((*competitor).clone()),
                    Some(_) => Step::Withdraw,
                }
            }
            Record::Owner(owner) if owner.released || self.takes_over(own, owner) => match older {
                Some(older) => Step::Wait(older.clone()),
                None => Step::Record(self.me.replacing(owner)),
            },
            Record::Absent if self.has_installed() || self.take_over.as_ref() == Some(&own.uid) => {
                match competitors.first().filter(|competitor| competitor.is_settled()) {
                    Some(competitor) => Step::Wait((*competitor).clone()),
                    None => self.adopt(),
                }
            }
            Record::Absent if self.has_begun && competitors.is_empty() => self.adopt(),
            Record::Owner(_) | Record::Absent | Record::Unreadable => Step::Wait(own.clone()),
        }
    }

    /// The one of `others` that claims the installation of the own anchor without right, if the
    /// claimant proceeds.
    pub fn ignored<'a>(&self, own: &Anchor, others: &'a [Anchor]) -> Option<&'a Anchor> {
        let competitors: Vec<&Anchor> = others.iter().filter(|other| !other.is_of(&self.me)).collect();
        Self::older(own, &competitors).filter(|_| self.installed == Installed::Here)
    }

    /// The first of `competitors` that was created before `own` and stands in its way.
    fn older<'a>(own: &Anchor, competitors: &[&'a Anchor]) -> Option<&'a Anchor> {
        competitors.iter().find(|competitor| competitor.is_settled() && competitor.is_older_than(own)).copied()
    }

    fn has_installed(&self) -> bool {
        self.installed != Installed::Nowhere
    }

    /// The claim of an anchor without an owner.
    fn adopt(&self) -> Step {
        Step::Record(InstallationOwner { adopted: true, ..self.me.clone() })
    }

    /// Whether the annotation asks to take over from `owner` of the anchor `own`: one of another
    /// hub, or one that no longer exists.
    fn takes_over(&self, own: &Anchor, owner: &InstallationOwner) -> bool {
        let Some(asked) = self.take_over.as_deref() else { return false };
        if owner.hub == self.me.hub {
            return self.is_abandoned && asked == own.uid;
        }
        // A hub that was replaced itself doesn't take the installation back for an old annotation.
        (asked == owner.hub && !owner.has_replaced(&self.me.hub)) || asked == format!("{}/{}", owner.hub, owner.since)
    }
}

#[cfg(test)]
#[path = "claim_tests.rs"]
mod tests;
