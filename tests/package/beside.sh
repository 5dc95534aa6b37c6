#!/usr/bin/env bash
# Runs what `cargo test ARGUMENT…` would run, two executables at a time, and prints the output of
# each once it has ended. Those that took longest last time are the first: most end with one test
# that takes long, and leaves a processor to the next one.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export DURATIONS=${KNATIVE_OPERATOR_CACHE:-${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}/knative-operator}/durations
jobs=$(mktemp -d)
trap 'rm -rf "$jobs"' EXIT
host=$(rustc -vV | sed -n 's/^host: //p' | tr 'a-z-' 'A-Z_')
env "CARGO_TARGET_${host}_RUNNER=$here/../tools/later.sh $jobs" cargo test "$@"

# run JOB: runs what `later.sh` kept.
run() {
  local output code=0 started file
  started=$(date +%s) file=$DURATIONS/test-$(basename "${1%.*}")
  output=$(bash "$1" 2>&1) || code=$?
  printf '%s\n' "$output"
  mkdir -p "$DURATIONS" 2>/dev/null && echo $(($(date +%s) - started)) >"$file" || true
  return "$code"
}
export -f run
for job in "$jobs"/*; do
  printf '%s\t%s\0' "$(cat "$DURATIONS/test-$(basename "${job%.*}")" 2>/dev/null || echo 0)" "$job"
done | sort -z -rn | cut -z -f2 | xargs -0 -P2 -I{} bash -c 'run {}'
