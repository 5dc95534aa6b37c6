#!/usr/bin/env bash
# Prints the folder of Knative's releases that images, demo and tests use: $BUNDLE, or the cache
# outside the tree, which is filled from the Go module knative.dev/operator or from GitHub.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
if [ -n "${BUNDLE:-}" ]; then
  [ -d "$BUNDLE" ] || { echo "BUNDLE=$BUNDLE is not a folder" >&2; exit 1; }
  (cd "$BUNDLE" && pwd)
  exit 0
fi
root=${KNATIVE_OPERATOR_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/knative-operator}
folder=$root/releases/$(sha256sum operator/bundle/releases.lock | cut -c1-16)
mkdir -p "$root/releases"
exec 9>"$root/releases/.lock"
flock -n 9 || { echo "waiting for another process that provides Knative's releases" >&2; flock 9; }
operator/bundle/build.sh "$folder" 2>&1 | { grep -vE '^([0-9]+ files exist in|the bundle in) ' >&2 || true; }
printf '%s\n' "$folder"
