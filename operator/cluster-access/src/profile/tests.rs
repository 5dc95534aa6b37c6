//! Tests of how a ClusterProfile and the provider file become a connection.

use super::*;

fn access(
    reference: &ClusterProfileReference,
    profile: &ClusterProfile,
    providers: &Providers,
) -> Result<Access, AccessError> {
    super::access(reference, profile, providers, false)
}

#[test]
fn server_without_tls_needs_permission() {
    let status = healthy(&json!([{"name": "b", "cluster": {"server": "http://h:8080"}}]));
    let connect = |allows_http| super::access(&reference(), &profile(&status), &file(&json!({})), allows_http);
    assert_eq!(connect(false).unwrap_err().reason, Reason::ServerWithoutTls);
    assert!(connect(true).unwrap().is_unencrypted());
    let secure = super::access(&reference(), &profile(&healthy(&accessor("b"))), &file(&json!({})), true);
    assert!(!secure.unwrap().is_unencrypted());
}

fn reference() -> ClusterProfileReference {
    ClusterProfileReference { name: "spoke".into(), namespace: "fleet".into() }
}

fn profile(status: &Value) -> ClusterProfile {
    serde_json::from_value(json!({"apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ClusterProfile", "metadata": {"name": "spoke"}, "spec": {}, "status": status})).unwrap()
}

fn providers(file: &Value) -> Providers {
    serde_json::from_value(file.clone()).unwrap()
}

fn file(extra: &Value) -> Providers {
    let mut provider = json!({"name": "b", "execConfig": {"apiVersion": "client.authentication.k8s.io/v1", "command": "/p", "args": ["own"], "env": [{"name": "A", "value": "own"}], "provideClusterInfo": true}});
    provider.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    providers(
        &json!({"providers": [{"name": "a", "execConfig": {"apiVersion": "client.authentication.k8s.io/v1", "command": "/a"}}, provider]}),
    )
}

fn healthy(access: &Value) -> Value {
    json!({"conditions": [{"type": "ControlPlaneHealthy", "status": "True"}], "accessProviders": access})
}

fn accessor(name: &str) -> Value {
    json!([{"name": name, "cluster": {"server": "https://h:1", "certificate-authority-data": "QQ==", "extensions": [
        {"name": EXEC_EXTENSION, "extension": {"clusterName": "c"}},
        {"name": ARGS_EXTENSIONS[0], "extension": ["more"]},
        {"name": ENV_EXTENSIONS[0], "extension": {"A": "theirs", "B": "theirs"}},
    ]}}])
}

#[test]
fn each_failure_has_its_reason() {
    let unhealthy = json!({"conditions": [{"type": "ControlPlaneHealthy", "status": "False", "message": "on fire"}]});
    let unknown =
        json!({"conditions": [{"type": "ControlPlaneHealthy", "status": "Unknown"}], "accessProviders": accessor("a")});
    let two = file(&json!({}));
    for (status, providers, reason, part) in [
        (json!({}), &two, Reason::ClusterProfileNotReady, "nor the condition ControlPlaneHealthy"),
        (unknown, &two, Reason::ClusterProfileNotReady, "has ControlPlaneHealthy=Unknown; "),
        (unhealthy, &two, Reason::ClusterProfileNotReady, "on fire"),
        (healthy(&accessor("a")), &Providers::default(), Reason::AccessProviderNotConfigured, "names no provider"),
        (healthy(&json!([])), &two, Reason::ClusterProfileUnavailable, "no status.accessProviders"),
        (healthy(&accessor("z")), &two, Reason::ClusterProfileUnavailable, "knows a, b"),
        (
            healthy(&json!([{"name": "a", "cluster": {"server": "nonsense"}}])),
            &two,
            Reason::RemoteClientCreationFailed,
            "is not a URL",
        ),
        // As KubeFleet publishes it.
        (
            healthy(&json!([{"name": "a", "cluster": {"certificate-authority-data": "QQ=="}}])),
            &two,
            Reason::ClusterProfileUnavailable,
            "access provider a has no server",
        ),
        (
            healthy(&json!([{"name": "a", "cluster": {"server": "http://h:8080"}}])),
            &two,
            Reason::ServerWithoutTls,
            "is not https",
        ),
        (
            healthy(&json!([{"name": "a", "cluster": {"server": "https://h", "certificate-authority-data": "!"}}])),
            &two,
            Reason::RemoteClientCreationFailed,
            "base64",
        ),
        (
            healthy(
                &json!([{"name": "a", "cluster": {"server": "https://h", "certificate-authority": "/etc/ca.crt"}}]),
            ),
            &two,
            Reason::RemoteClientCreationFailed,
            "certificate-authority names a file",
        ),
    ] {
        let error = access(&reference(), &profile(&status), providers).unwrap_err();
        assert_eq!(error.reason, reason, "{error}");
        assert!(error.message.contains(part), "{error}");
    }
}

