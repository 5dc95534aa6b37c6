//! The images of installations, with their places, as they are printed.

use std::collections::BTreeMap;

use knative_operator_objects::ObjectId;
use knative_operator_shared::syntax;
use knative_operator_shared::text::one_line;
use serde::Serialize;
use serde_json::{Value, json};

use super::mirror::{self, Mirror};
use super::settings::Found;

/// Why an image can't be listed or copied; with its name.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct InvalidImage(String);

/// Images, each once, with their places.
#[derive(Debug, Default)]
pub struct Listing(BTreeMap<String, Vec<Place>>);

/// Where an image is.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Place {
    /// Kind and name of the custom resource, or the chart.
    of: String,
    /// Kind of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    kind: String,
    /// Namespace of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    namespace: String,
    /// Name of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    name: String,
    /// JSON pointer in the object, or the value of the chart.
    path: String,
}

impl Listing {
    /// Adds the images of `objects`, which the custom resource `of` installs. Fails if one can't be
    /// pulled.
    pub fn add(&mut self, of: &str, objects: &[Found]) -> Result<(), InvalidImage> {
        for found in objects {
            let id = ObjectId::of(&found.object);
            for place in &found.places {
                if let Some(wrong) = syntax::image(&place.image) {
                    let why = format!("{of}: {id}: {}: \"{}\" {wrong}", place.path, place.image);
                    return Err(InvalidImage(one_line(&why)));
                }
                let (of, path) = (of.to_owned(), place.path.clone());
                let (kind, namespace, name) = (id.kind.clone(), id.namespace.clone(), id.name.clone());
                self.0.entry(place.image.clone()).or_default().push(Place { of, kind, namespace, name, path });
            }
        }
        Ok(())
    }

    /// Adds `image`, which the chart has as the value `path`.
    pub fn add_of_chart(&mut self, image: String, path: String) {
        let (kind, namespace, name) = (String::new(), String::new(), String::new());
        let of = "chart knative-operator".to_owned();
        self.0.entry(image).or_default().push(Place { of, kind, namespace, name, path });
    }

    /// The images that `mirror` has already.
    pub fn mirrored<'l>(&'l self, mirror: &'l Mirror) -> impl Iterator<Item = &'l str> {
        self.0.keys().map(String::as_str).filter(move |image| mirror.has(image))
    }

    /// A line for each image, or for its name in `mirror`.
    pub fn text(&self, mirror: Option<&Mirror>) -> String {
        let name = |image: &String| mirror.map_or_else(|| image.clone(), |mirror| mirror.name(image));
        self.0.keys().map(|image| name(image) + "\n").collect()
    }

    /// Image, digest, name in `mirror` and places of each image.
    pub fn json(&self, mirror: Option<&Mirror>) -> Value {
        let image = |(image, places): (&String, &Vec<Place>)| {
            let mut entry = json!({"image": image, "where": places});
            if let Some(digest) = mirror::digest(image) {
                entry["digest"] = json!(digest);
            }
            if let Some(mirror) = mirror {
                entry["mirrored"] = json!(mirror.name(image));
            }
            entry
        };
        self.0.iter().map(image).collect()
    }

    /// A line for each image that copies it to `mirror`: `command`, what is pulled and what is
    /// pushed, both after `prefix`. Fails for one that a shell could take for something else: a
    /// valid reference is none.
    pub fn copies(&self, command: &str, prefix: &str, mirror: &Mirror) -> Result<String, InvalidImage> {
        let is_plain = |text: &str| text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._:/@+-".contains(&b));
        let line = |image: &String| {
            let (source, target) = (mirror::source(image), mirror.target(image));
            if is_plain(&source) && is_plain(&target) {
                return Ok(format!("{command} {prefix}{source} {prefix}{target}\n"));
            }
            Err(InvalidImage(format!("\"{}\" has characters that no image reference has", one_line(image))))
        };
        self.0.keys().filter(|image| !mirror.has(image)).map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use knative_operator_render::image_places;
    use knative_operator_shared::api::Component;

    use super::*;

    fn found(image: &str) -> Found {
        let object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "n"},
            "spec": {"containers": [{"name": "c", "image": image}]}});
        Found { places: image_places(&object, Component::Serving, "1.22.1"), object }
    }

    #[test]
    fn each_image_is_listed_once_with_its_places() {
        let hex = "0123456789abcdef0123456789abcdef";
        let image = format!("gcr.io/a:v1@sha256:{hex}");
        let mut listing = Listing::default();
        listing.add("KnativeServing s", &[found("b.io/x:1"), found(&image)]).unwrap();
        listing.add("KnativeServing t", &[found(&image), found("m.io/x:1")]).unwrap();
        listing.add_of_chart("a.io/operator:1".to_owned(), "operator.image".to_owned());
        assert_eq!(listing.text(None), format!("a.io/operator:1\nb.io/x:1\n{image}\nm.io/x:1\n"));
        let mirror: Mirror = "m.io".parse().unwrap();
        assert_eq!(listing.mirrored(&mirror).collect::<Vec<_>>(), ["m.io/x:1"]);
        let place = |of: &str| json!({"of": of, "kind": "Pod", "namespace": "n", "name": "p", "path": "/spec/containers/0/image"});
        let entry = json!({"image": image, "digest": format!("sha256:{hex}"), "mirrored": format!("m.io/gcr.io/a@sha256:{hex}"),
            "where": [place("KnativeServing s"), place("KnativeServing t")]});
        assert_eq!(listing.json(Some(&mirror))[2], entry);
        let chart = json!({"of": "chart knative-operator", "path": "operator.image"});
        assert_eq!(listing.json(None)[0], json!({"image": "a.io/operator:1", "where": [chart]}));
        assert_eq!(
            listing.copies("crane copy", "", &mirror).unwrap(),
            format!(
                "crane copy a.io/operator:1 m.io/a.io/operator:1\ncrane copy b.io/x:1 m.io/b.io/x:1\n\
                 crane copy gcr.io/a@sha256:{hex} m.io/gcr.io/a:{hex}\n"
            )
        );
    }

    #[test]
    fn what_a_shell_would_obey_is_not_printed() {
        let mirror: Mirror = "m.io".parse().unwrap();
        for image in ["a.io/x:1;id", "a.io/x@$(id):0123456789abcdef0123456789abcdef", "a.io/x:1\nid"] {
            let mut listing = Listing::default();
            listing.add_of_chart(image.to_owned(), "value".to_owned());
            assert!(listing.copies("crane copy", "", &mirror).is_err(), "{image}");
        }
    }

    #[test]
    fn image_that_cannot_be_pulled_is_an_error() {
        let InvalidImage(error) = Listing::default().add("KnativeServing s", &[found("a.io/x; rm:1")]).unwrap_err();
        assert!(
            error.contains("Pod") && error.contains("/spec/containers/0/image: \"a.io/x; rm:1\" must be"),
            "{error}"
        );
    }
}
