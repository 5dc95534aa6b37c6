#!/bin/sh
# Runs what Cargo built: tests and benches of the crate in tests/ in a network of their own (see
# tests/src/bin/isolate.rs), everything else unchanged. Cargo gives the executable first.
isolate=$(dirname "$1")/../isolate
case $1 in
*/deps/*) if [ "${CARGO_PKG_NAME:-}" = knative-operator-tests ] && [ -x "$isolate" ]; then exec "$isolate" "$@"; fi ;;
esac
exec "$@"