#[test]
fn builtin_provider_reads_secret_named_by_profile() {
    let own = providers(&json!({"providers": [{"name": "b", "builtin": "secretreader"}]}));
    let source = access(&reference(), &profile(&healthy(&accessor("b"))), &own).unwrap().source;
    assert_eq!(source, CredentialSource::Secret(SecretSource::token("b", "c")));
    let nameless = json!([{"name": "b", "cluster": {"server": "https://h"}}]);
    let error = access(&reference(), &profile(&healthy(&nameless)), &own).unwrap_err();
    assert!(error.reason == Reason::AccessProviderFailed && error.message.contains("clusterName"), "{error}");
    for path in ["../../kube-system/secrets/c", "c/status", "c?watch=1", "c%2F", "C"] {
        let mut invalid = accessor("b");
        invalid[0]["cluster"]["extensions"][0]["extension"]["clusterName"] = json!(path);
        let error = access(&reference(), &profile(&healthy(&invalid)), &own).unwrap_err();
        assert!(error.message.contains("that names no Secret"), "{path}: {error}");
    }
}

#[test]
fn provider_file_decides_order_and_deprecated_field_is_read() {
    let mut both = accessor("b");
    both.as_array_mut().unwrap().extend(accessor("a").as_array().unwrap().clone());
    assert_eq!(access(&reference(), &profile(&healthy(&both)), &file(&json!({}))).unwrap().source.provider(), "a");
    let old = json!({"conditions": [{"type": "ControlPlaneHealthy", "status": "True"}], "credentialProviders": accessor("b")});
    assert_eq!(access(&reference(), &profile(&old), &file(&json!({}))).unwrap().source.provider(), "b");
}

#[test]
fn profile_additions_follow_policies() {
    let plugin =
        |extra: &Value| match access(&reference(), &profile(&healthy(&accessor("b"))), &file(extra)).unwrap().source {
            CredentialSource::Plugin(plugin) => plugin,
            CredentialSource::Secret { .. } => unreachable!("a plugin is configured"),
        };
    let env = |plugin: &Plugin| plugin.env.iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>();
    let ignored = plugin(&json!({}));
    assert_eq!((ignored.args.clone(), env(&ignored)), (vec!["own".to_owned()], vec!["A=own".to_owned()]));
    let appended =
        plugin(&json!({"profileSourcedCLIArgsPolicy": "Append", "profileSourcedEnvVarsPolicy": "AppendIfNotExists"}));
    assert_eq!(
        (appended.args.clone(), env(&appended)),
        (vec!["own".to_owned(), "more".to_owned()], vec!["A=own".to_owned(), "B=theirs".to_owned()])
    );
    assert_eq!(env(&plugin(&json!({"profileSourcedEnvVarsPolicy": "Replace"}))), ["A=theirs", "B=theirs"]);
    assert_eq!(ignored.info["spec"]["cluster"]["config"]["clusterName"], "c");
}

/// What a profile with the access `cluster` means for the operator.
fn access_to(cluster: &Value) -> Access {
    let offered = json!([{"name": "b", "cluster": cluster}]);
    access(&reference(), &profile(&healthy(&offered)), &file(&json!({}))).unwrap()
}

fn plugin_of(access: Access) -> Plugin {
    match access.source {
        CredentialSource::Plugin(plugin) => plugin,
        CredentialSource::Secret { .. } => unreachable!("a plugin is configured"),
    }
}

