//! The test bed as a library for others: the example that its README shows.

use std::process::{Command, Stdio};

use knative_operator_tests::{environment, tools};

use crate::support::run;

#[test]
fn example_of_the_test_bed_runs_as_its_readme_shows_it() {
    run(async {
        let (example, readme) = (include_str!("../../bed/examples/deployment.rs"), include_str!("../../bed/README.md"));
        let (_, code) = example.split_once("// it runs once\n\n").ok_or("the example has another head")?;
        assert!(readme.contains(&format!("```rust\n{code}```\n")), "tests/bed/README.md shows another example");
        let mut command = Command::new(tools::example("deployment")?);
        environment::clean(&mut command).stdin(Stdio::null());
        let output = tokio::process::Command::from(command).kill_on_drop(true).output().await?;
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success() && out.contains(" 2/2 "), "{out}{err}");
        Ok(())
    });
}
