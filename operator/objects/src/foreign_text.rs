//! Texts of kubelets, registries and containers, as a part of a message: short, on one line,
//! without credentials, and the same for each replica and restart. Pure.

use knative_operator_shared::redact::redact;
use knative_operator_shared::text::{clip, one_line, start};
use serde_json::Value;

use super::pod::Pod;

/// Maximum length of a text in bytes.
const MAX_TEXT: usize = 300;
/// Maximum length of a text that is read, in bytes: of a log, of a termination message.
const MAX_READ: usize = 32 << 10;
/// Maximum length of an error that is read, in bytes.
const MAX_ERROR: usize = 4 << 10;
/// What stands in for the name of a Pod, and for its address.
const POD: &str = "POD";

/// What kubelets and container runtimes put before the cause of an error.
const PREFIXES: [&str; 11] = [
    "Failed to create pod sandbox: ",
    "rpc error: code = ",
    "failed to create containerd task: ",
    "failed to create shim task: ",
    "OCI runtime create failed: ",
    "runc create failed: ",
    "unable to start container process: ",
    "error during container init: ",
    "failed to start container ",
    "Error: ",
    "error: ",
];

/// `text` about `pod`, of a kubelet.
pub fn tidy(text: &str, pod: &Pod) -> String {
    let mut text = start(text, MAX_READ).to_owned();
    // (pod: "NAME_NAMESPACE(UID)", container: NAME) and pod=NAME_NAMESPACE(UID)
    if let Some(at) = text.find(" (pod: \"") {
        let end =
            text[at..].find(", container: ").and_then(|comma| text[at + comma..].find(')').map(|e| at + comma + e));
        text.replace_range(at..end.map_or(text.len(), |end| end + 1), "");
    }
    for (own, stands_in) in [(&pod.metadata.name, POD), (&pod.metadata.uid, "UID"), (&pod.status.pod_ip, POD)] {
        if !own.is_empty() {
            text = text.replace(own.as_str(), stands_in);
        }
    }
    bounded(&plain(&text))
}

/// The cause in `text`, an error of a container runtime.
pub fn runtime_error(text: &str, pod: &Pod) -> String {
    let mut text = start(text, MAX_ERROR);
    loop {
        let before = text;
        for prefix in PREFIXES {
            text = text.trim_start().strip_prefix(prefix).unwrap_or(text);
        }
        // "Unknown desc = ", "NotFound desc = "
        if let Some((code, rest)) = text.split_once(" desc = ")
            && code.chars().all(char::is_alphanumeric)
        {
            text = rest;
        }
        // "failed to start container \"ID\": "
        if let Some((id, rest)) = text.split_once(": ")
            && id.trim_matches('"').len() == 64
        {
            text = rest;
        }
        if text == before {
            break;
        }
    }
    tidy(text.trim_end().trim_end_matches(": unknown"), pod)
}

/// Why `image` can't be pulled, from `message` of a kubelet: what the registry or the network says.
pub fn pull_error(message: &str, image: &str, pod: &Pod) -> String {
    let quoted = format!("\"{image}\"");
    let mut text = start(message, MAX_ERROR);
    // Back-off pulling image "IMAGE": ErrImagePull: …, from Kubernetes 1.32 on.
    if let Some(rest) = text.strip_prefix("Back-off pulling image ") {
        text = rest.split_once(&quoted).map_or("", |(_, rest)| rest);
    }
    text = text.strip_prefix("Failed to pull image ").map_or(text, |rest| rest.trim_start_matches(quoted.as_str()));
    loop {
        let before = text;
        text = text.trim_start_matches(':').trim_start();
        for prefix in ["ErrImagePull: ", "RegistryUnavailable: ", "ImageInspectError: ", "rpc error: code = "] {
            text = text.strip_prefix(prefix).unwrap_or(text);
        }
        if let Some((code, rest)) = text.split_once(" desc = ")
            && code.chars().all(char::is_alphanumeric)
        {
            text = rest;
        }
        for start in [
            "failed to pull and unpack image ",
            "failed to resolve reference ",
            "failed to resolve image",
            "initializing source ",
        ] {
            if let Some(rest) = text.strip_prefix(start) {
                // The name of the image, in full.
                text = rest.split_once(": ").map_or("", |(_, rest)| rest);
            }
        }
        // `registry/image:tag: not found`
        if let Some((name, rest)) = text.split_once(": ")
            && !name.contains(' ')
            && (name == image || name.contains('/') && name.ends_with(image.rsplit('/').next().unwrap_or(image)))
        {
            text = rest;
        }
        if text == before {
            break;
        }
    }
    tidy(text.trim_end(), pod)
}

