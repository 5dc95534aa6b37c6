//! The summary of `make test` has the name and the message of each test that failed.

use std::process::Command;

use knative_operator_tests::tools;

/// The output of cargo with two tests that failed.
const LOG: &str = "\
running 3 tests
test a::good ... ok
test a::bad ... FAILED
test a::worse ... FAILED

failures:

---- a::bad stdout ----
7 admissions

thread 'tokio-runtime-worker' (11) panicked at tests/src/x.rs:1:2:
not the cause

thread 'a::bad' (12) panicked at tests/tests/e2e/support.rs:48:33:
the memory has grown by 70000 KiB
last seen: absent
==> end of the log of etcd
{\"level\":\"info\"}

---- a::worse stdout ----
Error: \"no such file\"


failures:
    a::bad
    a::worse

test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.00s

error: test failed, to rerun pass `--test e2e`
";

/// What the script prints for `logs` if the steps `failed` did.
fn summary(logs: &[(&str, &str)], failed: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in logs {
        std::fs::write(folder.path().join(format!("{name}.log")), text).unwrap();
    }
    std::fs::write(folder.path().join("failed.txt"), failed).unwrap();
    let script = tools::project().join("tests/package/failures.sh");
    let output = Command::new(script).arg(folder.path()).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn failed_tests_have_their_message_and_no_log() {
    let killed = "compiling\nerror: process didn't exit successfully (signal: 9, SIGKILL)\n";
    let logs = [("end-to-end", LOG), ("images", killed), ("unit-tests", "test result: ok.\n")];
    let expected = "
==> failures
  a::bad
      thread 'a::bad' (12) panicked at tests/tests/e2e/support.rs:48:33:
      the memory has grown by 70000 KiB
      last seen: absent
  a::worse
      Error: \"no such file\"
  the step images, whose log ends with
      compiling
      error: process didn't exit successfully (signal: 9, SIGKILL)
";
    assert_eq!(summary(&logs, "end to end\nimages\na step in the background\n"), expected);
    assert_eq!(summary(&logs[2..], ""), "");
}

#[test]
fn many_failures_have_few_lines_each() {
    let lines = "line\n".repeat(100);
    let block =
        |number: usize| format!("---- t{number} stdout ----\nthread 't{number}' panicked at a.rs:1:2:\n{lines}");
    for count in [1, 8, 100] {
        let log = (0..count).map(block).collect::<String>();
        let text = summary(&[("e", log.as_str())], "e\n");
        assert!(text.contains("  t0\n") && text.lines().count() <= 63, "{text}");
        assert!(count > 60 || text.contains(&format!("  t{}\n", count - 1)), "{text}");
    }
}
