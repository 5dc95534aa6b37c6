//! Random requests: nothing panics, and a changed `clusterProfileRef` is never admitted.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::authorization::Authorizer;
use crate::cluster_facts::ClusterFacts;
use crate::live::Live;
use crate::metrics::{Metrics, Webhook};
use crate::request::{self, ReviewError};
use crate::review::Review;
use crate::routes;
use futures::FutureExt;
use knative_operator_shared::api::Component;
use knative_operator_shared::defaults;
use tokio_util::sync::CancellationToken;

fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 32, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::hash_map(any::<String>(), inner, 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

/// A random reference, or one of a few.
fn reference() -> impl Strategy<Value = Value> {
    prop_oneof![
        3 => Just(json!({"name": "a", "namespace": "f"})),
        3 => Just(json!({"name": "b", "namespace": "f"})),
        1 => Just(json!({"name": "a", "namespace": "g"})),
        1 => Just(json!({"name": "a"})),
        2 => Just(Value::Null),
        1 => anything(),
    ]
}

fn object(reference: &Value, rest: &Value, deleting: bool) -> Value {
    let mut spec = json!({"version": rest});
    if !reference.is_null() {
        spec["clusterProfileRef"] = reference.clone();
    }
    let mut object = json!({"apiVersion": "operator.knative.dev/v1beta1", "metadata": {"name": "x", "namespace": "y"}, "spec": spec});
    if deleting {
        object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    }
    object
}

fn update(kind: &str, new: &Value, old: &Value) -> Vec<u8> {
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "1", "operation": "UPDATE", "userInfo": {},
        "kind": {"group": "operator.knative.dev", "version": "v1beta1", "kind": kind}, "object": new, "oldObject": old}})
    .to_string()
    .into_bytes()
}

fn app(metrics: Metrics) -> routes::App {
    routes::App::new(metrics, ClusterFacts::default(), Authorizer::off(), Live::none(), CancellationToken::new())
}

/// The answer, which needs no other process.
fn decide(app: &routes::App, webhook: Webhook, body: &[u8], has_capacity: bool) -> Result<Review, ReviewError> {
    app.decide(webhook, body, has_capacity).now_or_never().unwrap()
}

#[test]
fn overload_response_has_uid() {
    let (metrics, _) = Metrics::registered();
    let app = app(metrics);
    let review = decide(&app, Webhook::Validate, &update("KnativeServing", &json!({}), &json!({})), false).unwrap();
    let answer = serde_json::to_value(review).unwrap();
    assert_eq!((&answer["response"]["uid"], &answer["response"]["allowed"]), (&json!("1"), &json!(false)));
    assert_eq!(
        (&answer["response"]["status"]["code"], &answer["response"]["status"]["reason"]),
        (&json!(429), &json!("TooManyRequests"))
    );
}

/// Whether both webhooks admit it.
fn admitted(body: &[u8]) -> bool {
    let (metrics, _) = Metrics::registered();
    let app = app(metrics);
    [Webhook::Mutate, Webhook::Validate]
        .into_iter()
        .all(|webhook| decide(&app, webhook, body, true).is_ok_and(|review| review.response.allowed))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes_cause_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..256), cut in 0_usize..400, value in anything()) {
        let _ = request::parse(&bytes);
        admitted(&bytes);
        let mut whole = update("KnativeServing", &value, &value);
        admitted(&whole);
        whole.truncate(cut);
        admitted(&whole);
        // A valid review with one random byte.
        let stored = object(&Value::Null, &json!("1.22"), false);
        let mut valid = update("KnativeEventing", &stored, &stored);
        if let Some(byte) = valid.get_mut(cut) {
            *byte = bytes.first().copied().unwrap_or_default();
        }
        admitted(&valid);
    }

    #[test]
    fn changed_reference_is_never_admitted(old in reference(), new in reference(), a in anything(), b in anything(), deleting in any::<bool>()) {
        for kind in ["KnativeServing", "KnativeEventing"] {
            let body = update(kind, &object(&new, &b, deleting), &object(&old, &a, false));
            // The stored object is valid, as the definition ensures.
            let stored = knative_operator_rules::parse(Component::of_kind(kind).unwrap(), &object(&old, &a, false)).is_ok();
            prop_assert!(old == new || !stored || !admitted(&body), "{old} to {new}");
        }
    }

    #[test]
    fn patch_adds_defaults_only(spec in anything(), source in anything(), enabled in any::<bool>()) {
        for component in Component::ALL {
            let spec = json!({"spec": {"a": spec, "source": {"kafka": {"enabled": enabled}, "redis": source}, "security": source}});
            let mut defaulted = spec.clone();
            defaults::set_defaults(component, &mut defaulted);
            let patch = json_patch::diff(&spec, &defaulted);
            prop_assert!(patch.0.iter().all(|operation| matches!(operation, json_patch::PatchOperation::Add(_))), "{patch:?}");
            let mut patched = spec.clone();
            json_patch::patch(&mut patched, &patch).unwrap();
            prop_assert_eq!(&patched, &defaulted);
            defaults::set_defaults(component, &mut defaulted);
            prop_assert_eq!(patched, defaulted);
        }
    }
}
