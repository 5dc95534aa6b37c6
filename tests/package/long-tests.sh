#!/usr/bin/env bash
# Prints the names of the end-to-end tests in long-tests.txt. Fails if one of them doesn't exist.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
names=$(sed -nE 's/^([a-z_0-9:]+) .*/\1/p' tests/package/long-tests.txt)
tests=$(cargo test --quiet --workspace --test e2e -- --list)
for name in $names; do
  grep -qx "$name: test" <<<"$tests" || { echo "tests/package/long-tests.txt: no test has the name $name" >&2; exit 1; }
done
echo "$names"
