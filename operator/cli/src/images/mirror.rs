//! Names of images in a mirror.

use std::str::FromStr;

use knative_operator_shared::syntax;

/// Docker's registry, which references without a host mean.
const DOCKER: &str = "docker.io";
/// Maximum length of a tag.
const MAX_TAG: usize = 128;

/// A registry with copies of images, and the path below which it has them, such as
/// `registry.example.com/knative`. Each image keeps its own registry and path below it, so that no
/// two images have the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mirror(String);

/// A text names no mirror.
#[derive(Debug, thiserror::Error)]
#[error("write it as registry.example.com/path, without a scheme, a tag and a slash at the end")]
pub struct InvalidMirror;

impl FromStr for Mirror {
    type Err = InvalidMirror;

    fn from_str(text: &str) -> Result<Self, InvalidMirror> {
        let (host, _) = text.split_once('/').unwrap_or((text, ""));
        if is_host(host) && syntax::image(&format!("{text}/name")).is_none() {
            return Ok(Self(text.to_owned()));
        }
        Err(InvalidMirror)
    }
}

impl std::fmt::Display for Mirror {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl Mirror {
    /// Whether `image` is in the mirror already.
    pub fn has(&self, image: &str) -> bool {
        image.strip_prefix(&self.0).is_some_and(|rest| rest.starts_with('/'))
    }

    /// The name of `image`, a valid reference, in the mirror: by its digest, if it has one.
    pub fn name(&self, image: &str) -> String {
        if self.has(image) {
            return image.to_owned();
        }
        let reference = Reference::of(image);
        match reference.digest {
            Some(digest) => format!("{}@{digest}", self.repository(&reference)),
            None => format!("{}:{}", self.repository(&reference), reference.tag()),
        }
    }

    /// The name with which `image`, a valid reference, is pushed to the mirror. It has a tag also
    /// for an image by digest, because registries may delete what has none. The tag is the digest,
    /// so that one version of an image never replaces another.
    pub fn target(&self, image: &str) -> String {
        let reference = Reference::of(image);
        let digest = reference.digest.and_then(|digest| digest.split_once(':'));
        let tag = digest.map_or(reference.tag(), |(_, hex)| hex.get(..MAX_TAG).unwrap_or(hex));
        format!("{}:{tag}", self.repository(&reference))
    }

    fn repository(&self, reference: &Reference<'_>) -> String {
        // A path has no colon, and a host has no underscore.
        format!("{}/{}/{}", self.0, reference.host.replace(':', "_"), reference.path)
    }
}

/// The name with which `image`, a valid reference, is pulled: without a tag if it has a digest,
/// because not every program accepts both.
pub fn source(image: &str) -> String {
    let Some((name, digest)) = image.split_once('@') else { return image.to_owned() };
    format!("{}@{digest}", split_tag(name).0)
}

/// The registry of `image`.
pub fn registry_of(image: &str) -> String {
    Reference::of(image).host
}

/// The digest of `image`, if it has one.
pub fn digest(image: &str) -> Option<&str> {
    Some(image.split_once('@')?.1)
}

/// The parts of a valid reference.
struct Reference<'i> {
    host: String,
    path: String,
    tag: Option<&'i str>,
    digest: Option<&'i str>,
}

impl<'i> Reference<'i> {
    fn of(image: &'i str) -> Self {
        let (name, digest) = image.split_once('@').map_or((image, None), |(name, digest)| (name, Some(digest)));
        let (name, tag) = split_tag(name);
        let (host, path) = name.split_once('/').filter(|(host, _)| is_host(host)).unwrap_or((DOCKER, name));
        let host = if host == "index.docker.io" { DOCKER.to_owned() } else { host.to_ascii_lowercase() };
        let is_official = host == DOCKER && !path.contains('/');
        let path = if is_official { format!("library/{path}") } else { path.to_owned() };
        Self { host, path, tag, digest }
    }

    fn tag(&self) -> &'i str {
        self.tag.unwrap_or("latest")
    }
}

