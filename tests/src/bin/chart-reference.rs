//! Writes the descriptions of the chart's values to its `values.schema.json` and `README.md`, for
//! `make generate`.

use knative_operator_tests::{Result, chart_reference, project};

fn main() -> Result<()> {
    for (path, content) in chart_reference::files()? {
        std::fs::write(project().join(path), content)?;
    }
    Ok(())
}
