#!/usr/bin/env bash
# Runs the tests of several executables (tests/package/beside.sh NAME…), two executables at a time,
# and prints the output of each once it has ended.
set -euo pipefail
one() {
  local output code=0
  output=$(cargo test --workspace --no-fail-fast --quiet --test "$1" 2>&1) || code=$?
  printf '%s\n' "$output"
  return "$code"
}
export -f one
printf '%s\0' "$@" | xargs -0 -P2 -I{} bash -c 'one {}'
