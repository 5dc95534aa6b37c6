//! The commands in remedies, which people copy.

use clap::Parser;
use knative_operator_overview::{Names, remedy};

use super::Args;

#[test]
fn commands_in_remedies_are_those_of_the_command_line() {
    let names = Names {
        kind: "knativeservings",
        name: "a",
        namespace: "n",
        profile: "p",
        profile_namespace: "f",
        pod_namespace: "knative-serving",
        fleet: "",
    };
    let mut found = 0;
    for remedy in remedy::all() {
        let filled = names.fill(&remedy.text.replace("{fleet}", "prod"));
        let codes = filled.split('`').skip(1).step_by(2).flat_map(|code| code.split(" && "));
        for own in codes.filter(|command| command.starts_with("knative-operator ")) {
            assert!(Args::try_parse_from(own.split(' ')).is_ok(), "{own}");
            found += 1;
        }
    }
    assert!(found > 0);
}
