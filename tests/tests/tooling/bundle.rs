//! The release bundle: its sources, checksums, and interruptions.

use std::collections::HashMap;
use std::path::Path;
use std::process::{Command, Output};

use knative_operator_tests::releases;
use knative_operator_tests::tools::project;

use super::server::{Server, output_text, sha256};

fn bundle(out: &Path, lock: &Path, server: &Server, versions: &[&str]) -> Output {
    Command::new(project().join("operator/bundle/build.sh"))
        .arg(out)
        .args(versions)
        .env("BUNDLE_LOCK", lock)
        .env("BUNDLE_SOURCE", format!("http://{}", server.address))
        .env("KNATIVE_OPERATOR_CACHE", lock.with_extension("cache"))
        .env("BUNDLE", "")
        .env("BUNDLE_MODULE", "no")
        .output()
        .unwrap()
}

#[test]
fn bundle_is_built_verified_and_resumed() {
    let dir = tempfile::tempdir().unwrap();
    let (out, lock) = (dir.path().join("out"), dir.path().join("lock"));
    let file = |name: &str| format!("# {name}\n").repeat(2000).into_bytes();
    let places = [
        ("knative-serving/1.1.0/1-a.yaml", "/k/serving/a.yaml"),
        ("knative-serving/1.1.0/2-b.yaml", "/k/serving/b.yaml"),
        ("ingress/1.1/kourier/kourier.yaml", "/k/kourier.yaml"),
        ("knative-serving/1.0.0/1-old.yaml", "/k/serving/old.yaml"),
    ];
    let rows: String =
        places.iter().map(|(place, path)| format!("{}  {place}  {}\n", sha256(&file(path)), &path[1..])).collect();
    std::fs::write(&lock, format!("# comment\n{rows}")).unwrap();
    let mut files: HashMap<String, Vec<u8>> = places.iter().map(|(_, path)| ((*path).to_owned(), file(path))).collect();

    // One file is modified, one is interrupted: the first is refused, the second resumed.
    files.insert("/k/serving/b.yaml".to_owned(), b"tampered".to_vec());
    let server = Server::of(files.clone(), &["/k/serving/a.yaml"]);
    let output = bundle(&out, &lock, &server, &["1.1.0"]);
    let text = output_text(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("[2/3] knative-serving/1.1.0/2-b.yaml: FAILED: its checksum is"), "{text}");
    assert!(text.contains("1 of 3 files are missing") && text.contains("run the same command again"), "{text}");
    assert_eq!(std::fs::read(out.join(places[0].0)).unwrap(), file(places[0].1));
    assert!(
        server.requested().iter().any(|a| a.starts_with("/k/serving/a.yaml@") && !a.ends_with("@0")),
        "not continued: {:?}",
        server.requested()
    );
    assert!(!out.join(places[1].0).exists() && !out.join(places[3].0).exists());

    // Repeated, the same command downloads only what is missing.
    files.insert("/k/serving/b.yaml".to_owned(), file("/k/serving/b.yaml"));
    let server = Server::of(files, &[]);
    let output = bundle(&out, &lock, &server, &["1.1.0"]);
    let text = output_text(&output);
    assert!(output.status.success() && text.contains("is complete: 3 files"), "{text}");
    assert!(text.contains("1 files from http://"), "{text}");
    assert!(server.requested().iter().all(|a| a.starts_with("/k/serving/b.yaml")), "{:?}", server.requested());

    let output = bundle(&out, &lock, &server, &["9.9.9"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        output_text(&output).contains("has nothing for version 9.9.9; it has 1.0.0 1.1.0"),
        "{}",
        output_text(&output)
    );
}

#[test]
fn bundle_has_exactly_the_listed_files() {
    let dir = tempfile::tempdir().unwrap();
    let (out, lock) = (dir.path().join("out"), dir.path().join("lock"));
    let file = |name: &str| format!("# {name}\n").into_bytes();
    let places =
        ["knative-serving/1.1.0/1-a.yaml", "ingress/1.1/kourier/kourier.yaml", "knative-serving/1.0.0/1-a.yaml"];
    let rows: String = places.iter().map(|place| format!("{}  {place}  {place}\n", sha256(&file(place)))).collect();
    std::fs::write(&lock, rows).unwrap();
    let files = places.iter().map(|place| (format!("/{place}"), file(place))).collect();
    let server = Server::of(files, &[]);
    assert!(bundle(&out, &lock, &server, &[]).status.success());

    // Leftovers of an earlier bundle, of a copy and of a download, and a link in place of a file.
    std::fs::create_dir_all(out.join("eventing-source/1.0/kafka")).unwrap();
    std::fs::write(out.join("eventing-source/1.0/kafka/kafka.yaml"), "old").unwrap();
    std::fs::write(out.join("knative-serving/1.1.0/1-a.yaml.part"), "part").unwrap();
    std::fs::write(out.join("knative-serving/1.1.0/1-a.yaml.4711"), "copy").unwrap();
    std::fs::rename(out.join(places[1]), dir.path().join("elsewhere")).unwrap();
    std::os::unix::fs::symlink(dir.path().join("elsewhere"), out.join(places[1])).unwrap();
    let output = bundle(&out, &lock, &server, &["1.1.0"]);
    let text = output_text(&output);
    assert!(output.status.success() && text.contains("4 other files of an earlier bundle are deleted"), "{text}");
    assert!(out.join(places[0]).exists() && !out.join("knative-serving/1.0.0").exists(), "{text}");
    assert!(out.join(places[1]).symlink_metadata().unwrap().is_file() && !out.join("eventing-source").exists());
    assert_eq!(std::fs::read_dir(out.join("knative-serving/1.1.0")).unwrap().count(), 1);

    // A folder with something else is left alone.
    for other in ["notes.txt", "knative-serving/notes.yaml", "ingress/1.1/kourier/kourier.yaml.bak"] {
        std::fs::write(out.join(other), "mine").unwrap();
        let output = bundle(&out, &lock, &server, &[]);
        let text = output_text(&output);
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains(&format!("is neither empty nor a bundle, for it has {other}")), "{text}");
        assert!(out.join(other).exists() && !out.join(places[2]).exists());
        std::fs::remove_file(out.join(other)).unwrap();
    }
}

