//! Explores the protocol: all orders of the steps of two or three resources, with crashes and lost
//! answers at each point, and with reads that are out of date when they are used.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::*;

#[path = "claim_cases.rs"]
mod cases;

/// What a resource is about to do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum At {
    /// To read its own anchor.
    Start,
    /// To list the others.
    Read(Option<Anchor>),
    /// To perform the step, with the own anchor that was read.
    Decided(Step, Option<Anchor>),
    /// It applies objects.
    Writing,
    /// To read the object, and then to delete it and the anchor.
    Uninstalling(Anchor),
    /// To delete the object, if it has its mark and this version, and then the anchor.
    Deleting(Anchor, Option<u64>),
    /// It no longer exists.
    Gone,
}

/// A resource of a scenario.
#[derive(Clone, Debug)]
struct Resource {
    claimant: Claimant,
    anchor: &'static str,
    can_be_deleted: bool,
    /// Whether its deletion leaves the installation.
    is_orphaning: bool,
}

/// A cluster, and the progress of each resource.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    anchors: BTreeMap<&'static str, Anchor>,
    /// Mark and version of an object.
    object: Option<(String, u64)>,
    at: Vec<At>,
    is_terminating: Vec<bool>,
}

impl World {
    fn next_version(&self) -> u64 {
        self.versions().into_iter().max().unwrap_or_default() + 1
    }

    fn versions(&self) -> BTreeSet<u64> {
        let read = self.at.iter().flat_map(|at| match at {
            At::Read(Some(anchor)) | At::Decided(_, Some(anchor)) | At::Uninstalling(anchor) => vec![anchor.version],
            At::Deleting(anchor, object) => [Some(anchor.version), *object].into_iter().flatten().collect(),
            _ => Vec::new(),
        });
        let stored = self.anchors.values().map(|anchor| anchor.version);
        read.chain(stored).chain(self.object.iter().map(|(_, version)| *version)).collect()
    }

    /// The same world with the smallest versions of the same order, so that the number of worlds is
    /// finite.
    fn compact(mut self) -> Self {
        let ranks: BTreeMap<u64, u64> = self.versions().into_iter().zip(1..).collect();
        let rank = |version: &mut u64| *version = ranks[version];
        self.anchors.values_mut().for_each(|anchor| rank(&mut anchor.version));
        self.object.iter_mut().for_each(|(_, version)| rank(version));
        for at in &mut self.at {
            match at {
                At::Decided(step, own) => {
                    own.iter_mut().for_each(|anchor| rank(&mut anchor.version));
                    // The version of a competitor doesn't matter any more.
                    if let Step::Wait(competitor) = step {
                        competitor.version = 0;
                    }
                }
                At::Read(own) => own.iter_mut().for_each(|anchor| rank(&mut anchor.version)),
                At::Uninstalling(anchor) => rank(&mut anchor.version),
                At::Deleting(anchor, object) => {
                    rank(&mut anchor.version);
                    object.iter_mut().for_each(rank);
                }
                At::Start | At::Writing | At::Gone => {}
            }
        }
        self
    }

    /// Whether the anchor `name` is still as it was `read`.
    fn is_unchanged(&self, name: &str, read: &Anchor) -> bool {
        self.anchors.get(name).is_some_and(|anchor| anchor.version == read.version)
    }

