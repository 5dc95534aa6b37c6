#!/usr/bin/env bash
# Keeps what Cargo would run, to be run by `tests/package/beside.sh`: a script with the environment,
# the folder and the arguments. Arguments: the folder of these scripts, then the executable and its
# own.
set -euo pipefail
jobs=$1 runner=$(cd "$(dirname "$0")" && pwd)/runner.sh
shift
name=$(basename "$1")
{
  export -p | grep -v '^declare -x CARGO_TARGET_[A-Z0-9_]*_RUNNER='
  printf 'cd %q && exec' "$PWD"
  printf ' %q' "$runner" "$@"
} >"$jobs/${name%-*}.${name##*-}"
