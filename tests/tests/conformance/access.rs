//! The same behavior as the Go library `sigs.k8s.io/cluster-inventory-api/pkg/access`: the cases
//! have the inputs of its own tests, `config_test.go` of v0.1.3 (Apache-2.0), which has them in
//! code.
//! Where the behavior differs, the case says so.

use std::io::Write;
use std::path::Path;

use knative_operator_cluster_access::profile::{Access, CredentialSource, Plugin, access};
use knative_operator_cluster_access::provider::{ArgsPolicy, EnvPolicy, ProviderFileError, Providers};
use knative_operator_cluster_access::{AccessError, ClusterProfile, Reason};
use serde_json::{Value, json};

const V1: &str = "client.authentication.k8s.io/v1";
const V1BETA1: &str = "client.authentication.k8s.io/v1beta1";
/// Extension with the configuration of the plugin.
const EXEC: &str = "client.authentication.k8s.io/exec";

fn providers(all: &Value) -> Providers {
    serde_json::from_value(json!({"providers": all})).unwrap()
}

fn profile(status: &Value) -> ClusterProfile {
    let profile = json!({"apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ClusterProfile",
        "metadata": {"name": "test-cluster", "namespace": "fleet"}, "spec": {}, "status": status});
    ClusterProfile::read(&serde_json::from_value(profile).unwrap())
}

fn connect(status: &Value, providers: &Providers) -> Result<Access, AccessError> {
    let profile = profile(status);
    access(&profile.reference(), &profile, providers, false)
}

fn plugin(access: Access) -> Plugin {
    match access.source {
        CredentialSource::Plugin(plugin) => plugin,
        CredentialSource::Secret { .. } => unreachable!("no provider of these tests is built in"),
    }
}

/// The two providers of most of its tests.
fn two() -> Value {
    json!([
        {"name": "test-provider-1",
            "execConfig": {"command": "test-command-1", "args": ["arg1", "arg2"], "apiVersion": V1BETA1}},
        {"name": "test-provider-2",
            "execConfig": {"command": "test-command-2", "args": ["arg3"], "apiVersion": V1BETA1},
            "profileSourcedCLIArgsPolicy": "Append", "profileSourcedEnvVarsPolicy": "Replace"}])
}

/// A profile with two providers that the file has, and one that it lacks.
fn three_offered() -> Value {
    let cluster = |server: &str, authority: &str| json!({"server": server, "certificate-authority-data": authority});
    json!({"accessProviders": [
        {"name": "test-provider-1", "cluster": cluster("https://test-server-1.com", "dGVzdC1jYS1kYXRhLTE=")},
        {"name": "test-provider-2", "cluster": cluster("https://test-server-2.com", "dGVzdC1jYS1kYXRhLTI=")},
        {"name": "unsupported-provider", "cluster": {"server": "https://unsupported-server.com"}}]})
}

/// A profile with additional arguments and variables.
fn with_additions() -> Value {
    let extension = |name: &str, value: Value| json!({"name": name, "extension": value});
    json!({"accessProviders": [{"name": "test-provider-1", "cluster": {
        "server": "https://test-server.com",
        "certificate-authority-data": "dGVzdC1jYS1kYXRh",
        "proxy-url": "http://proxy.example.com",
        "extensions": [
            extension(EXEC, json!("arbitrary-data")),
            extension("clusterprofiles.multicluster.x-k8s.io/exec/additional-args", json!(["--audience", "audience"])),
            extension("clusterprofiles.multicluster.x-k8s.io/exec/additional-envs",
                json!({"CLIENT_ID": "client-id", "TENANT_ID": "tenant-id"})),
        ],
    }}]})
}

#[test]
fn provider_file_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let read = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::File::create(&path).unwrap().write_all(text.as_bytes()).unwrap();
        Providers::read(&path)
    };
    let file = json!({"providers": [{"name": "gkeFleet", "execConfig": {"command": "gke-gcloud-auth-plugin", "args": null,
        "env": null, "apiVersion": V1BETA1, "provideClusterInfo": true, "InteractiveMode": "", "StdinUnavailable": false,
        "StdinUnavailableMessage": ""}}]});
    let read_file = read("test-config.json", &file.to_string()).unwrap();
    let [provider] = &read_file.providers[..] else { unreachable!("one provider: {read_file:?}") };
    let exec = provider.exec_config.as_ref().unwrap();
    assert_eq!((provider.name.as_str(), exec.command.as_str()), ("gkeFleet", "gke-gcloud-auth-plugin"));
    assert!(exec.provide_cluster_info && exec.args.is_none());
    assert_eq!((provider.args_policy, provider.env_policy), (ArgsPolicy::Ignore, EnvPolicy::Ignore));
    assert!(matches!(read("invalid.json", "invalid json content"), Err(ProviderFileError::Parse { .. })));
    assert!(matches!(Providers::read(Path::new("/non-existent.json")), Err(ProviderFileError::Read { .. })));
    assert!(read("empty.json", "{}").unwrap().providers.is_empty());
}

