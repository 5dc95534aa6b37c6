//! Removes what looks like a credential from texts of other programs, before they are published in
//! conditions, events and logs. A heuristic: it prefers to hide too much.

/// What replaces a credential.
const HIDDEN: &str = "[hidden]";
/// Minimum length of a run of base64 characters that is hidden.
const MIN_BASE64: usize = 40;
/// Minimum length of a run of hexadecimal digits that is hidden, unless it is a digest.
const MIN_HEX: usize = 32;
/// Length of a value in prose after `token: ` or `secret: ` from which it is hidden.
const MIN_VALUE: usize = 16;
/// Starts of the tokens of widespread services.
const PREFIXES: [&str; 9] = ["AKIA", "ASIA", "ghp_", "gho_", "github_pat_", "glpat-", "xoxb-", "xoxp-", "AIza"];
/// Ends of the names of settings whose value is hidden, without `-` and `_`.
const NAMES: [&str; 12] = [
    "password",
    "passwd",
    "pwd",
    "passphrase",
    "token",
    "secret",
    "apikey",
    "accesskey",
    "secretkey",
    "privatekey",
    "credential",
    "credentials",
];

/// `text` without tokens, passwords, keys and other long random strings. White space between words
/// becomes one space.
pub fn redact(text: &str) -> String {
    let text = without_pem(text);
    let mut out: Vec<String> = Vec::new();
    let mut hides = Hides::Nothing;
    for word in text.split_whitespace() {
        let scheme = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
        // After "Bearer" follows a credential, and after "password: ", too. "basic" is also prose.
        let is_scheme = scheme.eq_ignore_ascii_case("bearer") || scheme.eq_ignore_ascii_case("basic");
        let next = if scheme.eq_ignore_ascii_case("basic") { Hides::IfMixed } else { Hides::Next };
        let shown = match hides {
            Hides::Nothing => word_without_secrets(word),
            _ if is_scheme && word.len() <= "\"Bearer\"".len() => word.to_owned(),
            Hides::IfRandom if !is_random(word) => word_without_secrets(word),
            Hides::IfMixed if !is_mixed(word) => word_without_secrets(word),
            Hides::IfRandom | Hides::IfMixed | Hides::Next => HIDDEN.to_owned(),
        };
        hides = if is_scheme { next } else { after(word) };
        out.push(shown);
    }
    out.join(" ")
}

/// Whether the next word is a credential.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Hides {
    Nothing,
    /// If it looks like a generated value.
    IfRandom,
    /// If it looks like base64.
    IfMixed,
    Next,
}

/// What follows `word`, which may be the name of a setting with its separator.
fn after(word: &str) -> Hides {
    let Some(name) = word.strip_suffix([':', '=']) else { return Hides::Nothing };
    // "failed to read the secret: not found" is prose, "token: 8f2a…" a setting.
    let may_be_prose = word.ends_with(':') && !name.ends_with(['"', '\'']) && !is_password(name);
    match (is_secret_name(name), may_be_prose) {
        (false, _) => Hides::Nothing,
        (true, true) => Hides::IfRandom,
        (true, false) => Hides::Next,
    }
}

/// The letters of a name of a setting, in lower case.
fn letters(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
}

/// Whether `name` is that of a setting with a credential.
fn is_secret_name(name: &str) -> bool {
    let name = letters(name);
    NAMES.iter().any(|end| name.ends_with(end)) || name == "authorization"
}

/// Whether `name` is that of a password, which nobody uses in prose before a colon.
fn is_password(name: &str) -> bool {
    let name = letters(name);
    ["password", "passwd", "pwd", "passphrase"].iter().any(|end| name.ends_with(end))
}

/// Whether `word` looks like a generated value.
fn is_random(word: &str) -> bool {
    let word = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    word.len() >= MIN_VALUE || (word.len() >= 6 && word.chars().any(|c| c.is_ascii_digit()))
}

/// Whether `word` has digits or capitals, as base64 has.
fn is_mixed(word: &str) -> bool {
    word.chars().skip(1).any(|c| c.is_ascii_digit() || c.is_ascii_uppercase() || c == '=')
}

/// `word` without the credentials in it.
fn word_without_secrets(word: &str) -> String {
    let word = without_user(word);
    let word = without_values(&word);
    let mut out = String::with_capacity(word.len());
    let mut rest = word.as_str();
    while !rest.is_empty() {
        let is_part = |c: char| c.is_ascii_alphanumeric() || "+/_=-.".contains(c);
        let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        let (run, tail) = rest.split_at(end);
        out.push_str(if is_credential(run, &out) { HIDDEN } else { run });
        let separator = tail.find(is_part).unwrap_or(tail.len());
        out.push_str(&tail[..separator]);
        rest = &tail[separator..];
    }
    out
}

/// Whether `run` of characters of base64 and JWTs, after `before`, is a credential.
fn is_credential(run: &str, before: &str) -> bool {
    if run.contains("eyJ") && run.len() > 20 || PREFIXES.iter().any(|start| run.starts_with(start) && run.len() >= 16) {
        return true;
    }
    let is_digest = before.ends_with("sha256:") || before.ends_with("sha512:");
    let parts = run.split(['.', '=', '_', '-', '/']);
    if !is_digest && parts.into_iter().any(|part| part.len() >= MIN_HEX && part.chars().all(|c| c.is_ascii_hexdigit()))
    {
        return true;
    }
    run.split('.').any(|part| {
        let has = |of: fn(&char) -> bool| part.chars().any(|c| of(&c));
        // A path has more slashes, and words between them.
        let is_path = part.matches('/').count() * MIN_BASE64 > part.len() * 3;
        part.len() >= MIN_BASE64
            && !is_path
            && has(char::is_ascii_uppercase)
            && has(char::is_ascii_lowercase)
            && has(char::is_ascii_digit)
    })
}