    /// The world after `resource`, with the number `i`, has made a step. Each write may be the last
    /// one before a crash, which leads to the start again.
    fn step(&self, i: usize, resource: &Resource) -> Self {
        let (mut next, name) = (self.clone(), resource.anchor);
        let version = self.next_version();
        let own = self.anchors.get(name);
        let write = |next: &mut Self, record: &InstallationOwner| {
            let record = Record::Owner(record.clone());
            let anchor = Anchor {
                namespace: "n".to_owned(),
                name: name.to_owned(),
                uid: String::new(),
                version,
                created: 0,
                record,
            };
            next.anchors.insert(name, anchor);
        };
        next.at[i] = match &self.at[i] {
            At::Start if self.is_terminating[i] => match own {
                Some(anchor)
                    if anchor.is_of(&resource.claimant.me) && anchor.is_confirmed() && resource.is_orphaning =>
                {
                    match anchor.released() {
                        Some(released) => At::Decided(Step::Record(released), Some(anchor.clone())),
                        None => At::Gone,
                    }
                }
                Some(anchor) if anchor.is_of(&resource.claimant.me) => At::Uninstalling(anchor.clone()),
                _ => At::Gone,
            },
            At::Start => At::Read(own.cloned()),
            At::Read(own) => {
                let others = self.anchors.iter().filter(|(other, _)| **other != name).map(|(_, anchor)| anchor.clone());
                At::Decided(resource.claimant.step(own.as_ref(), &others.collect::<Vec<_>>()), own.clone())
            }
            At::Decided(Step::Proceed, _) if !self.is_terminating[i] => At::Writing,
            At::Decided(step, read) => {
                match (step, read) {
                    (Step::Create(record), _) if own.is_none() => write(&mut next, record),
                    (Step::Record(record), Some(read)) if self.is_unchanged(name, read) => write(&mut next, record),
                    (Step::Withdraw, Some(read)) if self.is_unchanged(name, read) => drop(next.anchors.remove(name)),
                    _ => {}
                }
                At::Start
            }
            At::Writing if self.is_terminating[i] => At::Start,
            // Its watch shows that the anchor is another one's.
            At::Writing if own.is_none_or(|anchor| !anchor.is_of(&resource.claimant.me)) => At::Start,
            At::Writing => {
                let mark = resource.claimant.me.mark();
                if self.object.as_ref().is_none_or(|(applied, _)| *applied != mark) {
                    next.object = Some((mark, version));
                }
                At::Writing
            }
            At::Uninstalling(anchor) => {
                let mark = resource.claimant.me.mark();
                let object = self.object.as_ref().filter(|(applied, _)| *applied == mark);
                At::Deleting(anchor.clone(), object.map(|(_, version)| *version))
            }
            At::Deleting(anchor, object) => {
                if object.is_some() && next.object.as_ref().map(|(_, version)| *version) == *object {
                    next.object = None;
                }
                if self.is_unchanged(name, anchor) {
                    next.anchors.remove(name);
                }
                At::Start
            }
            At::Gone => At::Gone,
        };
        next
    }

    /// All worlds that may follow.
    fn following(&self, resources: &[Resource]) -> Vec<Self> {
        let mut all = Vec::new();
        for (i, resource) in resources.iter().enumerate() {
            all.push(self.step(i, resource));
            if self.at[i] != At::Gone {
                // A crash, and a write whose answer is lost: it starts again.
                let mut crashed = self.clone();
                crashed.at[i] = At::Start;
                all.push(crashed);
                if resource.can_be_deleted && !self.is_terminating[i] {
                    let mut deleted = self.clone();
                    deleted.is_terminating[i] = true;
                    all.push(deleted);
                }
            }
        }
        all.into_iter().map(Self::compact).collect()
    }

    fn writers(&self) -> usize {
        self.at.iter().filter(|at| matches!(at, At::Writing | At::Decided(Step::Proceed, _))).count()
    }

    /// The world after each resource looked once, without crashes and deletions. Three steps are
    /// one look of a resource that waits.
    fn round(&self, resources: &[Resource]) -> Self {
        let steps = resources.iter().enumerate().flat_map(|step| [step; 3]);
        steps.fold(self.clone(), |world, (i, resource)| world.step(i, resource).compact())
    }

    /// The world at rest: after rounds until nothing changes.
    fn at_rest(&self, resources: &[Resource]) -> Self {
        let mut world = self.clone();
        for _ in 0..40 {
            let next = world.round(resources);
            if next == world {
                return world;
            }
            world = next;
        }
        panic!("no end: {world:#?}")
    }
}

