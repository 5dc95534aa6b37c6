//! The files of the page, which are part of the binary.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

const JAVASCRIPT: &str = "text/javascript; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";

/// Name, media type and contents.
const FILES: [(&str, &str, &str); 40] = [
    ("/", "text/html; charset=utf-8", include_str!("../../../../ui/index.html")),
    ("/style.css", CSS, include_str!("../../../../ui/style.css")),
    ("/views.css", CSS, include_str!("../../../../ui/views.css")),
    ("/icon.svg", "image/svg+xml", include_str!("../../../../ui/icon.svg")),
    ("/activity.js", JAVASCRIPT, include_str!("../../../../ui/activity.js")),
    ("/advice.js", JAVASCRIPT, include_str!("../../../../ui/advice.js")),
    ("/attention.js", JAVASCRIPT, include_str!("../../../../ui/attention.js")),
    ("/card.js", JAVASCRIPT, include_str!("../../../../ui/card.js")),
    ("/cluster.js", JAVASCRIPT, include_str!("../../../../ui/cluster.js")),
    ("/clusters.js", JAVASCRIPT, include_str!("../../../../ui/clusters.js")),
    ("/component.js", JAVASCRIPT, include_str!("../../../../ui/component.js")),
    ("/controls.js", JAVASCRIPT, include_str!("../../../../ui/controls.js")),
    ("/copy.js", JAVASCRIPT, include_str!("../../../../ui/copy.js")),
    ("/dom.js", JAVASCRIPT, include_str!("../../../../ui/dom.js")),
    ("/drawer.js", JAVASCRIPT, include_str!("../../../../ui/drawer.js")),
    ("/empty.js", JAVASCRIPT, include_str!("../../../../ui/empty.js")),
    ("/filter.js", JAVASCRIPT, include_str!("../../../../ui/filter.js")),
    ("/fleet.js", JAVASCRIPT, include_str!("../../../../ui/fleet.js")),
    ("/grid.js", JAVASCRIPT, include_str!("../../../../ui/grid.js")),
    ("/header.js", JAVASCRIPT, include_str!("../../../../ui/header.js")),
    ("/health.js", JAVASCRIPT, include_str!("../../../../ui/health.js")),
    ("/histogram.js", JAVASCRIPT, include_str!("../../../../ui/histogram.js")),
    ("/live.js", JAVASCRIPT, include_str!("../../../../ui/live.js")),
    ("/main.js", JAVASCRIPT, include_str!("../../../../ui/main.js")),
    ("/matrix.js", JAVASCRIPT, include_str!("../../../../ui/matrix.js")),
    ("/overview.js", JAVASCRIPT, include_str!("../../../../ui/overview.js")),
    ("/resource.js", JAVASCRIPT, include_str!("../../../../ui/resource.js")),
    ("/route.js", JAVASCRIPT, include_str!("../../../../ui/route.js")),
    ("/row.js", JAVASCRIPT, include_str!("../../../../ui/row.js")),
    ("/rows.js", JAVASCRIPT, include_str!("../../../../ui/rows.js")),
    ("/session.js", JAVASCRIPT, include_str!("../../../../ui/session.js")),
    ("/states.js", JAVASCRIPT, include_str!("../../../../ui/states.js")),
    ("/stepper.js", JAVASCRIPT, include_str!("../../../../ui/stepper.js")),
    ("/store.js", JAVASCRIPT, include_str!("../../../../ui/store.js")),
    ("/table.js", JAVASCRIPT, include_str!("../../../../ui/table.js")),
    ("/target.js", JAVASCRIPT, include_str!("../../../../ui/target.js")),
    ("/theme.js", JAVASCRIPT, include_str!("../../../../ui/theme.js")),
    ("/timeline.js", JAVASCRIPT, include_str!("../../../../ui/timeline.js")),
    ("/version.js", JAVASCRIPT, include_str!("../../../../ui/version.js")),
    ("/versions.js", JAVASCRIPT, include_str!("../../../../ui/versions.js")),
];

/// Whether there is a file called `path`.
pub fn exists(path: &str) -> bool {
    FILES.iter().any(|(name, ..)| *name == path)
}

/// The file called `path`.
pub fn file(path: &str) -> Response {
    match FILES.iter().find(|(name, ..)| *name == path) {
        Some((_, media_type, contents)) => ([(header::CONTENT_TYPE, *media_type)], *contents).into_response(),
        None => (StatusCode::NOT_FOUND, "There is no such page.\n").into_response(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    /// Maximum length of all files, in bytes: they are part of the binary.
    const MAX_LENGTH: usize = 150_000;

    #[test]
    fn page_has_each_of_its_files_and_stays_small() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ui");
        let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let path = |name: String| if name == "index.html" { "/".to_owned() } else { format!("/{name}") };
        let served: BTreeSet<String> = FILES.iter().map(|(name, ..)| (*name).to_owned()).collect();
        assert_eq!(names.map(path).collect::<BTreeSet<_>>(), served);
        let length: usize = FILES.iter().map(|(.., contents)| contents.len()).sum();
        assert!(length <= MAX_LENGTH, "{length} bytes");
    }

    #[test]
    fn scripts_import_what_is_served_and_write_no_markup() {
        for (name, _, contents) in
            FILES.iter().filter(|(name, ..)| Path::new(name).extension().is_some_and(|e| e == "js"))
        {
            for import in contents.lines().filter(|line| line.starts_with("import ")) {
                let file = import.split('"').nth(1).and_then(|path| path.strip_prefix('.')).unwrap_or_default();
                assert!(exists(file), "{name}: {import}");
            }
            // What a hostile spoke sends stays text.
            for markup in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write"] {
                assert!(!contents.contains(markup), "{name} has {markup}");
            }
        }
    }
}
