//! All transforms on the project's small release, as golden files. After an intended change:
//! `INSTA_UPDATE=always cargo test --test conformance golden`, and review the difference.

use knative_operator_tests::tools::project;

use super::{command, outcome, small};

#[test]
fn cases_render_as_golden_files() {
    let folder = project().join("tests/tests/conformance");
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(folder.join("golden"));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    let mut cases: Vec<_> = std::fs::read_dir(folder.join("cases")).unwrap().map(|e| e.unwrap().path()).collect();
    cases.retain(|path| path.extension().is_some_and(|e| e == "yaml"));
    cases.sort();
    assert_eq!(cases.len(), 4);
    for case in cases {
        let mut render = command();
        render.args(["render", "-f"]).arg(&case).arg("--releases").arg(small());
        if case.ends_with("eventing-everything.yaml") {
            render.env("KUBERNETES_MIN_VERSION", "v1.30.0");
        }
        let text = outcome(&render.output().unwrap()).unwrap();
        settings.bind(|| insta::assert_snapshot!(case.file_stem().unwrap().to_str().unwrap(), text));
    }
}