/// The scheduler's sentence, without its thoughts about preemption.
pub fn scheduler_text(message: &str, pod: &Pod) -> String {
    let sentence = [" no new claims to deallocate", " preemption:"]
        .iter()
        .fold(message, |sentence, end| sentence.split(end).next().unwrap_or(sentence));
    tidy(sentence.trim_end().trim_end_matches(['.', ',']), pod)
}

/// The last words of a container, from the end of its log: its panic or last message; empty if
/// there is none.
pub fn last_words(log: &str, pod: &Pod) -> String {
    let lines: Vec<&str> =
        start(log, MAX_READ).lines().map(str::trim_end).filter(|line| !line.trim().is_empty()).collect();
    let is_panic =
        |line: &&&str| ["panic: ", "fatal error: ", "Exception in thread"].iter().any(|p| line.starts_with(p));
    // Stack traces of Go and Java follow the message.
    let is_trace = |line: &str| {
        line.starts_with(['\t', ' ']) && (line.contains(".go:") || line.trim_start().starts_with("at "))
            || line.starts_with("goroutine ")
            || (line.ends_with(')') && line.contains('(') && !line.contains(' '))
    };
    let line = lines.iter().find(is_panic).or_else(|| lines.iter().rev().find(|line| !is_trace(line)));
    let words = line.map(|line| message_of(line)).unwrap_or_default();
    tidy(&words, pod).replace(['"', '\\'], "'")
}

/// The message in a line of a log, without its time and place.
fn message_of(line: &str) -> String {
    if let Ok(Value::Object(fields)) = serde_json::from_str::<Value>(line.trim()) {
        let field = |names: &[&str]| names.iter().find_map(|name| fields.get(*name)?.as_str()).unwrap_or_default();
        let (message, error) = (field(&["message", "msg"]), field(&["error", "err"]));
        let text = match (message, error) {
            (message, "") => message.to_owned(),
            ("", error) => error.to_owned(),
            (message, error) if message.contains(error) => message.to_owned(),
            (message, error) => format!("{}: {error}", message.trim_end_matches([':', ' '])),
        };
        if !text.is_empty() {
            return text;
        }
    }
    // klog: `E1126 00:31:13.123456       1 main.go:12] message`
    if let Some((head, message)) = line.split_once("] ")
        && head.len() > 20
        && head.starts_with(['I', 'W', 'E', 'F'])
        && head[1..].starts_with(|c: char| c.is_ascii_digit())
    {
        return message.to_owned();
    }
    let is_time = |word: &str| {
        word.starts_with(|c: char| c.is_ascii_digit())
            && word.matches([':', '/', '-']).count() >= 2
            && word.chars().all(|c| c.is_ascii_digit() || "-/:.,TZ+[]".contains(c))
    };
    let mut rest = line.trim_start();
    while let Some((word, after)) = rest.split_once(char::is_whitespace)
        && is_time(word.trim_matches(['[', ']']))
    {
        rest = after.trim_start();
    }
    rest.to_owned()
}

/// `text`, a name that a cluster gives, which may be anything.
pub fn name(text: &str) -> String {
    bounded(&without_controls(text))
}

/// `text` on one line, without credentials and control characters.
fn plain(text: &str) -> String {
    redact(&without_controls(text))
}

/// `text` on one line, without control characters.
fn without_controls(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            // Colors of terminals: ESC [ … letter.
            '\u{1b}' if chars.peek() == Some(&'[') => {
                chars.next();
                while chars.next().is_some_and(|c| !c.is_ascii_alphabetic()) {}
            }
            c if c.is_whitespace() => shown.push(' '),
            c if c.is_control()
                || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}') =>
                {}
            c => shown.push(c),
        }
    }
    one_line(&shown)
}

fn bounded(text: &str) -> String {
    clip(text, MAX_TEXT).trim_end_matches(['.', ' ']).to_owned()
}

/// Whether `a` and `b` differ in numbers only.
pub fn is_same_but_numbers(a: &str, b: &str) -> bool {
    masked(a) == masked(b)
}

