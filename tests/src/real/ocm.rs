//! Open Cluster Management from its Go modules: the images of its programs, for the registry of
//! real nodes, and its charts.

use std::path::{Path, PathBuf};

use super::images::root;
use crate::registry::Registry;
use crate::{Result, tools};

/// Its version, which is the tag of its images.
pub const VERSION: &str = "v1.2.0";
/// Folder of its images in each registry.
const OWNER: &str = "open-cluster-management";

/// An image: its name and tag, the tools with its programs, and their paths in the image.
type Image = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

/// The images with the paths of their Dockerfiles, without the files of a distribution. The charts
/// of the add-ons name the tags.
const IMAGES: [Image; 8] = [
    ("registration-operator:v1.2.0", "ocm", &[("registration-operator", "/registration-operator")]),
    ("registration:v1.2.0", "ocm", &[("registration", "/registration")]),
    ("work:v1.2.0", "ocm", &[("work", "/work")]),
    ("placement:v1.2.0", "ocm", &[("placement", "/placement")]),
    ("addon-manager:v1.2.0", "ocm", &[("addon", "/addon")]),
    (
        "cluster-proxy:v0.10.0",
        "cluster-proxy",
        &[
            ("addon-agent", "/agent"),
            ("addon-manager", "/manager"),
            ("agent", "/proxy-agent"),
            ("cluster-proxy", "/cluster-proxy"),
            ("server", "/proxy-server"),
        ],
    ),
    ("managed-serviceaccount:v0.10.0", "managed-serviceaccount", &[("cmd", "/msa")]),
    ("cp-creds:latest", "managed-serviceaccount", &[("clusterprofile-credentials-plugin", "/cp-creds")]),
];

/// Pushes its images to `registry`.
pub fn push(registry: &Registry) -> Result<()> {
    let work = tools::folder("knative-ocm-")?;
    for (image, tool, files) in IMAGES {
        let programs = tools::provided(tool)?.canonicalize()?;
        let files: Vec<(PathBuf, &str)> = files.iter().map(|(name, path)| (programs.join(name), *path)).collect();
        let files: Vec<(&Path, &str)> = files.iter().map(|(file, path)| (file.as_path(), *path)).collect();
        let folder = root(&work.path().join(image.replace(':', "-")), &files)?;
        registry.push_programs(&folder, &format!("{OWNER}/{image}"))?;
    }
    Ok(())
}

/// Folder of a chart of its Go modules: `cluster-manager`, `klusterlet`, `cluster-proxy` or
/// `managed-serviceaccount`.
pub fn chart(name: &str) -> Result<String> {
    let (module, path) = match name {
        "cluster-manager" | "klusterlet" => ("ocm", format!("deploy/{name}/chart/{name}")),
        _ => (name, format!("charts/{name}")),
    };
    Ok(tools::provided(&format!("{module}-module"))?.join(path).display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_the_versions_of_the_modules_and_of_the_document() {
        let read = |path: &str| std::fs::read_to_string(tools::project().join(path)).unwrap();
        let document = read("docs/operate/open-cluster-management.md");
        for (image, tool, _) in IMAGES.iter().filter(|(image, ..)| !image.ends_with(":latest")) {
            let (_, tag) = image.split_once(':').unwrap();
            let module = read(&format!("tests/tools/{tool}/go.mod"));
            assert!(
                module.contains(&format!("open-cluster-management.io/{tool} {tag} ")),
                "{image} is another version"
            );
            assert!(*tool != "ocm" || tag == VERSION, "{image} is not {VERSION}");
            assert!(document.contains(&tag[1..]), "the document names another version than {image}");
        }
    }
}