/// `word` without user and password in a URL.
fn without_user(word: &str) -> String {
    let Some((scheme, rest)) = word.split_once("://") else { return word.to_owned() };
    let end = rest.find(['/', '?', '#', '"', '\'']).unwrap_or(rest.len());
    match rest[..end].rfind('@') {
        Some(at) => format!("{scheme}://{HIDDEN}{}", &rest[at..]),
        None => word.to_owned(),
    }
}

/// `word` without the values of settings such as `token=…` and `"password":"…"`.
fn without_values(word: &str) -> String {
    let (mut out, mut rest) = (String::new(), word);
    while let Some(at) = rest.find(['=', ':']) {
        let (name, value) = (&rest[..at], &rest[at + 1..]);
        let start = name.rfind(['&', '?', ',', '{', ';', '(']).map_or(0, |start| start + 1);
        out.push_str(&rest[..=at]);
        rest = value;
        // Where the value ends is found for these only: a text may be nothing but separators.
        if is_secret_name(&name[start..]) && !value.starts_with("//") {
            let end = value.find(['&', ',', '}', ';', ')']).unwrap_or(value.len());
            if end > 0 {
                out.push_str(HIDDEN);
                rest = &value[end..];
            }
        }
    }
    out + rest
}

/// `text` without PEM blocks, the last of which may be incomplete.
fn without_pem(text: &str) -> String {
    const END: &str = "-----END ";
    let (mut out, mut rest) = (String::new(), text);
    while let Some(at) = rest.find("-----BEGIN ") {
        out.push_str(&rest[..at]);
        out.push_str(HIDDEN);
        let block = &rest[at..];
        rest =
            block.find(END).and_then(|end| block[end + END.len()..].split_once("-----")).map_or("", |(_, rest)| rest);
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_hidden() {
        let jwt = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn0.c2ln";
        for (text, expected) in [
            (format!("invalid token {jwt}"), "invalid token [hidden]"),
            (format!("{{\"token\":\"{jwt}\"}}"), "{\"token\":[hidden]}"),
            ("Authorization: Bearer abc123".to_owned(), "Authorization: Bearer [hidden]"),
            ("header \"Basic dXNlcjpwYXNz\" refused".to_owned(), "header \"Basic [hidden] refused"),
            ("login with password=hunter2&user=a".to_owned(), "login with password=[hidden]&user=a"),
            ("DB_PASSWORD: hunter2".to_owned(), "DB_PASSWORD: [hidden]"),
            ("token: 8f2a91cc".to_owned(), "token: [hidden]"),
            ("client-secret=x".to_owned(), "client-secret=[hidden]"),
            ("{\"api_key\": \"k\", \"a\": 1}".to_owned(), "{\"api_key\": [hidden] \"a\": 1}"),
            ("dial amqp://user:pa@ss@host:5672/v".to_owned(), "dial amqp://[hidden]@host:5672/v"),
            (
                "key -----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY----- is bad".to_owned(),
                "key [hidden] is bad",
            ),
            ("cut -----BEGIN PRIVATE KEY-----\nMIIE".to_owned(), "cut [hidden]"),
            ("data c2VjcmV0U2VjcmV0U2VjcmV0U2VjcmV0U2VjcmV0MTIz end".to_owned(), "data [hidden] end"),
            ("id 0123456789abcdef0123456789abcdef".to_owned(), "id [hidden]"),
            ("AKIAIOSFODNN7EXAMPLE refused".to_owned(), "[hidden] refused"),
        ] {
            assert_eq!(redact(&text), expected, "{text}");
        }
    }

    #[test]
    fn time_does_not_grow_with_the_square_of_the_length() {
        let separators = ":".repeat(1 << 20);
        assert_eq!(redact(&separators), separators);
    }

    #[test]
    fn messages_of_kubernetes_stay() {
        let digest = "a".repeat(64);
        for text in [
            "secret \"webhook-certs\" not found",
            "may require authorization: authorization failed: no basic auth credentials",
            "failed to read the secret: not found",
            "couldn't find key token in Secret knative-serving/webhook-certs",
            "dial tcp: lookup registry.example on 10.96.0.10:53: no such host",
            "unexpected status from HEAD request to https://registry.example/v2/a/manifests/v1: 401 Unauthorized",
            "failed to fetch anonymous token: unexpected status: 403 Forbidden",
            "MountVolume.SetUp failed for volume \"kube-api-access-x\" : configmap \"kube-root-ca.crt\" not found",
            "stat /var/lib/kubelet/pods/b2a1f0de-1111-4222-8333-444455556666/volumes/kubernetes.io~secret/a: no such file or directory",
            "gcr.io/knative-releases/knative.dev/serving/cmd/activator",
        ] {
            assert_eq!(redact(text), text);
        }
        let image = format!("registry.example/a@sha256:{digest}");
        assert_eq!(redact(&image), image);
    }
}
