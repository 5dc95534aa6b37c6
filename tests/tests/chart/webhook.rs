//! The webhook's Pods: their quota, ports, network and security context, and the Secret with their
//! certificates.

use serde_json::{Value, json};

use super::{objects, parsed, with_values};

/// The object in `all` with this kind and name.
fn find<'a>(all: &'a [Value], kind: &str, name: &str) -> &'a Value {
    all.iter().find(|o| o["kind"] == kind && o["metadata"]["name"] == name).unwrap()
}

/// The objects with `values`, which are below `knative_operator.operator_webhook`, and with `more`
/// arguments.
fn with(values: &[&str], more: &[&str]) -> Vec<Value> {
    let values: Vec<_> = values.iter().map(|value| format!("knative_operator.operator_webhook.{value}")).collect();
    let values = values.join(",");
    objects(&[&["--set", values.as_str()][..], more].concat())
}

/// The value of the variable `name` in the first container of `deployment`.
fn variable<'a>(deployment: &'a Value, name: &str) -> Option<&'a str> {
    let variables = deployment["spec"]["template"]["spec"]["containers"][0]["env"].as_array().unwrap();
    variables.iter().find(|variable| variable["name"] == name).map(|variable| variable["value"].as_str().unwrap())
}

#[test]
fn helm_test_asks_the_port_that_serves_readiness() {
    for (arguments, port, name) in [(&[][..], 9090, "metrics"), (&["--set", "metrics.secure=true"], 8081, "health")] {
        let all = objects(arguments);
        let url = find(&all, "Pod", "knative-operator-test")["spec"]["containers"][0]["args"][2].as_str().unwrap();
        assert!(url.ends_with(&format!(".svc:{port}/readyz")), "{url}");
        let ports = find(&all, "Service", "operator-webhook")["spec"]["ports"].as_array().unwrap();
        assert!(ports.iter().any(|one| one["port"] == port && one["targetPort"] == name), "{ports:?}");
        let webhook = &find(&all, "Deployment", "operator-webhook")["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(webhook["readinessProbe"]["httpGet"]["port"], name);
    }
}

#[test]
fn pods_of_critical_classes_have_a_quota() {
    let quota = |arguments: &[&str]| {
        objects(arguments).iter().find(|o| o["kind"] == "ResourceQuota").map(|quota| quota["spec"].clone())
    };
    let of = |classes: &[&str]| {
        let selector = json!([{"scopeName": "PriorityClass", "operator": "In", "values": classes}]);
        Some(json!({"hard": {"pods": "1G"}, "scopeSelector": {"matchExpressions": selector}}))
    };
    let (cluster, node) = ("system-cluster-critical", "system-node-critical");
    assert_eq!(quota(&[]), of(&[cluster]));
    // Values of an older release, which --reuse-values keeps, don't have it.
    assert_eq!(quota(&["--set-json", "priorityClassQuota=null"]), of(&[cluster]));
    let operator = "knative_operator.knative_operator.priorityClassName";
    assert_eq!(quota(&["--set", &format!("{operator}={node}")]), of(&[cluster, node]));
    assert_eq!(quota(&["--set", &format!("{operator}={cluster}")]), of(&[cluster]));
    let webhook = "knative_operator.operator_webhook.priorityClassName";
    for arguments in ["priorityClassQuota.enabled=false", &format!("{webhook}="), &format!("{webhook}=high")] {
        assert_eq!(quota(&["--set", arguments]), None, "{arguments}");
    }
}

#[test]
fn ports_of_the_webhook_are_those_of_its_values() {
    let secure = ["--set", "networkPolicy.enabled=true,metrics.secure=true"];
    for (values, [port, metrics, health], variables) in [
        (&["port=8443"][..], [8443, 9090, 8081], [Some("8443"), None, None]),
        (&["port=null", "metricsPort=null", "healthPort=null"][..], [8443, 9090, 8081], [Some("8443"), None, None]),
        (
            &["port=10250", "metricsPort=19090", "healthPort=18081"][..],
            [10250, 19090, 18081],
            [Some("10250"), Some("19090"), Some("18081")],
        ),
    ] {
        let all = with(values, &secure);
        let deployment = find(&all, "Deployment", "operator-webhook");
        let container = &deployment["spec"]["template"]["spec"]["containers"][0];
        let named = |name: &str, port: i32| json!({"name": name, "containerPort": port});
        let ports = json!([named("https-webhook", port), named("metrics", metrics), named("health", health)]);
        assert_eq!(container["ports"], ports);
        let found = ["WEBHOOK_PORT", "METRICS_PORT", "HEALTH_PORT"].map(|name| variable(deployment, name));
        assert_eq!(found, variables);
        let admitted = |name: &str| find(&all, "NetworkPolicy", name)["spec"]["ingress"].clone();
        let each = |ports: &[i32]| ports.iter().map(|port| json!({"ports": [{"port": port}]})).collect::<Value>();
        assert_eq!(admitted("operator-webhook"), each(&[port, metrics, health]));
        assert_eq!(admitted("knative-operator"), each(&[9090, 8081]));
        let service = &find(&all, "Service", "operator-webhook")["spec"]["ports"];
        assert_eq!(
            [&service[0]["port"], &service[0]["targetPort"], &service[1]["port"], &service[1]["targetPort"]],
            [&json!(443), &json!("https-webhook"), &json!(9090), &json!("metrics")]
        );
    }
}

#[test]
fn pods_in_the_host_network_make_room_for_new_ones() {
    for (value, host_network, policy, unavailable) in [
        ("hostNetwork=false", Value::Null, Value::Null, 0),
        ("hostNetwork=true", json!(true), json!("ClusterFirstWithHostNet"), 1),
    ] {
        let all = with(&[value], &[]);
        let spec = &find(&all, "Deployment", "operator-webhook")["spec"];
        let pod = &spec["template"]["spec"];
        assert_eq!((&pod["hostNetwork"], &pod["dnsPolicy"]), (&host_network, &policy), "{value}");
        assert_eq!(spec["strategy"]["rollingUpdate"], json!({"maxSurge": 1, "maxUnavailable": unavailable}));
    }
}

#[test]
fn each_source_of_certificates_has_its_own_secret() {
    let more = ["--set", "metrics.secure=true,metrics.serviceMonitor.enabled=true"];
    for (source, name) in
        [("self", "operator-webhook-certs"), ("cert-manager", "operator-webhook-cert-manager"), ("secret", "own")]
    {
        // The name of the user's Secret may stay in the values.
        let all = with(&[&format!("certificates.source={source}"), "certificates.secretName=own"], &more);
        assert_eq!(variable(find(&all, "Deployment", "operator-webhook"), "WEBHOOK_SECRET_NAME"), Some(name));
        let operator = &find(&all, "Deployment", "knative-operator")["spec"]["template"]["spec"]["containers"][0];
        let flag = format!("--metrics-certificate-secret={name}");
        assert!(operator["args"].as_array().unwrap().iter().any(|argument| argument == flag.as_str()), "{operator}");
        for role in ["operator-webhook", "knative-operator"] {
            let rules = find(&all, "Role", role)["rules"].as_array().unwrap();
            let mut named = rules
                .iter()
                .filter(|rule| rule["resources"] == json!(["secrets"]))
                .filter_map(|rule| rule.get("resourceNames"));
            assert_eq!((named.next(), named.next()), (Some(&json!([name])), None), "{role}");
        }
        let monitor = &find(&all, "ServiceMonitor", "knative-operator")["spec"]["endpoints"][0];
        assert_eq!(monitor["tlsConfig"]["ca"]["secret"]["name"], name);
        assert_eq!(monitor["honorLabels"], true, "the namespace in an alert is that of the resource");
        let secrets: Vec<_> =
            all.iter().filter(|o| o["kind"] == "Secret").map(|secret| &secret["metadata"]["name"]).collect();
        assert_eq!(secrets, if source == "self" { vec![name] } else { vec![] });
        let issued: Vec<_> =
            all.iter().filter(|o| o["kind"] == "Certificate").map(|issued| &issued["spec"]["secretName"]).collect();
        assert_eq!(issued, if source == "cert-manager" { vec![name] } else { vec![] });
    }
}

#[test]
fn known_peers_of_the_api_server_are_the_only_ones() {
    let policies = |arguments: &[&str]| -> Vec<Value> {
        objects(arguments).into_iter().filter(|o| o["kind"] == "NetworkPolicy").collect()
    };
    let names = |arguments: &[&str]| -> Vec<String> {
        policies(arguments).iter().map(|policy| policy["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    };
    let peers = r#"networkPolicy.apiServer=[{"ipBlock":{"cidr":"192.0.2.1/32"}}]"#;
    assert!(names(&[]).is_empty());
    assert_eq!(names(&["--set-json", peers]), ["operator-webhook"]);
    assert_eq!(names(&["--set", "networkPolicy.enabled=true"]), ["operator-webhook", "knative-operator"]);
    for more in [&[][..], &["--set", "networkPolicy.enabled=true"]] {
        let all = policies(&[&["--set-json", peers][..], more].concat());
        let ingress = &find(&all, "NetworkPolicy", "operator-webhook")["spec"]["ingress"];
        let expected = json!({"ports": [{"port": 8443}], "from": [{"ipBlock": {"cidr": "192.0.2.1/32"}}]});
        assert_eq!(ingress[0], expected);
        // Probes and metrics stay open.
        assert_eq!(ingress[1], json!({"ports": [{"port": 9090}]}));
    }
}

#[test]
fn settings_of_a_container_are_merged_into_the_security_context() {
    let own = json!({"capabilities": {"add": ["NET_BIND_SERVICE"]}, "seccompProfile": {"type": "Unconfined"}});
    let part = json!({"containerSecurityContext": own});
    let values = json!({"knative_operator": {"knative_operator": part, "operator_webhook": part}});
    // A mapping with a key twice can't be parsed.
    let objects = parsed(&with_values(&values.to_string()).unwrap());
    let of = |name: &str| objects.iter().find(|o| o["kind"] == "Deployment" && o["metadata"]["name"] == name).unwrap();
    for name in ["knative-operator", "operator-webhook"] {
        let context = &of(name)["spec"]["template"]["spec"]["containers"][0]["securityContext"];
        assert_eq!(context["capabilities"], json!({"add": ["NET_BIND_SERVICE"], "drop": ["ALL"]}), "{name}");
        assert_eq!(context["seccompProfile"], json!({"type": "Unconfined"}), "{name}");
        assert_eq!(context["readOnlyRootFilesystem"], true, "{name}");
    }
}