/// `text` with one mark for each run of letters and digits that has a digit.
fn masked(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for word in text.split_inclusive(|c: char| !c.is_ascii_alphanumeric()) {
        let end = word.trim_end_matches(|c: char| !c.is_ascii_alphanumeric()).len();
        let (name, separator) = word.split_at(end);
        out.push_str(if name.chars().any(|c| c.is_ascii_digit()) { "#" } else { name });
        out.push_str(separator);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod() -> Pod {
        let mut pod = Pod::default();
        pod.metadata.name = "activator-6f8b9c7d5-x2k4p".to_owned();
        pod.metadata.uid = "b2a1f0de-1111-4222-8333-444455556666".to_owned();
        pod.status.pod_ip = "10.0.0.5".to_owned();
        pod
    }

    #[test]
    fn registry_message_remains_of_pull_error() {
        let image = "registry.example/knative/activator:v9";
        for (message, expected) in [
            (
                r#"rpc error: code = NotFound desc = failed to pull and unpack image "registry.example/knative/activator:v9": failed to resolve reference "registry.example/knative/activator:v9": registry.example/knative/activator:v9: not found"#,
                "not found",
            ),
            (
                r#"Back-off pulling image "registry.example/knative/activator:v9": ErrImagePull: rpc error: code = NotFound desc = failed to pull and unpack image "registry.example/knative/activator:v9": failed to resolve image: registry.example/knative/activator:v9: not found"#,
                "not found",
            ),
            (r#"Back-off pulling image "registry.example/knative/activator:v9""#, ""),
            (
                r#"failed to pull and unpack image "registry.example/knative/activator:v9": failed to resolve reference "registry.example/knative/activator:v9": failed to do request: Head "https://registry.example/v2/knative/activator/manifests/v9": dial tcp: lookup registry.example on 10.96.0.10:53: no such host"#,
                r#"failed to do request: Head "https://registry.example/v2/knative/activator/manifests/v9": dial tcp: lookup registry.example on 10.96.0.10:53: no such host"#,
            ),
            (
                r#"Failed to pull image "registry.example/knative/activator:v9": rpc error: code = Unknown desc = failed to pull and unpack image "registry.example/knative/activator:v9": failed to resolve reference "registry.example/knative/activator:v9": pull access denied, repository does not exist or may require authorization: authorization failed: no basic auth credentials"#,
                "pull access denied, repository does not exist or may require authorization: authorization failed: no basic auth credentials",
            ),
        ] {
            assert_eq!(pull_error(message, image, &pod()), expected);
        }
    }

    #[test]
    fn cause_remains_of_runtime_error() {
        for (text, expected) in [
            (
                r#"failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: error during container init: exec: "/nope": stat /nope: no such file or directory: unknown"#,
                r#"exec: "/nope": stat /nope: no such file or directory"#,
            ),
            (
                r#"container has runAsNonRoot and image will run as root (pod: "activator-6f8b9c7d5-x2k4p_knative-serving(b2a1f0de-1111-4222-8333-444455556666)", container: activator)"#,
                "container has runAsNonRoot and image will run as root",
            ),
            (
                "rpc error: code = Unknown desc = failed to generate spec: no command specified",
                "failed to generate spec: no command specified",
            ),
        ] {
            assert_eq!(runtime_error(text, &pod()), expected);
        }
    }

    #[test]
    fn last_words_are_the_message_without_its_time() {
        for (log, expected) in [
            (
                "2026-11-26T00:31:13Z starting\n2026/11/26 00:31:14 listen tcp :8080: bind: address already in use\n",
                "listen tcp :8080: bind: address already in use",
            ),
            ("E1126 00:31:13.123456       1 main.go:12] \"cannot start\" err=\"no\"\n", "'cannot start' err='no'"),
            (
                r#"{"severity":"INFO","timestamp":"2026-11-26T00:31:13Z","message":"start"}
{"severity":"EMERGENCY","timestamp":"2026-11-26T00:31:14.5Z","logger":"activator","caller":"activator/main.go:140","message":"Failed to construct network config","commit":"abc","error":"configmap \"config-network\" not found","stacktrace":"main.main\n\t/src/main.go:1"}"#,
                "Failed to construct network config: configmap 'config-network' not found",
            ),
            (
                "starting\npanic: runtime error: index out of range [3]\n\ngoroutine 1 [running]:\nmain.main()\n\t/src/main.go:10 +0x1d\nexit status 2\n",
                "panic: runtime error: index out of range [3]",
            ),
            (
                "\u{1b}[31mERROR\u{1b}[0m login failed: password=hunter2\u{7}\n\n",
                "ERROR login failed: password=[hidden]",
            ),
            ("cannot bind 10.0.0.5:80 in activator-6f8b9c7d5-x2k4p", "cannot bind POD:80 in POD"),
            ("\n \n", ""),
        ] {
            assert_eq!(last_words(log, &pod()), expected);
        }
        assert!(last_words(&"word ".repeat(10_000), &pod()).len() <= MAX_TEXT);
    }

    #[test]
    fn name_is_short_and_plain() {
        let tag = format!("registry.example/a:{}", "0f".repeat(20));
        assert_eq!(name(&tag), tag);
        assert_eq!(name("a\u{1b}[2Jb\n\u{202e}c"), "ab c");
        assert!(name(&"x ".repeat(10_000)).len() <= MAX_TEXT);
    }

    #[test]
    fn texts_that_differ_in_numbers_are_the_same() {
        assert!(is_same_but_numbers("retry 3 of 10 in 7.5s", "retry 4 of 10 in 15.25s"));
        assert!(is_same_but_numbers("goroutine 0x1d", "goroutine 0x2f"));
        assert!(!is_same_but_numbers("no route", "no host"));
    }
}