#[test]
fn policies_belong_to_their_provider() {
    let both = providers(&two());
    let policies: Vec<_> = both.providers.iter().map(|provider| (provider.args_policy, provider.env_policy)).collect();
    assert_eq!(policies, [(ArgsPolicy::Ignore, EnvPolicy::Ignore), (ArgsPolicy::Append, EnvPolicy::Replace)]);
    // The Go library reports a policy that it doesn't know when a profile needs it; here, the file
    // is refused.
    for (field, policy) in [("profileSourcedCLIArgsPolicy", "Prepend"), ("profileSourcedEnvVarsPolicy", "Append")] {
        let unknown = json!({"providers": [{"name": "a", field: policy}]});
        assert!(serde_json::from_value::<Providers>(unknown).is_err(), "{field}");
    }
}

#[test]
fn first_provider_of_the_file_is_chosen() {
    let chosen = |file: &Value| connect(&three_offered(), &providers(file)).unwrap();
    let first = chosen(&two());
    assert_eq!(first.server, "https://test-server-1.com/");
    assert_eq!(first.authority.as_deref(), Some(b"test-ca-data-1".as_slice()));
    assert_eq!(first.source.provider(), "test-provider-1");
    let [one, two] = [&two()[0], &two()[1]].map(Value::clone);
    assert_eq!(chosen(&json!([two, one])).server, "https://test-server-2.com/");
}

#[test]
fn profile_without_a_known_provider_is_refused() {
    let other = providers(&json!([{"name": "different-provider", "execConfig": {"command": "cmd1"}}]));
    for (status, file) in [(three_offered(), &other), (with_additions(), &other), (json!({}), &providers(&two()))] {
        let error = connect(&status, file).unwrap_err();
        let expected = [Reason::ClusterProfileUnavailable, Reason::ClusterProfileNotReady];
        assert!(expected.contains(&error.reason), "{error}");
    }
    let no_exec = providers(&json!([{"name": "test-provider-1", "execConfig": null}]));
    assert_eq!(connect(&with_additions(), &no_exec).unwrap_err().reason, Reason::AccessProviderFailed);
}

#[test]
fn additions_of_the_profile_follow_the_policies() {
    let of = |args: &str, variables: &str| {
        let exec = json!({"apiVersion": V1, "command": "cat", "args": ["test-file"],
            "env": [{"name": "CLIENT_ID", "value": "None"}]});
        let file = providers(&json!([{"name": "test-provider-1", "execConfig": exec,
            "profileSourcedCLIArgsPolicy": args, "profileSourcedEnvVarsPolicy": variables}]));
        let access = connect(&with_additions(), &file).unwrap();
        assert_eq!(access.server, "https://test-server.com/");
        assert_eq!(access.authority.as_deref(), Some(b"test-ca-data".as_slice()));
        assert_eq!(access.proxy.as_ref().unwrap().url, "http://proxy.example.com:80/");
        let plugin = plugin(access);
        let variables: Vec<_> = plugin.env.iter().map(|(name, value)| format!("{name}={value}")).collect();
        (plugin.command, plugin.args.join(" "), variables.join(" "))
    };
    let all = "test-file --audience audience";
    for (args, variables, expected_args, expected_variables) in [
        ("Append", "Replace", all, "CLIENT_ID=client-id TENANT_ID=tenant-id"),
        ("Append", "AppendIfNotExists", all, "CLIENT_ID=None TENANT_ID=tenant-id"),
        ("Ignore", "Ignore", "test-file", "CLIENT_ID=None"),
        ("", "", "test-file", "CLIENT_ID=None"),
    ] {
        let expected = ("cat".to_owned(), expected_args.to_owned(), expected_variables.to_owned());
        assert_eq!(of(args, variables), expected, "{args} {variables}");
        // The Go library would append the arguments twice with the same configuration.
        assert_eq!(of(args, variables), expected, "{args} {variables} again");
    }
}

#[test]
fn configuration_of_the_profile_reaches_the_plugin() {
    let file = providers(&json!([{"name": "test-provider-1",
        "execConfig": {"apiVersion": V1, "command": "cat", "provideClusterInfo": true}}]));
    let info = plugin(connect(&with_additions(), &file).unwrap()).info;
    let cluster = &info["spec"]["cluster"];
    assert_eq!((&cluster["config"], &cluster["server"]), (&json!("arbitrary-data"), &json!("https://test-server.com")));
    assert_eq!(cluster["certificate-authority-data"], "dGVzdC1jYS1kYXRh");
    assert_eq!(cluster["proxy-url"], "http://proxy.example.com");
}
