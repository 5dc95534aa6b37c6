//! Single cases of the protocol: records that are forged, old, or of others.

use super::*;

#[test]
fn forged_record_does_not_pass_an_older_owner() {
    let real = InstallationOwner { confirmed: true, ..resource("1", "real", "real").claimant.me };
    let forger = resource("1", "a", "a");
    let me = InstallationOwner { confirmed: true, ..forger.claimant.me.clone() };
    let other = InstallationOwner { confirmed: true, ..resource("2", "x", "a").claimant.me };
    let released = InstallationOwner { released: true, ..other.clone() };
    let mut takes_over = forger.clone();
    takes_over.claimant.take_over = Some("2".to_owned());
    for (forger, record) in [(&forger, me), (&forger, released), (&takes_over, other)] {
        for (created, writers) in [(5, 1), (15, 0)] {
            let mut first = start(
                std::slice::from_ref(forger),
                &[("a", Record::Owner(record.clone())), ("real", Record::Owner(real.clone()))],
            );
            first.anchors.get_mut("real").unwrap().created = 10;
            first.anchors.get_mut("a").unwrap().created = created;
            assert_eq!(first.at_rest(std::slice::from_ref(forger)).writers(), writers, "{record:?} {created}");
        }
    }
}

#[test]
fn created_again_resource_is_the_same_owner() {
    let again = resource("1", "a", "a");
    let before = InstallationOwner { uid: "before".to_owned(), confirmed: true, ..again.claimant.me.clone() };
    let resources = vec![again];
    let rest = start(&resources, &[("a", Record::Owner(before))]).at_rest(&resources);
    assert_eq!(rest.at, [At::Writing]);
    assert!(matches!(&rest.anchors["a"].record, Record::Owner(owner) if owner.uid == "1-a" && owner.confirmed));
}

#[test]
fn anchor_of_a_resource_that_no_longer_exists_is_taken_over_by_its_uid() {
    let gone = resource("1", "gone", "a").claimant.me;
    let owner = Record::Owner(InstallationOwner { confirmed: true, ..gone });
    for (is_abandoned, asked, writers) in [(true, "uid", 1), (true, "1", 0), (false, "uid", 0)] {
        let mut resources = vec![resource("1", "a", "a")];
        resources[0].claimant.is_abandoned = is_abandoned;
        resources[0].claimant.take_over = Some(asked.to_owned());
        let mut first = start(&resources, &[("a", owner.clone())]);
        first.anchors.get_mut("a").unwrap().uid = "uid".to_owned();
        assert_eq!(first.at_rest(&resources).writers(), writers, "{is_abandoned} {asked}");
    }
}

#[test]
fn begun_installation_claims_its_anchor_only_if_there_is_no_other() {
    let mut resources = vec![resource("1", "a", "a")];
    resources[0].claimant.has_begun = true;
    for (anchors, writers) in [(&["a"][..], 1), (&["a", "b"], 0)] {
        let anchors: Vec<_> = anchors.iter().map(|name| (*name, Record::Absent)).collect();
        assert_eq!(start(&resources, &anchors).at_rest(&resources).writers(), writers, "{anchors:?}");
    }
}

#[test]
fn unreadable_and_foreign_anchors_are_left_alone() {
    let resources = vec![resource("1", "a", "a")];
    for (name, record) in [("a", Record::Unreadable), ("a", Record::Absent), ("b", Record::Unreadable)] {
        let rest = start(&resources, &[(name, record.clone())]).at_rest(&resources);
        assert_eq!((&rest.anchors[name].record, rest.writers()), (&record, 0));
    }
}

#[test]
fn forged_older_record_does_not_stop_an_installation() {
    let mut resources = vec![resource("1", "a", "a")];
    let me = InstallationOwner { confirmed: true, ..resources[0].claimant.me.clone() };
    let other = InstallationOwner { confirmed: true, ..resource("2", "b", "b").claimant.me };
    for (record, installed, writers) in [
        (Record::Owner(other.clone()), Installed::Somewhere, 0),
        (Record::Owner(other), Installed::Here, 1),
        (Record::Unreadable, Installed::Here, 1),
    ] {
        resources[0].claimant.installed = installed;
        let mut first = start(&resources, &[("a", Record::Owner(me.clone())), ("b", record.clone())]);
        first.anchors.get_mut("a").unwrap().created = 10;
        assert_eq!(first.at_rest(&resources).writers(), writers, "{record:?} {installed:?}");
        let others = [first.anchors["b"].clone()];
        let ignored = resources[0].claimant.ignored(&first.anchors["a"], &others);
        assert_eq!(ignored.is_some(), installed == Installed::Here);
    }
}

#[test]
fn installation_in_another_namespace_is_not_installed_a_second_time() {
    let resources = vec![resource("1", "a", "a")];
    let owner = InstallationOwner { confirmed: true, ..resources[0].claimant.me.clone() };
    let mut elsewhere = start(&resources, &[("a", Record::Owner(owner))]).anchors["a"].clone();
    elsewhere.namespace = "team".to_owned();
    assert_eq!(resources[0].claimant.step(None, &[elsewhere.clone()]), Step::Wait(elsewhere));
}

#[test]
fn settled_owner_counts_before_one_that_only_began() {
    let mut resources = vec![resource("1", "a", "a")];
    resources[0].claimant.installed = Installed::Somewhere;
    let began = resource("2", "b", "b").claimant.me;
    let settled = InstallationOwner { confirmed: true, ..resource("3", "c", "c").claimant.me };
    let anchors = [("a", Record::Absent), ("b", Record::Owner(began)), ("c", Record::Owner(settled))];
    let first = start(&resources, &anchors);
    let others = ["b", "c"].map(|name| first.anchors[name].clone());
    assert!(others[0].version < others[1].version);
    // Its own anchor without a record: it adopts nothing that another one has.
    let step = resources[0].claimant.step(Some(&first.anchors["a"]), &others);
    assert_eq!(step, Step::Wait(others[1].clone()));
}