fn resource(hub: &str, name: &'static str, anchor: &'static str) -> Resource {
    let me = InstallationOwner {
        hub: hub.to_owned(),
        hub_name: None,
        kind: "KnativeServing".to_owned(),
        namespace: "n".to_owned(),
        name: name.to_owned(),
        uid: format!("{hub}-{name}"),
        since: String::new(),
        confirmed: false,
        adopted: false,
        released: false,
        applied: None,
        replaced: Vec::new(),
    };
    Resource {
        claimant: Claimant {
            me,
            installed: Installed::Nowhere,
            has_begun: false,
            is_abandoned: false,
            take_over: None,
        },
        anchor,
        can_be_deleted: true,
        is_orphaning: false,
    }
}

fn start(resources: &[Resource], anchors: &[(&'static str, Record)]) -> World {
    let anchor = |(i, (name, record)): (usize, &(&'static str, Record))| {
        let version = i as u64 + 1;
        let anchor = Anchor {
            namespace: "n".to_owned(),
            name: (*name).to_owned(),
            uid: String::new(),
            version,
            created: 0,
            record: record.clone(),
        };
        (*name, anchor)
    };
    World {
        anchors: anchors.iter().enumerate().map(anchor).collect(),
        object: None,
        at: vec![At::Start; resources.len()],
        is_terminating: vec![false; resources.len()],
    }
}

/// Visits each world that can follow `first`; returns them.
fn explore(first: World, resources: &[Resource], check: impl Fn(&World)) -> HashSet<World> {
    let (mut seen, mut due) = (HashSet::from([first.clone()]), vec![first]);
    while let Some(world) = due.pop() {
        check(&world);
        for next in world.following(resources) {
            if seen.insert(next.clone()) {
                due.push(next);
            }
        }
    }
    seen
}

/// Each of `worlds`, which have all that can follow, with itself at rest, as [`World::at_rest`] has
/// it, by one round of each: what follows a world is one of them, and has its own round.
fn at_rest<'a>(worlds: &'a HashSet<World>, resources: &[Resource]) -> Vec<(&'a World, &'a World)> {
    let all: Vec<&World> = worlds.iter().collect();
    let numbers: HashMap<&World, usize> = all.iter().copied().zip(0..).collect();
    let next: Vec<usize> = all.iter().map(|world| numbers[&world.round(resources)]).collect();
    let end = |number: usize| (0..40).fold(number, |number, _| next[number]);
    let rest = |(number, world): (usize, &&'a World)| {
        let end = end(number);
        assert_eq!(next[end], end, "no end: {world:#?}");
        (*world, all[end])
    };
    all.iter().enumerate().map(rest).collect()
}

fn one_writes(world: &World) {
    assert!(world.writers() <= 1, "two writers: {world:#?}");
}

fn one_writes_at_rest(rest: &World) {
    let left = rest.is_terminating.iter().filter(|is_terminating| !**is_terminating).count();
    assert_eq!(rest.writers(), left.min(1), "at rest: {rest:#?}");
    if left == 0 {
        assert!(rest.anchors.is_empty() && rest.object.is_none(), "left behind: {rest:#?}");
    }
}

#[test]
fn one_of_several_resources_installs() {
    let scenarios = [
        // Of two hubs, and of one hub in two namespaces.
        vec![resource("1", "a", "a"), resource("2", "a", "a")],
        vec![resource("1", "a", "a"), resource("2", "b", "b")],
        vec![resource("1", "a", "a"), resource("1", "b", "b"), resource("2", "a", "a")],
        vec![resource("1", "a", "a"), resource("2", "b", "b"), resource("3", "c", "c")],
    ];
    for mut resources in scenarios {
        // Two are deleted; a third makes the number of worlds large enough.
        resources.iter_mut().skip(2).for_each(|resource| resource.can_be_deleted = false);
        let worlds = explore(start(&resources, &[]), &resources, one_writes);
        at_rest(&worlds, &resources).iter().for_each(|(_, rest)| one_writes_at_rest(rest));
        eprintln!("{} resources: {} worlds", resources.len(), worlds.len());
        assert!(worlds.len() > 500, "{}", worlds.len());
    }
}

#[test]
fn anchors_of_earlier_versions_are_claimed_once() {
    let mut resources = vec![resource("1", "a", "a"), resource("2", "b", "b"), resource("3", "c", "c")];
    for old in &mut resources[..2] {
        old.claimant.installed = Installed::Somewhere;
        old.can_be_deleted = false;
    }
    resources[2].can_be_deleted = false;
    let first = start(&resources, &[("a", Record::Absent), ("b", Record::Absent)]);
    let worlds = explore(first, &resources, |world| {
        one_writes(world);
        assert!(!matches!(world.at[2], At::Writing), "a new resource installed beside older ones");
    });
    at_rest(&worlds, &resources).iter().for_each(|(_, rest)| one_writes_at_rest(rest));
}

#[test]
fn installation_is_taken_over_on_purpose_only() {
    let mut resources = vec![resource("1", "a", "a"), resource("2", "a", "a"), resource("3", "a", "a")];
    resources.iter_mut().for_each(|resource| resource.can_be_deleted = false);
    resources[1].claimant.take_over = Some("1".to_owned());
    // An annotation of the time when the first hub took over from the second.
    resources[0].claimant.take_over = Some("2".to_owned());
    let owner = InstallationOwner { confirmed: true, ..resources[0].claimant.me.clone() };
    let first = start(&resources, &[("a", Record::Owner(owner))]);
    let worlds = explore(first, &resources, |world| assert_ne!(world.at[2], At::Writing));
    for (_, recorded) in at_rest(&worlds, &resources) {
        assert!(recorded.anchors["a"].is_of(&resources[1].claimant.me), "{recorded:#?}");
        assert_eq!((recorded.writers(), &recorded.at[1]), (1, &At::Writing), "{recorded:#?}");
        assert_eq!(recorded.object.as_ref().map(|(mark, _)| mark), Some(&resources[1].claimant.me.mark()));
    }
}

#[test]
fn deletion_of_the_former_owner_deletes_nothing() {
    let mut resources = vec![resource("1", "a", "a"), resource("2", "a", "a")];
    resources[1].claimant.take_over = Some("1".to_owned());
    resources[1].can_be_deleted = false;
    let owner = InstallationOwner { confirmed: true, ..resources[0].claimant.me.clone() };
    let first = start(&resources, &[("a", Record::Owner(owner))]);
    for (_, rest) in at_rest(&explore(first, &resources, |_| {}), &resources) {
        assert!(rest.anchors["a"].is_of(&resources[1].claimant.me), "{rest:#?}");
        assert_eq!(rest.object.as_ref().map(|(mark, _)| mark), Some(&resources[1].claimant.me.mark()));
    }
}

#[test]
fn orphaned_installation_is_taken_up_by_the_next_resource_of_its_name() {
    let mut resources = vec![resource("1", "a", "a"), resource("2", "a", "a"), resource("1", "b", "b")];
    resources[0].is_orphaning = true;
    resources[1..].iter_mut().for_each(|resource| resource.can_be_deleted = false);
    let owner = InstallationOwner { confirmed: true, ..resources[0].claimant.me.clone() };
    let mut first = start(&resources, &[("a", Record::Owner(owner))]);
    first.object = Some((resources[0].claimant.me.mark(), 9));
    let worlds = explore(first, &resources, |world| {
        assert!(world.writers() <= 1 && world.object.is_some(), "two writers, or a deletion: {world:#?}");
        assert!(!matches!(world.at[2], At::Writing), "another name: {world:#?}");
    });
    for (_, rest) in at_rest(&worlds, &resources) {
        let next = usize::from(rest.at[0] == At::Gone);
        assert_eq!((rest.writers(), &rest.at[next]), (1, &At::Writing), "{rest:#?}");
        assert_eq!(rest.object.as_ref().map(|(mark, _)| mark), Some(&resources[next].claimant.me.mark()));
    }
    assert!(worlds.len() > 50, "{}", worlds.len());
}
