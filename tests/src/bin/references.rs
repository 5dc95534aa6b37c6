//! Writes references, for `make generate`: the descriptions of the chart's values to its
//! `values.schema.json` and `README.md`, and the fields of all kinds to docs/user/api.md.

use knative_operator_tests::{Result, api_reference, chart_reference, project};

fn main() -> Result<()> {
    let fields = (api_reference::PAGE, api_reference::document());
    for (path, content) in chart_reference::files()?.into_iter().chain([fields]) {
        std::fs::write(project().join(path), content)?;
    }
    Ok(())
}
