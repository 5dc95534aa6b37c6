use serde_json::{Value, json};

use super::super::cause::groups;
use super::super::identity::ObjectId;
use super::super::pod::EventList;
use super::*;

const NAME: &str = "activator-6f8b9c7d5-x2k4p";
const UID: &str = "b2a1f0de-1111-4222-8333-444455556666";
const IMAGE: &str = "registry.example/knative/activator:v9";
const NOW: &str = "2026-11-26T12:01:00Z";

/// A Pod of the Deployment `activator`, as kubelet writes it, with this status of its container and
/// these fields of its status.
fn pod_with(container: &Value, status: &Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": NAME, "namespace": "knative-serving", "uid": UID, "resourceVersion": "8", "creationTimestamp": "2026-11-26T12:00:00Z",
            "generateName": "activator-6f8b9c7d5-", "labels": {"app": "activator", "pod-template-hash": "6f8b9c7d5"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "activator-6f8b9c7d5", "uid": "r", "controller": true, "blockOwnerDeletion": true}]},
        "spec": {"nodeName": "node-1", "restartPolicy": "Always", "containers": [{"name": "activator", "image": IMAGE, "resources": {"limits": {"cpu": "1", "memory": "600Mi"}}}]},
        "status": {"phase": "Pending", "hostIP": "10.1.0.2", "podIP": "10.0.0.5", "podIPs": [{"ip": "10.0.0.5"}], "qosClass": "Burstable",
            "startTime": "2026-11-26T12:00:00Z", "conditions": [
                {"type": "PodReadyToStartContainers", "status": "True", "lastProbeTime": null, "lastTransitionTime": "2026-11-26T12:00:01Z"},
                {"type": "Initialized", "status": "True", "lastProbeTime": null, "lastTransitionTime": "2026-11-26T12:00:00Z"},
                {"type": "Ready", "status": "False", "lastProbeTime": null, "lastTransitionTime": "2026-11-26T12:00:00Z", "reason": "ContainersNotReady", "message": "containers with unready status: [activator]"},
                {"type": "ContainersReady", "status": "False", "lastProbeTime": null, "lastTransitionTime": "2026-11-26T12:00:00Z", "reason": "ContainersNotReady", "message": "containers with unready status: [activator]"},
                {"type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": "2026-11-26T12:00:00Z"}]}
    });
    if !container.is_null() {
        let mut full = json!({"name": "activator", "image": IMAGE, "imageID": "", "ready": false, "started": false, "restartCount": 0, "lastState": {}});
        full.as_object_mut().unwrap().extend(container.as_object().unwrap().clone());
        pod["status"]["containerStatuses"] = json!([full]);
    }
    pod["status"]
        .as_object_mut()
        .unwrap()
        .extend(status.as_object().into_iter().flatten().map(|(k, v)| (k.clone(), v.clone())));
    pod
}

fn waiting(reason: &str, message: &str) -> Value {
    json!({"state": {"waiting": {"reason": reason, "message": message}}})
}

fn crashed(terminated: &Value) -> Value {
    let message = format!("back-off 40s restarting failed container=activator pod={NAME}_knative-serving({UID})");
    json!({"restartCount": 3, "state": {"waiting": {"reason": "CrashLoopBackOff", "message": message}}, "lastState": {"terminated": terminated}})
}

fn read(pod: Value) -> Pod {
    serde_json::from_value(pod).unwrap()
}

fn cause(pod: Value) -> Option<Cause> {
    of_pod(&read(pod), NOW.parse().unwrap())
}

fn sentence(cause: &Cause) -> String {
    groups([cause].into_iter())[0].sentence()
}

