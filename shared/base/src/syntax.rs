//! Syntax of names in the Kubernetes API (`k8s.io/apimachinery` validation). Each function returns
//! the violated requirement, if any.

/// Maximum of an `int32` field. Not every API server enforces it.
pub const MAX_INT32: i64 = i32::MAX as i64;

/// A DNS subdomain (RFC 1123): names of most objects.
pub fn subdomain(text: &str) -> Option<&'static str> {
    let is_valid = text.len() <= 253 && text.split('.').all(|label| is_label(label, usize::MAX));
    (!is_valid).then_some(
        "must consist of lower case letters, digits, '-' and '.', begin and end with a letter or digit, and have at most 253 characters",
    )
}

/// A DNS label (RFC 1123): names of namespaces and containers.
pub fn label(text: &str) -> Option<&'static str> {
    (!is_label(text, 63)).then_some(
        "must consist of lower case letters, digits and '-', begin and end with a letter or digit, and have at most 63 characters",
    )
}

fn is_label(text: &str, most: usize) -> bool {
    let end = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let inner = text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    inner && text.len() <= most && end(text.bytes().next()) && end(text.bytes().next_back())
}

fn is_qualified_part(text: &str) -> bool {
    let end = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_alphanumeric());
    let inner = text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
    inner && text.len() <= 63 && end(text.bytes().next()) && end(text.bytes().next_back())
}

/// A qualified name: keys of labels and annotations.
pub fn qualified(text: &str) -> Option<&'static str> {
    let is_valid = match text.split_once('/') {
        Some((prefix, name)) => subdomain(prefix).is_none() && is_qualified_part(name),
        None => is_qualified_part(text),
    };
    (!is_valid).then_some(
        "must be a name of letters, digits, '-', '_' and '.', at most 63 characters long, with an optional DNS prefix and '/' before it",
    )
}

/// The value of a label.
pub fn label_value(text: &str) -> Option<&'static str> {
    (!text.is_empty() && !is_qualified_part(text))
        .then_some("must be empty or consist of letters, digits, '-', '_' and '.', begin and end with a letter or digit, and have at most 63 characters")
}

/// The name of an environment variable that every supported version of Kubernetes accepts (the
/// newest accept more).
pub fn variable(text: &str) -> Option<&'static str> {
    let inner = text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
    (!inner || text.is_empty() || text.starts_with(|c: char| c.is_ascii_digit()))
        .then_some("must consist of letters, digits, '_', '-' and '.', and not begin with a digit")
}

/// A key of a ConfigMap.
pub fn config_key(text: &str) -> Option<&'static str> {
    let inner = text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
    (!inner || text.is_empty() || text.len() > 253 || text == "." || text.starts_with(".."))
        .then_some("must consist of letters, digits, '-', '_' and '.', and have at most 253 characters")
}

/// An image reference (`github.com/distribution/reference`): a path of lower case components, an
/// optional tag and an optional digest.
pub fn image(text: &str) -> Option<&'static str> {
    const INVALID: Option<&str> = Some(
        "must be an image reference such as registry.example/path/name:tag or registry.example/path/name@sha256:…",
    );
    let (rest, digest) = text.split_once('@').map_or((text, None), |(rest, digest)| (rest, Some(digest)));
    if digest.is_some_and(|d| !is_digest(d)) {
        return INVALID;
    }
    let (path, tag) = match rest.rsplit_once(':') {
        // A colon before a slash separates a port.
        Some((path, tag)) if !tag.contains('/') => (path, Some(tag)),
        _ => (rest, None),
    };
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    let is_tag = |tag: &str| {
        tag.len() <= 128 && tag.bytes().next().is_some_and(word) && tag.bytes().all(|b| word(b) || b"-.".contains(&b))
    };
    if tag.is_some_and(|tag| !is_tag(tag)) {
        return INVALID;
    }
    let mut parts: Vec<&str> = path.split('/').collect();
    if parts.len() > 1
        && (parts[0].contains(['.', ':'])
            || parts[0] == "localhost"
            || parts[0].bytes().any(|b| b.is_ascii_uppercase()))
    {
        let host = parts.remove(0);
        if !is_host(host) {
            return INVALID;
        }
    }
    let part = |p: &&str| {
        let end = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        let inner = p.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_.".contains(&b));
        inner && end(p.bytes().next()) && end(p.bytes().next_back())
    };
    if parts.iter().all(part) { None } else { INVALID }
}

fn is_host(text: &str) -> bool {
    let (host, port) = text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port)));
    let is_part = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
            && !part.starts_with('-')
            && !part.ends_with('-')
    };
    host.split('.').all(is_part) && port.is_none_or(|p| !p.is_empty() && p.bytes().all(|b| b.is_ascii_digit()))
}

fn is_digest(text: &str) -> bool {
    let is_word = |word: &str| {
        word.bytes().next().is_some_and(|b| b.is_ascii_alphabetic()) && word.bytes().all(|b| b.is_ascii_alphanumeric())
    };
    text.split_once(':').is_some_and(|(algorithm, hex)| {
        algorithm.split(['+', '.', '-', '_']).all(is_word)
            && hex.len() >= 32
            && hex.bytes().all(|b| b.is_ascii_hexdigit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_references_follow_distribution_syntax() {
        for is_valid in [
            "r/ctl:2",
            "nginx",
            "a.io/b/c",
            "localhost:5000/x:1",
            "a.io:443/b/c_d:v1.2-x",
            "gcr.io/x/y@sha256:0123456789abcdef0123456789abcdef",
            "a/b:t@sha256:0123456789abcdef0123456789abcdef",
            "a@sha512+b64.x3_y-z:0123456789abcdef0123456789abcdef",
            "Registry.Example/x",
            "a/b__c",
        ] {
            assert_eq!(image(is_valid), None, "{is_valid}");
        }
        for wrong in [
            "",
            "a b",
            "a:",
            "/a",
            "a//b",
            "a@",
            "a@sha256:12",
            "a@$(id):0123456789abcdef0123456789abcdef",
            "a@x;id:0123456789abcdef0123456789abcdef",
            "a@x\n:0123456789abcdef0123456789abcdef",
            "a@-x:0123456789abcdef0123456789abcdef",
            "a@:0123456789abcdef0123456789abcdef",
            "A",
            "a/B",
            "a:b c",
            "https://a/b",
            "a/b:$TAG",
            "-a",
            "a/b:tag:tag",
        ] {
            assert!(image(wrong).is_some(), "{wrong}");
        }
    }

    #[test]
    fn names_follow_kubernetes_syntax() {
        assert!(
            subdomain("a.b-c.9").is_none()
                && label("a-1").is_none()
                && qualified("a.io/B_c.d").is_none()
                && label_value("").is_none()
        );
        for wrong in ["", "A", "a..b", "-a", "a_b", "a-"] {
            assert!(subdomain(wrong).is_some() && label(wrong).is_some(), "{wrong}");
        }
        for wrong in ["", "/a", "a/", "a/b/c", "A/b", "a b", "_a"] {
            assert!(qualified(wrong).is_some(), "{wrong}");
        }
        assert!(
            variable("A_b-1.c").is_none()
                && ["", "1A", "A=B", "A B", "Ä"].iter().all(|wrong| variable(wrong).is_some())
        );
        assert!(label_value("a b").is_some() && label(&"x".repeat(64)).is_some());
        assert!(
            config_key("a_B.c-1").is_none()
                && config_key("a/b").is_some()
                && config_key("..").is_some()
                && config_key("").is_some()
        );
    }
}
