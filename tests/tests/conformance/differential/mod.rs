//! Our rendering against the Go operator's own, with cases and random specs. `SPECS` is the number
//! of random specs, `SEED` the first seed: each spec has a seed of its own, which a failure names.

mod compare;
mod exceptions;
mod ours;
mod patched;
mod refusals;
mod repair;
mod specs;
mod tally;
mod theirs;
mod words;

use std::path::PathBuf;
use std::sync::mpsc::sync_channel;

use knative_operator_tests::tools::{self, project};
use serde_json::Value;

use self::exceptions::Kind;
use self::ours::Ours;
use self::specs::Specs;
use self::tally::Tally;
use self::theirs::Theirs;

/// Default number of random specs.
const SPECS: u64 = 300;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap())
}

/// The cases in the folder, with their names.
fn cases() -> Vec<(String, Value)> {
    let folder = project().join("tests/tests/conformance/cases/specs");
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let read = |file: PathBuf| {
        let text = std::fs::read_to_string(&file).unwrap();
        (file.file_stem().unwrap().to_str().unwrap().to_owned(), serde_saphyr::from_str(&text).unwrap())
    };
    files.into_iter().map(read).collect()
}

/// What the Go operator gets for `resource`, and the exceptions because of which it differs.
fn theirs_of(resource: &Value) -> (Value, Vec<&'static str>) {
    let (mut theirs, mut excepted) = (resource.clone(), Vec::new());
    for exception in exceptions::ALL {
        if let Kind::Resource(change) = exception.kind
            && change(&mut theirs)
        {
            excepted.push(exception.id);
        }
    }
    (theirs, excepted)
}

/// Renders all of `resources` with both operators.
fn compare(resources: &[(String, Value)], tally: &mut Tally) {
    let folder = tools::go_operator_module().unwrap().join("cmd/operator/kodata").canonicalize().unwrap();
    let (mut sender, theirs) = Theirs::start(&folder);
    let (done, outcomes) = sync_channel(8);
    std::thread::scope(|scope| {
        // Its end, also after a panic, ends the threads.
        let (mut theirs, outcomes) = (theirs, outcomes);
        scope.spawn(move || {
            for (_, resource) in resources {
                sender.send(&theirs_of(resource).0);
            }
        });
        scope.spawn(move || {
            let mut ours = Ours::new(&folder);
            for (_, resource) in resources {
                // The receiver ends early after a panic.
                let _ = done.send(ours.outcome(resource.clone()));
            }
        });
        for (name, resource) in resources {
            let theirs = theirs.answer();
            tally.add(name, resource, theirs_of(resource).1, theirs, outcomes.recv().unwrap());
        }
    });
}

#[test]
fn rendered_objects_equal_go_operators() {
    let mut tally = Tally::default();
    let cases = cases();
    assert!(cases.len() >= 58, "there are only {} cases", cases.len());
    compare(&cases, &mut tally);
    for exception in exceptions::ALL {
        assert!(tally.has_exception(exception.id), "no case has the exception {}: remove it\n{tally}", exception.id);
    }
    let specs = Specs::new(
        &tools::go_operator_module().unwrap(),
        &tools::go_operator_module().unwrap().join("cmd/operator/kodata"),
    );
    let (first, count) = (number("SEED").unwrap_or(1), number("SPECS").unwrap_or(SPECS));
    let mut next = first;
    while next < first + count {
        let end = (next + 1000).min(first + count);
        let chunk: Vec<_> = (next..end).map(|seed| (format!("SEED={seed} SPECS=1"), specs.resource(seed))).collect();
        compare(&chunk, &mut tally);
        next = end;
    }
    tally.finish();
}

#[test]
fn exceptions_are_documented() {
    let document = std::fs::read_to_string(project().join("docs/user/compatibility.md")).unwrap();
    for row in exceptions::ALL.iter().map(|e| e.row).chain(refusals::ALL.iter().map(|r| r.row)) {
        assert!(document.contains(&format!("\n| {row} |")), "docs/user/compatibility.md has no row {row:?}");
    }
    let rules = std::fs::read_to_string(project().join("docs/user/rules.md")).unwrap();
    for refusal in refusals::ALL {
        assert!(rules.contains(&format!("| [`{}`]", refusal.rule)), "docs/user/rules.md has no rule {}", refusal.rule);
    }
}
