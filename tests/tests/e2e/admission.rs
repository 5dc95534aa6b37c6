//! Refusals of `kubectl apply`, with their messages.

use knative_operator_shared::api::Component;
use knative_operator_tests::cluster::Cluster;
use kube::{Client, Config};
use serde_json::{Value, json};

use crate::support::{apply, delete, fleet, namespace, nothing_to_install, resource, run};

/// The three forbidden changes of a resource as merge patches, with the message of each.
pub fn changes() -> [(&'static str, Option<&'static str>, Value, &'static str); 3] {
    let reference = |name: Value| json!({"spec": {"clusterProfileRef": name}});
    [
        (
            "changed",
            Some("nowhere"),
            reference(json!({"name": "elsewhere"})),
            "cannot be changed after creation (from \"fleet-system/nowhere\" to \"fleet-system/elsewhere\")",
        ),
        (
            "removed",
            // Another one: the webhook may not know yet that the resource for "nowhere" is gone.
            Some("away"),
            reference(Value::Null),
            "cannot be removed after creation (from \"fleet-system/away\" to none, the local cluster)",
        ),
        (
            "added",
            None,
            reference(json!({"name": "a", "namespace": "b"})),
            "cannot be added after creation (from none, the local cluster to \"b/a\")",
        ),
    ]
}

/// The error of `patch` of `resource`, in the words of kubectl.
pub async fn refusal(hub: &Cluster, resource: &Value, patch: &Value) -> String {
    match hub.stored(resource).merge(patch).await {
        Ok(()) => panic!("{patch} was not refused"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn cluster_profile_ref_is_immutable() {
    run(async {
        let fleet = fleet().await?;
        let hub = &fleet.hub;
        namespace(hub, "admission").await?;
        for component in Component::ALL {
            for (name, profile, patch, expected) in changes() {
                // Manifests that do not exist: nothing is installed.
                let stored = resource(component, "admission", name, profile, nothing_to_install());
                apply(hub, &stored).await?;
                let output = refusal(hub, &stored, &patch).await;
                assert!(output.contains("spec.clusterProfileRef") && output.contains(expected), "{output}");
                assert!(output.contains("delete it, wait until it is gone, and create it again"), "{output}");

                // Changes of metadata and of other fields are admitted.
                hub.stored(&stored).label(&json!({"a": "b"})).await?;
                hub.stored(&stored).merge(&json!({"spec": {"version": "1.0.1"}})).await?;
                delete(hub, &stored).await?;
            }
        }
        let both = json!({"namespace": {"labels": {"a": "1"}}, "namespaceConfiguration": {"labels": {"a": "2"}}});
        let output = apply(hub, &resource(Component::Serving, "admission", "both", Some("nowhere"), both))
            .await
            .unwrap_err()
            .to_string();
        assert!(output.contains("spec.namespaceConfiguration") && output.contains("remove spec.namespace"), "{output}");
        Ok(())
    });
}

#[test]
fn invalid_review_is_reported() {
    run(async {
        let fleet = fleet().await?;
        let (pod, _) = fleet.product.webhook.as_ref().ok_or("no webhook")?;
        let mut config = Config::new(format!("https://{}:8443", pod.address).parse()?);
        config.accept_invalid_certs = true;
        config.default_retry = false;
        let client = Client::try_from(config)?;
        for (body, expected) in [
            ("", "not JSON"),
            ("{\"kind\":", "not JSON"),
            ("[]", "not an AdmissionReview"),
            ("{\"kind\":\"AdmissionReview\"}", "not an AdmissionReview"),
        ] {
            for path in ["/validate", "/mutate"] {
                let request = http::Request::post(path)
                    .header("content-type", "application/json")
                    .body(body.as_bytes().to_vec())?;
                let error = client.request_text(request).await.unwrap_err();
                assert!(matches!(&error, kube::Error::Api(status) if status.code == 400), "{error:?}");
                assert!(error.to_string().contains(expected), "{error}");
            }
        }
        // A review about another kind is allowed, with its own uid.
        let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "7", "operation": "CREATE",
            "kind": {"group": "", "version": "v1", "kind": "Pod"}, "userInfo": {}, "object": {}}});
        let request = http::Request::post("/validate")
            .header("content-type", "application/json")
            .body(review.to_string().into_bytes())?;
        let answer: Value = client.request(request).await?;
        assert_eq!((&answer["response"]["uid"], &answer["response"]["allowed"]), (&json!("7"), &json!(true)));
        Ok(())
    });
}
