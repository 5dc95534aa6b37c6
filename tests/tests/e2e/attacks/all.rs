//! All attacks, in two tests. Each attack leaves its clusters as it found them. Those that are
//! about different installations and objects run at the same time.

use knative_operator_tests::Result;
use serde_json::{Value, json};

use super::attacker::is_permitted;
use super::report::Report;
use super::settle::remove;
use super::{approvals, content, credentials, fleets, former, local, placements, queue, spokes, templates, tenant};
use crate::support::{apply, gone, run};

#[test]
fn tenants_get_nothing_beyond_their_rights() {
    run(async {
        let mut site = tenant::Site::start().await?;
        let (owner, queued) = queue::store(&site).await?;
        assert_eq!(site.arguments_after_upgrade().await?, "- --authorization=warn\n".repeat(2));
        site.enforce().await?;
        let (mut report, others) = {
            let site = &site;
            let reports = tokio::try_join!(
                eventing_on_spoke(site, &owner, &queued),
                on_hub(site),
                serving_on_spoke(site),
                credentials_are_sent(site, "builtin", ["clusterName", "ClusterName"]),
                credentials_are_sent(site, "secretreader", ["clusterName", "CLUSTERNAME"]),
            )?;
            (reports.0, [reports.1, reports.2, reports.3, reports.4])
        };
        others.into_iter().for_each(|other| report.add(other));

        site.restrict().await?;
        report.attack("M5 again, with refuseUsedNamespaces", spokes::prepares_namespace(&site, true)).await;
        let sent = credentials::are_sent(&site, "secretreader", "clusterName");
        report.attack("H3 again, with profileNamespaces", sent).await;
        report.finish()
    });
}

/// With Knative Eventing on the spoke.
async fn eventing_on_spoke(site: &tenant::Site, owner: &Value, queued: &Value) -> Result<Report> {
    let mut report = Report::default();
    report.attack("queued before enforce, installs later", queue::takes_over(site, owner, queued)).await;
    if !is_permitted() {
        queue::is_permitted(site, queued).await?;
    }
    remove(&site.hub, queued).await?;
    report.attack("H1 env: image of an adapter", content::brings_adapter(site)).await;
    report.attack("status writer moves an installation", spokes::moves_installation(site)).await;
    Ok(report)
}

/// On the hub itself.
async fn on_hub(site: &tenant::Site) -> Result<Report> {
    let mut report = Report::default();
    report.attack("C1 installs on the hub, takes a controller's account", local::takes_account(site)).await;
    report.attack("H1 labels the own namespace on the hub", local::labels_namespace(site)).await;
    report.attack("C1 occupies the hub", local::occupies_hub(site)).await;
    remove(&site.hub, &local::mine(json!({}))).await?;
    report.attack("C2 inventory names the webhook", local::Forgery::Inventory.try_on(site)).await;
    report.attack("C2 the same, with an owner", local::Forgery::Owner.try_on(site)).await;
    report.attack("C2 the same, with a version in the status", local::Forgery::Version.try_on(site)).await;
    Ok(report)
}

/// With Knative Serving on the spoke.
async fn serving_on_spoke(site: &tenant::Site) -> Result<Report> {
    let mut report = Report::default();
    report.attack("M5 prepares Knative's namespace on a spoke", spokes::prepares_namespace(site, false)).await;
    report.attack("H1 labels Knative's namespace on a spoke", spokes::labels_namespace(site)).await;
    apply(&site.hub, &spokes::own(site)).await?;
    for content in content::all() {
        report.attack(content.attack, content.bring(site)).await;
    }
    report.attack("takes over the installation of another hub", spokes::takes_over(site)).await;
    report.attack("editor writes a status", spokes::writes_status(site)).await;
    remove(&site.hub, &spokes::own(site)).await?;
    Ok(report)
}

/// By ClusterProfiles with the access provider `provider`, whose Secret each of `fields` names.
async fn credentials_are_sent(
    site: &tenant::Site,
    provider: &'static str,
    fields: [&'static str; 2],
) -> Result<Report> {
    let attacks = match provider {
        "builtin" => ["H3 own server, Secret of another cluster", "H3 the same, with a name in capitals"],
        _ => ["H3 the same, with the official plugin", "H3 the official plugin, with a name in capitals"],
    };
    let mut report = Report::default();
    for (attack, field) in attacks.into_iter().zip(fields) {
        report.attack(attack, credentials::are_sent(site, provider, field)).await;
    }
    Ok(report)
}

#[test]
fn fleet_editors_get_nothing_beyond_their_rights() {
    run(async {
        let mut site = fleets::Site::start().await?;
        let mut report = Report::default();
        report.attack("H2 author lost the clusters, one joins", former::gets_later_cluster(&site)).await;
        report.attack("H2 selector captures a future cluster", placements::capture_future_cluster(&site)).await;
        site.finish_rollout(&fleets::prod(2)).await?;
        report.attack("H2 another component on the same clusters", placements::get_another_component(&site)).await;
        // The fleets of Eventing are on different clusters, and others than that of Serving.
        let (mut on_a, mut on_b) = (Report::default(), Report::default());
        tokio::join!(
            on_b.attack("M8 decision of another namespace", placements::are_steered(&site)),
            on_a.attack("M3 override removes registry and patches", templates::lose_registry(&site)),
            rollouts(&site, &mut report),
        );
        report.add(on_a);
        report.add(on_b);
        report.attack("H4 other content, same name of the revision", templates::share_name(&mut site)).await;
        report.attack("H4 approval of a former approver", former::approval_is_listed(&site, 18)).await;
        report.attack("H4 resources of a fleet are deleted", approvals::children_are_deleted(&site)).await;
        report.attack("H4 resources of a fleet get a finalizer", approvals::children_are_held(&site)).await;
        report.attack("H4 fleet with approvals is deleted", approvals::are_deleted(&site)).await;
        report.attack("H4 the same, by the garbage collector", approvals::are_collected(&site)).await;
        if is_permitted() {
            // The fleet is deleted.
            gone(&site.hub, &fleets::prod(13)).await?;
            apply(&site.hub, &fleets::prod(13)).await?;
        }
        report.attack("H4 approval of a former fleet of that name", approvals::outlive_fleet(&site, 14)).await;
        report.finish()
    });
}

/// Of the fleet `prod`, one after another.
async fn rollouts(site: &fleets::Site, report: &mut Report) {
    report.attack("H4 stage without its approval", approvals::are_removed(site, 3)).await;
    report.attack("H4 cluster in a stage without approval", approvals::are_avoided(site, 4)).await;
    report.attack("H4 annotations say that it is updated", approvals::are_annotated(site, 5)).await;
    report.attack("H4 revision of the next rollout exists already", templates::precede_rollout(site, 6)).await;
    report.attack("M4 annotation names a forged revision", templates::are_annotated(site, 7)).await;
    report.attack("M4 rollback to a forged revision", templates::are_rolled_back_to(site, 8, false)).await;
    report.attack("M4 the same, with the fleet as owner", templates::are_rolled_back_to(site, 16, true)).await;
}
