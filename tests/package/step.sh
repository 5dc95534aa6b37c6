#!/usr/bin/env bash
# Runs a step of a task: says what it does and how long it took last time, then how long it took.
# Usage: step.sh NAME COMMAND…
set -euo pipefail
unset MAKEFLAGS MFLAGS # cargo and go have their own ideas of parallel work
name=$1
shift
root=${KNATIVE_OPERATOR_CACHE:-${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}/knative-operator}/durations
file=$root/step-${name//[^A-Za-z0-9]/-}
last=$(cat "$file" 2>/dev/null || true)
echo "==> $name${last:+ (last time: $last s)}"
started=$(date +%s)
status=0
"$@" || status=$?
took=$(($(date +%s) - started))
if [ $status -ne 0 ]; then
  echo "    $name: FAILED after $took s"
  exit $status
fi
echo "    $name: $took s"
mkdir -p "$root" 2>/dev/null && echo $took >"$file" || true
