//! What the watches tell of an installation: what works, what is waited for, what won't come. Pure but for the time.

use std::collections::HashSet;

use jiff::Timestamp;

use super::verdict::Installation;
use crate::apply::differ::{Sight, once};
use crate::apply::seen::Seen;
use crate::health::{Health, Wait};
use crate::plan::{Item, Phase, Plan};

/// The workloads of `plan` that aren't available, and why, as far as anybody has looked.
pub fn unavailable(plan: &Plan, seen: &Seen) -> Vec<(String, Wait)> {
    let why = |item: &Item| match (seen.health(&item.id), seen.sight(&item.id)) {
        (Some(Health::Ready), _) | (None, Sight::Unknown) => None,
        (Some(Health::Waiting(wait)), _) => Some(wait),
        (Some(Health::Broken(why)), _) => Some(why.as_str().into()),
        (None, Sight::Present { .. }) => Some("its status is not known yet".into()),
        (None, _) => Some("it isn't there".into()),
    };
    workloads(plan).filter_map(|item| Some((item.id.name.clone(), why(item)?))).collect()
}

/// Adds to `found` what the watches tell of everything but Jobs.
pub fn add(found: &mut Installation, plan: &Plan, seen: &Seen, now: Timestamp) {
    found.unavailable = unavailable(plan, seen);
    found.seen = plan.items().iter().all(|item| seen.sight(&item.id) != Sight::Unknown);
    // What a watch found missing after it was decided what to do is put right by the next pass: it is not all there yet.
    found.gaps = plan.items().iter().any(|item| !once(item) && matches!(seen.sight(&item.id), Sight::Missing { .. }));
    for item in plan.phase(Phase::Definitions) {
        match seen.health(&item.id) {
            Some(Health::Broken(why)) => found.broken.push(format!("{} is not established: {why}", item.id)),
            Some(Health::Waiting(wait)) if late(&wait, now) => found.broken.push(format!("{}: {wait}", item.id)),
            Some(Health::Waiting(wait)) => found.pending.push(format!("{} ({wait})", item.id)),
            Some(Health::Ready) | None => {}
        }
    }
    let planned: HashSet<_> = plan.items().iter().map(|item| (item.id.group.as_str(), item.id.kind.as_str())).collect();
    found.broken.extend(seen.blind(|group, kind| planned.contains(&(group, kind))));
}

/// Whether `wait` is past its deadline.
fn late(wait: &Wait, now: Timestamp) -> bool {
    wait.deadline.as_ref().is_some_and(|deadline| deadline.parse::<Timestamp>().is_ok_and(|deadline| deadline < now))
}

fn workloads(plan: &Plan) -> impl Iterator<Item = &Item> {
    plan.items().iter().filter(|i| i.id.group == "apps" && matches!(i.id.kind.as_str(), "Deployment" | "StatefulSet"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use knative_operator_shared::api::Component;
    use kube::core::{ApiResource, GroupVersionKind, ObjectMeta};
    use serde_json::json;

    use super::*;
    use crate::object::{Kind, ObjectId};
    use crate::owner::Owner;
    use crate::packed::Packed;
    use crate::plan::Rendered;

    fn plan() -> Plan {
        let object = |api: &str, kind: &str, name: &str| {
            Packed::new(&json!({"apiVersion": api, "kind": kind, "metadata": {"name": name}}))
        };
        let rendered = Rendered::new(vec![
            object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "xs.g.io"),
            object("apps/v1", "Deployment", "a"),
            object("apps/v1", "StatefulSet", "b"),
        ]);
        let owner = Owner {
            api_version: "v1".into(),
            kind: "ConfigMap".into(),
            name: "anchor".into(),
            uid: "1".into(),
            namespace: "n".into(),
        };
        Plan::new(Arc::new(rendered), &owner)
    }

    fn told(seen: &Seen, item: &Item, health: Health) {
        let meta = ObjectMeta { uid: Some("u".into()), resource_version: Some("1".into()), ..ObjectMeta::default() };
        seen.told(&item.id, &meta, Some(health), true);
    }

    fn found(plan: &Plan, seen: &Seen) -> Installation {
        let mut found = Installation::of(Component::Serving);
        add(&mut found, plan, seen, "2026-01-01T12:00:00Z".parse().unwrap());
        found
    }

    #[test]
    fn a_workload_that_is_not_there_is_not_available() {
        let (plan, seen) = (plan(), Seen::default());
        seen.expect(&plan, &ObjectId::new("", "ConfigMap", "n", "home"));
        // Nobody has looked: nothing is told.
        assert_eq!(found(&plan, &seen), Installation::of(Component::Serving));
        for item in plan.items() {
            let resource = ApiResource::from_gvk(&item.gvk);
            seen.all(&Kind { resource, namespaced: true }, "", &HashSet::new(), 0);
        }
        let names: Vec<_> =
            found(&plan, &seen).unavailable.into_iter().map(|(name, wait)| format!("{name}: {wait}")).collect();
        assert_eq!(names, ["a: it isn't there", "b: it isn't there"]);
    }

    #[test]
    fn a_definition_is_waited_for_until_its_deadline() {
        let (plan, seen) = (plan(), Seen::default());
        seen.expect(&plan, &ObjectId::new("", "ConfigMap", "n", "home"));
        let definition = plan.phase(Phase::Definitions).next().unwrap();
        let until = |deadline: &str| {
            Health::Waiting(Wait { why: "not yet".into(), since: None, deadline: Some(deadline.to_owned()) })
        };
        told(&seen, definition, until("2026-01-01T12:00:01Z"));
        assert_eq!(
            found(&plan, &seen).pending,
            ["CustomResourceDefinition xs.g.io (not yet, deadline 2026-01-01T12:00:01Z)"]
        );
        told(&seen, definition, until("2026-01-01T11:59:59Z"));
        assert_eq!(
            found(&plan, &seen).broken,
            ["CustomResourceDefinition xs.g.io: not yet, deadline 2026-01-01T11:59:59Z"]
        );
        told(&seen, definition, Health::Broken("taken".into()));
        assert_eq!(found(&plan, &seen).broken, ["CustomResourceDefinition xs.g.io is not established: taken"]);
        told(&seen, definition, Health::Ready);
        assert_eq!((found(&plan, &seen).pending.len(), found(&plan, &seen).broken.len()), (0, 0));
    }

    #[test]
    fn a_kind_that_may_not_be_watched_is_told_while_it_is_part_of_the_plan() {
        let (plan, seen) = (plan(), Seen::default());
        seen.expect(&plan, &ObjectId::new("", "ConfigMap", "n", "home"));
        let kind = |api: &str, kind: &str, plural: &str| {
            let gvk = GroupVersionKind::gvk(api, "v1", kind);
            Kind { resource: ApiResource::from_gvk_with_plural(&gvk, plural), namespaced: true }
        };
        seen.forbidden(&kind("apps", "Deployment", "deployments"), "no");
        seen.forbidden(&kind("networking.istio.io", "Gateway", "gateways"), "no");
        let told = "deployments.apps can't be watched, so nobody knows what becomes of them: no";
        assert_eq!(found(&plan, &seen).broken, [told]);
        seen.all(&kind("apps", "Deployment", "deployments"), "", &HashSet::new(), 0);
        assert_eq!(found(&plan, &seen).broken.len(), 0);
    }
}