#[test]
fn each_cause_has_a_sentence() {
    let ended = |code: i64, reason: &str, message: &str| json!({"exitCode": code, "reason": reason, "message": message, "startedAt": "2026-11-26T12:00:30Z", "finishedAt": "2026-11-26T12:00:31Z", "containerID": format!("containerd://{}", "a".repeat(64))});
    let not_found =
        format!(r#"failed to pull and unpack image "{IMAGE}": failed to resolve image: {IMAGE}: not found"#);
    let start_error = r#"failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: error during container init: exec: "/ko-app/none": stat /ko-app/none: no such file or directory"#;
    let scheduling = |reason: &str, message: &str| json!({"phase": "Pending", "startTime": null, "conditions": [{"type": "PodScheduled", "status": "False", "reason": reason, "message": message, "lastTransitionTime": "2026-11-26T12:00:00Z"}]});
    let is_running = |started: &str| json!({"started": true, "state": {"running": {"startedAt": started}}});
    for (container, status, expected) in [
        // Images.
        (waiting("ErrImagePull", &format!("rpc error: code = NotFound desc = {not_found}")), Value::Null, format!(r#"cannot pull image "{IMAGE}": not found"#)),
        (
            waiting("ImagePullBackOff", &format!(r#"Back-off pulling image "{IMAGE}": ErrImagePull: rpc error: code = NotFound desc = {not_found}"#)),
            Value::Null,
            format!(r#"cannot pull image "{IMAGE}": not found"#),
        ),
        (
            waiting("ErrImagePull", &format!(r#"failed to pull and unpack image "{IMAGE}": failed to resolve image: failed to do request: Head "https://registry.example/v2/knative/activator/manifests/v9": dial tcp 10.9.9.9:443: connect: connection refused"#)),
            Value::Null,
            format!(r#"cannot pull image "{IMAGE}": failed to do request: Head "https://registry.example/v2/knative/activator/manifests/v9": dial tcp 10.9.9.9:443: connect: connection refused"#),
        ),
        (
            waiting("ErrImagePull", &format!(r#"failed to pull and unpack image "{IMAGE}": failed to resolve image: unexpected status from HEAD request to https://user:secret@registry.example/v2/knative/activator/manifests/v9: 401 Unauthorized"#)),
            Value::Null,
            format!(r#"cannot pull image "{IMAGE}": unexpected status from HEAD request to https://[hidden]@registry.example/v2/knative/activator/manifests/v9: 401 Unauthorized"#),
        ),
        (waiting("ErrImageNeverPull", &format!(r#"Container image "{IMAGE}" is not present with pull policy of Never"#)), Value::Null, format!(r#"cannot pull image "{IMAGE}": it is not on the node, and imagePullPolicy is Never"#)),
        (
            waiting("InvalidImageName", r#"Failed to apply default image tag "UPPER": couldn't parse image name "UPPER": invalid reference format: repository name (library/UPPER) must be lowercase"#),
            Value::Null,
            format!(r#"invalid image name "{IMAGE}""#),
        ),
        // What a container refers to, and how it starts.
        (waiting("CreateContainerConfigError", r#"secret "webhook-certs" not found"#), Value::Null, r#"cannot configure container "activator": secret "webhook-certs" not found"#.into()),
        (
            waiting("CreateContainerConfigError", "couldn't find key token in Secret knative-serving/webhook-certs"),
            Value::Null,
            r#"cannot configure container "activator": couldn't find key token in Secret knative-serving/webhook-certs"#.into(),
        ),
        (
            waiting("CreateContainerConfigError", &format!(r#"container has runAsNonRoot and image will run as root (pod: "{NAME}_knative-serving({UID})", container: activator)"#)),
            Value::Null,
            r#"container "activator" must not run as root: container has runAsNonRoot and image will run as root"#.into(),
        ),
        (
            waiting("CreateContainerConfigError", &format!(r#"container's runAsUser breaks non-root policy (pod: "{NAME}_knative-serving({UID})", container: activator)"#)),
            Value::Null,
            r#"container "activator" must not run as root: container's runAsUser breaks non-root policy"#.into(),
        ),
        (waiting("RunContainerError", start_error), Value::Null, r#"cannot execute the command of container "activator": exec: "/ko-app/none": stat /ko-app/none: no such file or directory"#.into()),
        (crashed(&ended(128, "StartError", start_error)), Value::Null, r#"cannot execute the command of container "activator": exec: "/ko-app/none": stat /ko-app/none: no such file or directory"#.into()),
        (waiting("CreateContainerError", "context deadline exceeded"), Value::Null, r#"cannot start container "activator": context deadline exceeded"#.into()),
        // Ends.
        (crashed(&ended(1, "Error", "")), Value::Null, r#"container "activator" crashes with exit code 1"#.into()),
        (
            crashed(&ended(1, "Error", "2026/11/26 12:00:31 login failed: token=abc123\n")),
            Value::Null,
            r#"container "activator" crashes with exit code 1; last words: "login failed: token=[hidden]""#.into(),
        ),
        (crashed(&ended(139, "Error", "")), Value::Null, r#"container "activator" crashes with exit code 139 (SIGSEGV)"#.into()),
        (crashed(&ended(0, "Completed", "")), Value::Null, r#"container "activator" crashes with exit code 0"#.into()),
        (json!({"state": {"terminated": ended(2, "Error", "")}}), Value::Null, r#"container "activator" crashes with exit code 2"#.into()),
        (crashed(&ended(137, "OOMKilled", "")), Value::Null, r#"container "activator" needs more memory than its limit of 600Mi (OOMKilled)"#.into()),
        (
            json!({"restartCount": 1, "state": {"running": {"startedAt": "2026-11-26T12:00:59Z"}}, "lastState": {"terminated": ended(137, "OOMKilled", "")}}),
            json!({"phase": "Running"}),
            r#"container "activator" needs more memory than its limit of 600Mi (OOMKilled)"#.into(),
        ),
        // Nodes.
        (
            Value::Null,
            scheduling("Unschedulable", "0/1 nodes are available: 1 Insufficient memory. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."),
            "no node fits: 0/1 nodes are available: 1 Insufficient memory".into(),
        ),
        (
            Value::Null,
            scheduling("Unschedulable", "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector. no new claims to deallocate, preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."),
            "no node fits: 0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector".into(),
        ),
        (Value::Null, scheduling("SchedulingGated", "Scheduling is blocked due to non-empty scheduling gates"), "no node fits: Scheduling is blocked due to non-empty scheduling gates".into()),
        (
            Value::Null,
            json!({"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory. Threshold quantity: 100Mi, available: 52104Ki. Container activator was using 500Mi, request is 60Mi, has larger consumption of memory. "}),
            "the node rejected Pods: Evicted: The node was low on resource: memory".into(),
        ),
        (Value::Null, json!({"startTime": null}), r#"the node "node-1" does not respond"#.into()),
        (
            json!({"ready": true, "started": true, "state": {"running": {"startedAt": "2026-11-26T11:00:00Z"}}}),
            json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": "2026-11-26T12:00:00Z"}, {"type": "ContainersReady", "status": "True"}]}),
            r#"the node "node-1" does not respond"#.into(),
        ),
        (waiting("ContainerCreating", ""), Value::Null, r#"the node has not created container "activator" yet"#.into()),
        (is_running("2026-11-26T12:00:30Z"), json!({"phase": "Running"}), r#"container "activator" is not ready"#.into()),
    ] {
        assert_eq!(cause(pod_with(&container, &status)).map(|c| sentence(&c)).as_deref(), Some(expected.as_str()));
    }
}

#[test]
fn healthy_or_new_pod_has_no_cause() {
    let ready = json!({"ready": true, "started": true, "state": {"running": {"startedAt": "2026-11-26T12:00:01Z"}}});
    let is_ready = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}, {"type": "ContainersReady", "status": "True"}]});
    let scheduled = |at: &str| json!({"startTime": at, "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": at}]});
    for (container, status) in [
        (ready, is_ready),
        (waiting("ContainerCreating", ""), scheduled("2026-11-26T12:00:55Z")),
        (json!({"state": {"running": {"startedAt": "2026-11-26T12:00:55Z"}}}), json!({"phase": "Running"})),
        (json!({"state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}), json!({"phase": "Succeeded"})),
    ] {
        assert_eq!(cause(pod_with(&container, &status)), None);
    }
    // The last container of a Job has ended, and the Pod a moment later. That of a Deployment
    // shouldn't end.
    let ended = json!({"state": {"terminated": {"exitCode": 0, "reason": "Completed"}}});
    for (policy, has_cause) in [("OnFailure", false), ("Never", false), ("Always", true)] {
        let mut pod = pod_with(&ended, &json!({"phase": "Running"}));
        pod["spec"]["restartPolicy"] = json!(policy);
        assert_eq!(cause(pod).is_some(), has_cause, "{policy}");
    }
    let mut new = pod_with(&Value::Null, &json!({"startTime": null, "conditions": []}));
    new["spec"]["nodeName"] = Value::Null;
    new["spec"].as_object_mut().unwrap().remove("nodeName");
    new["metadata"]["creationTimestamp"] = json!("2026-11-26T12:00:55Z");
    assert_eq!(cause(new), None);
}

#[test]
fn log_is_that_of_the_container_that_ended() {
    let ended = json!({"exitCode": 1, "reason": "Error"});
    for (container, status, expected) in [
        (crashed(&ended), Value::Null, Needs { log: true, previous: true, events: false }),
        (json!({"state": {"terminated": ended}}), Value::Null, Needs { log: true, previous: false, events: false }),
        (
            crashed(&json!({"exitCode": 137, "reason": "Error"})),
            Value::Null,
            Needs { log: true, previous: true, events: true },
        ),
        (
            crashed(&json!({"exitCode": 1, "reason": "Error", "message": "no"})),
            Value::Null,
            Needs { log: false, previous: true, events: false },
        ),
        (
            json!({"state": {"terminated": ended}}),
            json!({"phase": "Failed"}),
            Needs { log: true, previous: false, events: false },
        ),
    ] {
        assert_eq!(cause(pod_with(&container, &status)).unwrap().needs, expected);
    }
}

#[test]
fn events_tell_more() {
    let event = |reason: &str, message: &str, time: &str| json!({"reason": reason, "message": message, "type": "Warning", "eventTime": null, "lastTimestamp": time});
    let creation = || cause(pod_with(&waiting("ContainerCreating", ""), &Value::Null)).unwrap();
    let unready = || {
        cause(pod_with(
            &json!({"state": {"running": {"startedAt": "2026-11-26T12:00:30Z"}}}),
            &json!({"phase": "Running"}),
        ))
        .unwrap()
    };
    let killed = || cause(pod_with(&crashed(&json!({"exitCode": 143, "reason": "Error"})), &Value::Null)).unwrap();
    for (cause, events, expected) in [
        (
            creation(),
            vec![
                event(
                    "FailedMount",
                    r#"MountVolume.SetUp failed for volume "certs" : secret "webhook-certs" not found"#,
                    "2026-11-26T12:00:40Z",
                ),
                event("Pulling", "x", "2026-11-26T12:00:50Z"),
            ],
            r#"the node has not created container "activator" yet; FailedMount: MountVolume.SetUp failed for volume "certs" : secret "webhook-certs" not found"#,
        ),
        (
            creation(),
            vec![event(
                "FailedCreatePodSandBox",
                &format!(
                    r#"Failed to create pod sandbox: rpc error: code = Unknown desc = failed to setup network for sandbox "{}": plugin type="bridge" failed (add): no IPs"#,
                    "0f".repeat(32)
                ),
                "2026-11-26T12:00:40Z",
            )],
            r#"the node has not created container "activator" yet; FailedCreatePodSandBox: failed to setup network for sandbox "[hidden]": plugin type="bridge" failed (add): no IPs"#,
        ),
        (
            creation(),
            vec![event("Pulling", r#"Pulling image "a""#, "2026-11-26T12:00:40Z")],
            r#"the node has not created container "activator" yet; its last step: Pulling image "a""#,
        ),
        (creation(), vec![], r#"the node has not created container "activator" yet"#),
        (
            unready(),
            vec![
                event(
                    "Unhealthy",
                    r#"Readiness probe failed: Get "http://10.0.0.5:8080/healthz": dial tcp 10.0.0.5:8080: connect: connection refused"#,
                    "2026-11-26T12:00:40Z",
                ),
                event(
                    "Unhealthy",
                    "Readiness probe failed: HTTP probe failed with statuscode: 503",
                    "2026-11-26T12:00:50Z",
                ),
            ],
            r#"container "activator" is not ready; readiness probe: HTTP probe failed with statuscode: 503"#,
        ),
        (
            killed(),
            vec![event(
                "Unhealthy",
                "Liveness probe failed: HTTP probe failed with statuscode: 500",
                "2026-11-26T12:00:50Z",
            )],
            r#"container "activator" crashes with exit code 143 (SIGTERM); liveness probe: HTTP probe failed with statuscode: 500"#,
        ),
    ] {
        let events: EventList = serde_json::from_value(json!({"items": events})).unwrap();
        let pod = read(pod_with(&Value::Null, &Value::Null));
        let extra = from_events(&cause, &pod, &events.items);
        assert_eq!(sentence(&Cause { extra, ..cause }), expected);
    }
    let refused = json!({"items": [event("FailedCreate", r#"create Pod b-0 in StatefulSet b failed error: pods "b-0" is forbidden: exceeded quota: none, requested: pods=1, used: pods=0, limited: pods=0"#, "2026-11-26T12:00:50Z")]});
    let events: EventList = serde_json::from_value(refused).unwrap();
    let refused = from_events_of_workload(&events.items).unwrap();
    assert_eq!(
        sentence(&refused),
        "Pods are refused: exceeded quota: none, requested: pods=1, used: pods=0, limited: pods=0"
    );
}

#[test]
fn newest_template_of_workload_counts() {
    let pods = |pods: Vec<Value>| pods.into_iter().map(read).collect::<Vec<_>>();
    let of = |kind: &str, name: &str, pods: &[Pod]| {
        let id = ObjectId::new("apps", kind, "knative-serving", name);
        of_workload(&id, pods, NOW.parse().unwrap()).map(|(cause, _)| sentence(&cause))
    };
    let new = pod_with(&waiting("ErrImagePull", "no such host"), &Value::Null);
    let mut old = pod_with(&crashed(&json!({"exitCode": 1, "reason": "Error"})), &Value::Null);
    old["metadata"]["creationTimestamp"] = json!("2026-11-20T12:00:00Z");
    old["metadata"]["ownerReferences"][0] =
        json!({"kind": "ReplicaSet", "name": "activator-aaaa", "uid": "o", "controller": true});
    old["metadata"]["labels"]["pod-template-hash"] = json!("aaaa");
    let both = pods(vec![old.clone(), new]);
    assert_eq!(of("Deployment", "activator", &both), Some(format!(r#"cannot pull image "{IMAGE}": no such host"#)));
    // An evicted Pod stays, and another one is in its place.
    let mut evicted = pod_with(&Value::Null, &json!({"phase": "Failed", "reason": "Evicted", "message": "low"}));
    let starting = waiting("ContainerCreating", "");
    let mut starting = pod_with(&starting, &json!({"conditions": []}));
    starting["status"]["startTime"] = json!("2026-11-26T12:00:55Z");
    assert_eq!(of("Deployment", "activator", &pods(vec![evicted.clone(), starting])), None);
    evicted["metadata"]["name"] = json!("activator-6f8b9c7d5-other");
    assert_eq!(of("Deployment", "activator", &pods(vec![evicted])).unwrap(), "the node rejected Pods: Evicted: low");
    // Others have similar names.
    assert_eq!(of("Deployment", "activator-6f8b9c7d5", &both), None);
    assert_eq!(of("StatefulSet", "activator", &both), None);
    old["metadata"]["deletionTimestamp"] = json!("2026-11-26T12:10:00Z");
    let ending = pods(vec![old.clone()]);
    assert_eq!(
        of("Deployment", "activator", &ending).unwrap(),
        "former Pods drain until 2026-11-26T12:10:00Z at the latest"
    );
    old["metadata"]["ownerReferences"][0] = json!({"kind": "Job", "name": "migrate", "uid": "j", "controller": true});
    old["metadata"].as_object_mut().unwrap().remove("deletionTimestamp");
    old["status"]["phase"] = json!("Failed");
    let job = pods(vec![old]);
    assert_eq!(of("Job", "migrate", &job).unwrap(), r#"container "activator" failed with exit code 1"#);
}
