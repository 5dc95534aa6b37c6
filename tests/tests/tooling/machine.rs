//! What is said on a machine where something can't be built.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use knative_operator_tests::tools::project;

use super::server::output_text;

fn program(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, format!("#!/bin/sh\n{text}\n")).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn images_are_skipped_with_spaces_in_the_paths_of_caches() {
    let dir = tempfile::tempdir().unwrap();
    // A project whose tools can't be provided, and a `cargo` that builds nothing.
    let root = dir.path().join("project");
    program(&root.join("tests/tools/install.sh"), "echo 'no tools' >&2; exit 1");
    std::fs::create_dir_all(root.join("tests/package")).unwrap();
    for script in ["tests/package/test-images.sh", "tests/package/paths.sh"] {
        std::fs::copy(project().join(script), root.join(script)).unwrap();
    }
    program(&dir.path().join("bin/cargo"), "");
    program(&dir.path().join("bin/id"), "echo 0");
    let run = |home: &str, required: &str| -> Output {
        Command::new("bash")
            .arg(root.join("tests/package/test-images.sh"))
            .env("PATH", format!("{}:{}", dir.path().join("bin").display(), std::env::var("PATH").unwrap()))
            .env("HOME", dir.path().join(home))
            .env("REQUIRE_ALL", required)
            .env_remove("CARGO_HOME")
            .env_remove("XDG_CACHE_HOME")
            .env_remove("KNATIVE_OPERATOR_CACHE")
            .output()
            .unwrap()
    };
    for (home, reason) in [("a home", "images can't be built with spaces in the path "), ("home", "no tools")] {
        let (output, line) = (run(home, ""), format!("skipped: images in containers: {reason}"));
        let text = output_text(&output);
        assert!(output.status.success() && text.contains(&line), "{text}");
        let report = std::fs::read_to_string(root.join("target/skipped.txt")).unwrap();
        assert!(report.contains(&line), "{report}");
        // The binaries that run as processes.
        assert_eq!(std::fs::read_link(root.join("target/demo")).unwrap(), Path::new("debug"));
        let output = run(home, "1");
        let text = output_text(&output);
        assert!(
            !output.status.success() && text.contains(&format!("REQUIRE_ALL: images in containers: {reason}")),
            "{text}"
        );
    }
}

#[test]
fn prerequisites_name_a_folder_of_temporary_files_that_is_read_only() {
    // Not even root can write there.
    let output = Command::new("make")
        .args(["--no-print-directory", "-C"])
        .arg(project())
        .arg("prerequisites")
        .env("TMPDIR", "/proc")
        .env_remove("MAKEFLAGS")
        .env_remove("MFLAGS")
        .output()
        .unwrap();
    assert!(!output.status.success());
    let line = "/proc is not writable: set TMPDIR to a folder that is writable\n";
    assert_eq!(String::from_utf8_lossy(&output.stdout), line, "{}", output_text(&output));
}
