#!/usr/bin/env bash
# Builds the images that tests and the demo run, for this machine, in target/images-test. Where the
# tools are missing, says "skipped" and builds binaries that run as processes. With DEMO=yes, also
# builds the demo; target/demo is the folder of its binaries.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
folder=target/images-test profile=image-test
case $(uname -m) in x86_64) architecture=amd64 ;; *) architecture=arm64 ;; esac
target=$(uname -m)-unknown-linux-musl

# skip NEEDS REASON: with REQUIRE_ALL, only another kernel is a reason.
skip() {
  [ "$1" = kernel ] || [ -z "${REQUIRE_ALL:-}" ] || { printf 'REQUIRE_ALL: images in containers: %s\n' "$2" >&2; exit 1; }
  mkdir -p target
  printf 'skipped: images in containers: %s\n' "$2" | tee -a target/skipped.txt >&2
  rm -rf "$folder"
  cargo build --quiet --workspace --bins
  ln -sfn debug target/demo
  exit 0
}

log=$(mktemp)
trap 'rm -f "$log"' EXIT
[ "$(id -u)" = 0 ] || skip kernel "containers need root"
reason=$(tests/package/paths.sh 2>&1) || skip tools "$reason"
# Downloads and builds take minutes: what they print is shown.
tests/tools/install.sh zig crane 2>&1 >/dev/null | tee "$log" >&2 || skip tools "$(tail -n1 "$log")"
if ! rustup target list --installed 2>/dev/null | grep -q "$target"; then
  rustup target add "$target" >"$log" 2>&1 || skip tools "the target $target can't be installed: $(tail -n1 "$log")"
fi
VERSION='' PUSH='' PROFILE=$profile ARCHITECTURES=$architecture OUT=$folder DIST=$folder-dist GZIP_LEVEL=-1 BUNDLE=tests/release \
  tests/package/images.sh >"$log" 2>&1 || { cat "$log" >&2 && exit 1; }
[ "${DEMO:-}" != yes ] || ln -sfn "$target/$profile" target/demo
