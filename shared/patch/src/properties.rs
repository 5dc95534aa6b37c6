//! Properties of patches, tested with random patches.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::tests::{apply, deployment, patched};
use super::{IDENTITY, Patched};
use knative_operator_shared::api::PatchType;

/// A value of a patch, with directives at random places.
fn content() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (0..3).prop_map(Value::from),
        "[a-c]{0,1}".prop_map(Value::from)
    ];
    leaf.prop_recursive(5, 24, 4, |inner| {
        let key = prop::sample::select(vec![
            "metadata",
            "spec",
            "template",
            "containers",
            "env",
            "name",
            "finalizers",
            "labels",
            "volumes",
            "$patch",
            "$retainKeys",
            "$setElementOrder/containers",
            "$deleteFromPrimitiveList/finalizers",
        ]);
        prop_oneof![
            1 => prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            3 => prop::collection::vec((key, inner), 0..4)
                .prop_map(|f| Value::Object(f.into_iter().map(|(k, v)| (k.to_owned(), v)).collect::<Map<_, _>>())),
        ]
    })
}

/// Operations of a JSON patch.
fn operations() -> impl Strategy<Value = Value> {
    let path = || {
        prop::sample::select(vec![
            "",
            "/spec",
            "/spec/template",
            "/spec/template/spec",
            "/spec/template/spec/containers",
            "/spec/a",
            "/metadata/finalizers/0",
            "/metadata/finalizers/-",
            "/metadata/name",
            "x",
        ])
    };
    let name = prop::sample::select(vec!["add", "remove", "replace", "move", "copy", "test"]);
    let operation = (name, path(), path(), content())
        .prop_map(|(name, path, from, value)| json!({"op": name, "path": path, "from": from, "value": value}));
    prop::collection::vec(operation, 0..5).prop_map(Value::from)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_patch_causes_no_panic_and_keeps_identity(content in content(), pod in content()) {
        let object = deployment(&pod);
        for type_ in [PatchType::Json, PatchType::Merge, PatchType::Strategic] {
            if let Ok(Patched::Changed(result) | Patched::Replaced(result)) = apply(&object, type_, &content.to_string()) {
                prop_assert_eq!(IDENTITY.map(|path| result.pointer(path)), IDENTITY.map(|path| object.pointer(path)));
            }
        }
    }

    #[test]
    fn random_operations_cause_no_panic_and_keep_identity(operations in operations(), pod in content()) {
        let object = deployment(&pod);
        if let Ok(result) = patched(&object, PatchType::Json, &operations.to_string()) {
            prop_assert_eq!(IDENTITY.map(|path| result.pointer(path)), IDENTITY.map(|path| object.pointer(path)));
        }
    }

    #[test]
    fn merge_patch_is_idempotent(content in content(), pod in content()) {
        let once = patched(&deployment(&pod), PatchType::Merge, &content.to_string());
        if let Ok(once) = once {
            prop_assert_eq!(&patched(&once, PatchType::Merge, &content.to_string()).unwrap(), &once);
        }
    }
}
