//! The shape of the CRDs that users know. `conformance::crds` compares the schemas with those of
//! the Go operator.

#![allow(clippy::unwrap_used)] // these are tests

use knative_operator_shared::api::Component;
use knative_operator_shared::crd::definition;

#[test]
fn shape_is_what_users_know() {
    for component in Component::ALL {
        let crd = definition(component);
        let version = &crd["spec"]["versions"][0];
        assert_eq!(version["name"], "v1beta1");
        assert!(version["subresources"]["status"].is_object());
        let columns: Vec<_> = version["additionalPrinterColumns"]
            .as_array()
            .unwrap()
            .iter()
            .map(|c| c["name"].as_str().unwrap())
            .collect();
        assert_eq!(columns, ["Target Cluster", "Version", "Ready", "Reason", "Age"]);
        let rules = &version["schema"]["openAPIV3Schema"]["properties"]["spec"]["x-kubernetes-validations"];
        let messages: Vec<_> = rules.as_array().unwrap().iter().map(|r| r["message"].as_str().unwrap()).collect();
        assert_eq!(
            messages,
            ["spec.clusterProfileRef cannot be added or removed after creation", "spec.clusterProfileRef is immutable"]
        );
        assert!(serde_json::to_string(&crd).unwrap().len() < 200_000, "kubectl apply could not annotate it");
    }
}
