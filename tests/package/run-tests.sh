#!/usr/bin/env bash
# Runs all tests that `make test` built (with --workspace, or Cargo builds them again with other
# features), in this order, and prints a summary: what was skipped and why, the slowest tests and
# what they waited for, what failed and why, and how many tests passed and failed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
long=$(tests/package/long-tests.sh)
logs=target/test-logs
rm -rf "$logs" target/test-times.tsv
mkdir -p "$logs"
images=(env KNATIVE_IMAGES=target/images-test)
# A failed test prints what processes logged; its own stack says less.
export RUST_BACKTRACE=0
failed=$logs/failed.txt
: >"$failed"

# tests NAME COMMAND…: a step, whose output is kept.
tests() {
  local log=$logs/$(tr -c 'a-z0-9\n' - <<<"$1").log
  tests/package/step.sh "$@" {alive}>&- 2>&1 | tee "$log" {alive}>&- || echo "$1" >>"$failed"
}

# Beside the next steps: it mostly waits. It ends with this script, however that ends: its standard
# input closes.
machines=$logs/machines.log
exec {alive}> >(
  trap "" INT # it would end the tether only
  target/debug/tether "$logs/machines.pid" 10 tests/package/step.sh "machines" "${images[@]}" \
    cargo test --quiet --workspace --test machines >"$machines" 2>&1 || echo machines >>"$failed"
)
background=$!
tests "unit tests" tests/package/beside.sh --workspace --quiet --lib --bins
tests "conformance" tests/package/beside.sh --workspace --quiet --test conformance --test tooling --test chart --test crd_compatibility
tests "images" "${images[@]}" cargo test --workspace --quiet --test images
CHAOS_SEEDS=1 CHAOS_WORLDS=1 CHAOS_MILLISECONDS=500 tests "chaos (1 seed)" cargo test --quiet --workspace --test chaos
wait "$background" || echo "a step in the background" >>"$failed"
cat "$machines"
# Alone: nodes, containers and HTTP requests.
real=life::hub_installs_knative_on_a_real_spoke
REAL_NODES=yes tests "real nodes" "${images[@]}" cargo test --workspace --quiet --test real -- --exact $real
# Alone: it measures how long reviews take. Before the others, whose logs the next step reads.
tests "flood" "${images[@]}" cargo test --quiet --workspace --test e2e -- flood::
tests "end to end" "${images[@]}" cargo test --workspace --no-fail-fast --test e2e -- --skip flood:: $(printf -- '--skip %s ' $long)
printf 'skipped: %s: it takes minutes: make test-long\n' $long >>target/skipped.txt
tests "texts and permissions of the end-to-end tests" cargo test --workspace --no-fail-fast --quiet --test texts --test permissions

# They say why they are skipped.
tests "other tests" cargo test --workspace --no-fail-fast --quiet --test go_suite --test managers --test monitoring --test real --test release --test ui -- --skip $real

skipped=$(sort -u target/skipped.txt 2>/dev/null || true)
printf '\n==> skipped%s\n%s\n' "${REQUIRE_ALL:+ (REQUIRE_ALL: only what needs another kernel, machine or long build)}" "${skipped:-none}"
printf '\n==> the slowest end-to-end tests, and what they waited for\n'
sort -rn target/test-times.tsv 2>/dev/null | awk -F'\t' 'NR <= 10 {printf "  %6.1f s  %-62s %s\n", $1, $2, $3}'
[ ! -s "$failed" ] || printf '\nfailed: %s\n' "$(paste -sd, "$failed")"
tests/package/failures.sh "$logs" || true
printf '\n'
grep -hE '^test result:' "$logs"/*.log | awk -v skipped="$(grep -c . <<<"$skipped" || true)" '
  { for (i = 1; i <= NF; i++) { if ($i ~ /^passed/) passed += $(i - 1); if ($i ~ /^failed/) failed += $(i - 1) } }
  END { printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped }'
[ ! -s "$failed" ]
