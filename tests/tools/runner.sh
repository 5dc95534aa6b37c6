#!/bin/sh
# Runs what Cargo built: tests and benches of the packages tests and tests/bed in a network of their
# own (see tests/bed/src/bin/isolate.rs), everything else unchanged. Cargo gives the executable
# first.
isolate=$(dirname "$1")/../isolate
case $1 in
*/deps/*)
  case ${CARGO_PKG_NAME:-} in
  knative-operator-tests | knative-operator-test-bed) [ ! -x "$isolate" ] || exec "$isolate" "$@" ;;
  esac
  ;;
esac
exec "$@"
