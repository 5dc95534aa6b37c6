//! Prints the table of strategies and merge keys for strategic merge patches. `make generate`
//! writes it to `shared/patch/src/schema.json`.

#![allow(clippy::print_stdout)]

use knative_operator_tests::{Result, patch_schema};

fn main() -> Result<()> {
    let path = patch_schema::document()?;
    let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    print!("{}", patch_schema::table(&serde_json::from_str(&text)?)?);
    Ok(())
}
