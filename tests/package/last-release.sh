#!/usr/bin/env bash
# Builds the binaries of the last release from its commit, once, and prints their folder. Its chart
# is tests/charts/knative-operator-VERSION.tgz: the folder charts/knative-operator of that commit.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
version=0.2.0 commit=889703ae
cache=${KNATIVE_OPERATOR_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/knative-operator}/last-release
folder=$cache/$version
mkdir -p "$cache"
exec 9>"$cache/.lock"
flock -n 9 || { echo "waiting for another process that provides the last release" >&2; flock 9; }
if [ ! -x "$folder/knative-operator" ] || [ ! -x "$folder/knative-operator-webhook" ]; then
  git cat-file -e "$commit^{commit}" 2>/dev/null || { echo "the history lacks $commit, version $version: git fetch --unshallow" >&2; exit 1; }
  rm -rf "$cache/source" # of an interrupted run
  mkdir -p "$folder" "$cache/source"
  git archive "$commit" | tar -x -C "$cache/source"
  (cd "$cache/source" && CARGO_INCREMENTAL=0 cargo build --quiet --target-dir "$cache/target" -p knative-operator -p knative-operator-webhook --bins)
  install -t "$folder" "$cache"/target/debug/knative-operator{,-webhook}
  rm -rf "$cache/source" "$cache/target"
fi
printf '%s\n' "$folder"