#[test]
fn profile_without_health_is_used() {
    let two = file(&json!({}));
    for conditions in [json!([]), json!([{"type": "Joined", "status": "False"}])] {
        let status = json!({"conditions": conditions, "accessProviders": accessor("b")});
        assert_eq!(access(&reference(), &profile(&status), &two).unwrap().source.provider(), "b");
    }
    let status = json!({"accessProviders": accessor("b")});
    let mut vouched = status.clone();
    vouched["conditions"] = json!([{"type": "ControlPlaneHealthy", "status": "True"}]);
    let connect = |status: &Value| access(&reference(), &profile(status), &two).unwrap();
    assert_eq!(connect(&status), connect(&vouched), "the connection is the same");
}

#[test]
fn authority_is_base64_or_pem() {
    let pem = "-----BEGIN CERTIFICATE-----\nQQ==\n-----END CERTIFICATE-----\n";
    // A leaf and its authority.
    let chain = [pem, pem].concat();
    let wrapped = BASE64_STANDARD.encode(&chain).chars().enumerate().fold(String::new(), |mut lines, (at, c)| {
        lines.extend((at % 64 == 63).then_some('\n'));
        lines.push(c);
        lines
    });
    for data in [chain.clone(), BASE64_STANDARD.encode(&chain), wrapped] {
        let access = access_to(&json!({"server": "https://h", "certificate-authority-data": data}));
        assert_eq!(access.authority.as_deref(), Some(chain.as_bytes()), "{data}");
        // A plugin gets it as client-go writes it.
        let info = plugin_of(access).info;
        assert_eq!(info["spec"]["cluster"]["certificate-authority-data"], BASE64_STANDARD.encode(&chain));
    }
    let without = access_to(&json!({"server": "https://h", "certificate-authority-data": ""}));
    assert_eq!(without.authority, None);
    assert!(plugin_of(without).info["spec"]["cluster"].get("certificate-authority-data").is_none());
}

#[test]
fn addresses_are_read_as_in_a_kubeconfig() {
    for server in ["https://h:9092/cluster1", "https://[fd00::1]:6443", "https://h/v1/projects/1/locations/l/m"] {
        let access = access_to(&json!({"server": server}));
        assert_eq!(access.server.to_string(), format!("{server}{}", if server.ends_with("6443") { "/" } else { "" }));
        assert_eq!((access.proxy, access.server_name, access.insecure), (None, None, false));
    }
    let access =
        access_to(&json!({"server": "https://h", "tls-server-name": "name", "proxy-url": "socks5://[::1]:1080",
        "insecure-skip-tls-verify": true}));
    assert_eq!((access.server_name.as_deref(), access.insecure), (Some("name"), true));
    assert_eq!(access.proxy.map(|proxy| proxy.url.to_string()).as_deref(), Some("http://[::1]:1080/"));
    let empty = access_to(&json!({"server": "https://h", "tls-server-name": "", "proxy-url": ""}));
    assert_eq!((empty.proxy, empty.server_name), (None, None));
}

#[test]
fn former_names_of_extensions_are_read() {
    let policies = json!({"profileSourcedCLIArgsPolicy": "Append", "profileSourcedEnvVarsPolicy": "Replace"});
    let plugin = |extensions: &Value| {
        let offered = json!([{"name": "b", "cluster": {"server": "https://h", "extensions": extensions}}]);
        plugin_of(access(&reference(), &profile(&healthy(&offered)), &file(&policies)).unwrap())
    };
    let extension = |name: &str, value: Value| json!({"name": name, "extension": value});
    let former =
        [extension(ARGS_EXTENSIONS[1], json!(["former"])), extension(ENV_EXTENSIONS[1], json!({"A": "former"}))];
    let only_former = plugin(&json!(former));
    assert_eq!((only_former.args.join(" ").as_str(), only_former.env["A"].as_str()), ("own former", "former"));
    // With both, the current name counts, once.
    let current =
        [extension(ARGS_EXTENSIONS[0], json!(["current"])), extension(ENV_EXTENSIONS[0], json!({"A": "current"}))];
    let both = plugin(&json!([former, current].concat()));
    assert_eq!((both.args.join(" ").as_str(), both.env["A"].as_str()), ("own current", "current"));
    let mut invalid = accessor("b");
    invalid[0]["cluster"]["extensions"] = json!([extension(ARGS_EXTENSIONS[1], json!("text"))]);
    let error = access(&reference(), &profile(&healthy(&invalid)), &file(&policies)).unwrap_err();
    assert!(error.message.contains(ARGS_EXTENSIONS[1]), "{error}");
}
