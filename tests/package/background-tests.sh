#!/usr/bin/env bash
# Runs the tests that `make test` runs beside others. The output of each step is in
# target/test-logs, and so are the names of those that failed (failed.txt).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
logs=target/test-logs
memory=$(awk '/^MemAvailable/ {print int($2 / 1e6)}' /proc/meminfo 2>/dev/null || echo 8)

# step LOG NAME COMMAND…
step() { tests/package/step.sh "${@:2}" >"$logs/$1.log" 2>&1 || echo "$2" >>"$logs/failed.txt"; }

step machines "machines" env KNATIVE_IMAGES=target/images-test cargo test --quiet --workspace --test machines &
# They compute, and what waits for something goes first. The longest test of each ends late: beside
# each other, they leave no processor idle.
step unit-tests "unit tests" nice -n 10 cargo test --workspace --no-fail-fast --quiet --lib --bins &
[ "$memory" -ge 6 ] || wait
step conformance "conformance" nice -n 10 tests/package/beside.sh conformance tooling chart crd_compatibility
wait