#[test]
fn locked_checksums_match_releases() {
    let releases = releases::best().dir;
    let lock = std::fs::read_to_string(project().join("operator/bundle/releases.lock")).unwrap();
    let rows: Vec<Vec<&str>> =
        lock.lines().filter(|l| !l.starts_with('#')).map(|l| l.split_whitespace().collect()).collect();
    assert_eq!(rows.len(), 190);
    for row in rows.iter().step_by(10) {
        assert_eq!(sha256(&std::fs::read(releases.join(row[1])).unwrap()), row[0], "{}", row[1]);
    }
}

#[test]
fn chart_has_the_versions_of_the_bundle() {
    let output = Command::new(project().join("operator/bundle/versions.sh")).output().unwrap();
    let chart = std::fs::read_to_string(project().join("charts/knative-operator/files/versions.json")).unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), chart, "run make generate");
    let versions: serde_json::Value = serde_json::from_str(&chart).unwrap();
    assert!(versions["KnativeServing"].as_array().unwrap().contains(&"1.22.1".into()), "{versions}");
}

/// Builds the bundle of this version without network, but for the module cache of Go.
fn offline(out: &Path, variables: &[(&str, &Path)]) -> Output {
    let mut command = Command::new(project().join("operator/bundle/build.sh"));
    command.arg(out).env("BUNDLE", "").env("BUNDLE_SOURCE", "http://127.0.0.1:1");
    command.envs(variables.iter().copied()).output().unwrap()
}

#[test]
fn bundle_comes_from_folder_cache_or_module() {
    let dir = tempfile::tempdir().unwrap();
    let place = |name: &str| dir.path().join(name);
    let complete = "is complete: 190 files, each with its checksum in releases.lock";
    let cache = place("cache");
    let with_cache = [("KNATIVE_OPERATOR_CACHE", cache.as_path())];

    // The Go module fills the cache.
    let text = output_text(&offline(&place("module"), &with_cache));
    assert!(text.contains("190 files from the Go module knative.dev/operator@v") && text.contains(complete), "{text}");
    let no_module = [with_cache[0], ("BUNDLE_MODULE", Path::new("no"))];
    let text = output_text(&offline(&place("cached"), &no_module));
    assert!(text.contains("190 files from the cache") && text.contains(complete), "{text}");

    // A file that was changed in the cache is replaced from the module; without another source, it
    // is an error that names the file.
    let changed = "knative-serving/1.22.1/2-serving-core.yaml";
    let cached = std::fs::read_dir(cache.join("releases")).unwrap().next().unwrap().unwrap().path().join(changed);
    std::fs::write(&cached, "changed").unwrap();
    let output = offline(&place("changed"), &no_module);
    let text = output_text(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains(&format!("{changed}: in the cache")) && text.contains("can't be reached"), "{text}");
    let text = output_text(&offline(&place("changed"), &with_cache));
    assert!(text.contains("1 files from the Go module") && text.contains(complete), "{text}");

    // A folder is the only source, if it is given.
    let folder = place("module");
    let given = [no_module[0], no_module[1], ("BUNDLE", folder.as_path())];
    let text = output_text(&offline(&place("given"), &given));
    assert!(text.contains("190 files from the folder") && text.contains(complete), "{text}");
    std::fs::write(folder.join(changed), "changed").unwrap();
    std::fs::remove_file(folder.join("ingress/1.22/kourier/kourier.yaml")).unwrap();
    let output = offline(&place("incomplete"), &given);
    let text = output_text(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains(&format!("{changed}: in the folder")), "{text}");
    assert!(text.contains("ingress/1.22/kourier/kourier.yaml: FAILED: it is not in"), "{text}");
    assert!(text.contains("2 of 190 files are missing") && text.contains("complete the folder"), "{text}");
}
