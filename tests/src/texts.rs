//! What the test bed kept of the end-to-end tests: logs, conditions, events and requests of the
//! product.

/// User agents of the Go operator, which has the accounts of this operator in some tests.
const GO_OPERATOR: [&str; 3] = ["operator/v0.0.0 ", "webhook/v0.0.0 ", "Go-http-client/"];

/// Whether `line` of an audit log is a request of the Go operator.
fn is_of_go_operator(line: &str) -> bool {
    GO_OPERATOR.iter().any(|agent| line.contains(&format!("\"userAgent\":\"{agent}")))
}

/// Calls `each` with every line of every kept file, and whether it is of an audit log; without
/// requests of the Go operator. Returns whether there are any.
pub fn lines(mut each: impl FnMut(&str, bool)) -> bool {
    test_bed::texts::lines(|line, audit| {
        if !audit || !is_of_go_operator(line) {
            each(line, audit);
        }
    })
}