/// A name and its tag. A colon before a slash separates a port.
fn split_tag(name: &str) -> (&str, Option<&str>) {
    match name.rsplit_once(':') {
        Some((path, tag)) if !tag.contains('/') => (path, Some(tag)),
        _ => (name, None),
    }
}

/// Whether the first part of a reference is a host, as Docker tells them from paths.
fn is_host(part: &str) -> bool {
    part.contains(['.', ':']) || part == "localhost" || part.bytes().any(|b| b.is_ascii_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mirror() -> Mirror {
        "mirror.example:5000/knative".parse().unwrap()
    }

    #[test]
    fn images_keep_their_path_below_the_mirror() {
        let hex = "0123456789abcdef0123456789abcdef";
        let cases: [[&str; 4]; 8] = [
            ["gcr.io/a/queue:v1", "gcr.io/a/queue:v1", "gcr.io/a/queue:v1", "gcr.io/a/queue:v1"],
            ["gcr.io/a/queue", "gcr.io/a/queue:latest", "gcr.io/a/queue:latest", "gcr.io/a/queue"],
            [
                &format!("gcr.io/a/queue@sha256:{hex}"),
                &format!("gcr.io/a/queue@sha256:{hex}"),
                &format!("gcr.io/a/queue:{hex}"),
                &format!("gcr.io/a/queue@sha256:{hex}"),
            ],
            [
                &format!("a.io:80/queue:v1@sha256:{hex}"),
                &format!("a.io_80/queue@sha256:{hex}"),
                &format!("a.io_80/queue:{hex}"),
                &format!("a.io:80/queue@sha256:{hex}"),
            ],
            ["nginx", "docker.io/library/nginx:latest", "docker.io/library/nginx:latest", "nginx"],
            [
                "envoyproxy/envoy:v1",
                "docker.io/envoyproxy/envoy:v1",
                "docker.io/envoyproxy/envoy:v1",
                "envoyproxy/envoy:v1",
            ],
            [
                "index.docker.io/nginx:1",
                "docker.io/library/nginx:1",
                "docker.io/library/nginx:1",
                "index.docker.io/nginx:1",
            ],
            ["Registry.Example/x:1", "registry.example/x:1", "registry.example/x:1", "Registry.Example/x:1"],
        ];
        for [image, name, target, pulled] in cases {
            assert_eq!(mirror().name(image), format!("mirror.example:5000/knative/{name}"), "{image}");
            assert_eq!(mirror().target(image), format!("mirror.example:5000/knative/{target}"), "{image}");
            assert_eq!(syntax::image(&mirror().target(image)), None, "{image}");
            assert_eq!(source(image), pulled, "{image}");
        }
        let long = format!("a.io/b@sha512:{}", hex.repeat(8));
        assert_eq!(syntax::image(&mirror().target(&long)), None);
    }

    #[test]
    fn no_two_images_share_a_name() {
        let hex = "0123456789abcdef0123456789abcdef";
        let images =
            ["a.io/x/receive_adapter", "a.io/y/receive_adapter", "b.io/x/receive_adapter", "a.io:1/x/receive_adapter"];
        let mut names: Vec<String> =
            images.iter().map(|image| mirror().name(&format!("{image}@sha256:{hex}"))).collect();
        names.extend(images.iter().map(|image| mirror().name(&format!("{image}:v1"))));
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 2 * images.len());
    }

    #[test]
    fn images_of_the_mirror_keep_their_name() {
        let inside = "mirror.example:5000/knative/gcr.io/a:1";
        assert!(mirror().has(inside) && mirror().name(inside) == inside);
        assert!(!mirror().has("mirror.example:5000/knative2/a:1"));
    }

    #[test]
    fn mirrors_are_hosts_with_a_path() {
        for mirror in ["a.io", "a.io/b/c", "localhost:5000", "localhost/x"] {
            assert!(mirror.parse::<Mirror>().is_ok(), "{mirror}");
        }
        for wrong in
            ["", "team", "team/knative", "https://a.io/b", "a.io/b/", "a.io/b:1", "a.io/B", "a.io/b c", "a.io/b;x"]
        {
            assert!(wrong.parse::<Mirror>().is_err(), "{wrong}");
        }
    }
}
