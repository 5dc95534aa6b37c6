//! What a pass removes after a change of `spec.removal.policy`.

use super::*;

#[tokio::test]
async fn removal_that_kept_installations_uninstalls_none() {
    for (orphans, expected) in [(json!(false), 1), (json!(true), 0), (Value::Null, 0)] {
        let (hub, mut requests) = hub(Vec::from([fleet("prod")]), |_, _| None);
        let (cx, _) = context(&hub);
        cx.profiles.reset(Vec::from([profile("a", "prod"), profile("c", "test")]));
        cx.registry.set(resource("c"));
        // Two clusters were allowed to leave. One is left, and one may leave within a day.
        let time = "2020-01-01T00:00:00Z";
        let recent = json!([{"time": time, "clusters": 2, "observedSeconds": 0}]);
        let mut fleet = fleet("prod");
        fleet["spec"]["removal"]["maxAtOnce"] = json!(1);
        fleet["status"] =
            json!({"removals": {"allowedUntil": time, "approved": [], "orphans": orphans, "recent": recent}});
        let stored = StoredFleet { fleet: serde_json::from_value(fleet).unwrap(), unreadable: None };
        let (store, selections, mut state) = (Store::default(), Selections::default(), FleetState::default());
        Box::pin(reconcile::reconcile(&cx, &store, &stored, &selections, &mut state)).await;
        let (mut deleted, mut published) = (0, None);
        while let Ok(request) = requests.try_recv() {
            deleted += usize::from(request.0 == Method::DELETE);
            published = Some(request).filter(|request| publishes(request, "prod")).or(published);
        }
        let (.., body) = published.unwrap();
        let removals = &body["status"]["removals"];
        let kept = if expected == 1 { json!(false) } else { Value::Null };
        assert_eq!((deleted, &removals["orphans"]), (expected, &kept), "{removals}");
        assert_eq!(removals.get("allowedUntil") == Some(&Value::Null), expected == 0, "{removals}");
        let conditions = body["status"]["conditions"].as_array().unwrap();
        let blocked = conditions.iter().find(|condition| condition["type"] == "RemovalBlocked").unwrap();
        assert_eq!(blocked["status"] == "True", expected == 0, "{blocked}");
    }
}
