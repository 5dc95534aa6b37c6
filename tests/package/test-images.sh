#!/usr/bin/env bash
# Builds the images that tests and the demo run, for this machine, with the small release of this
# project. Where the tools are missing, says "skipped" and builds binaries that run as processes.
# Usage: test-images.sh FOLDER PROFILE
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
folder=$1 profile=$2
case $(uname -m) in x86_64) architecture=amd64 ;; *) architecture=arm64 ;; esac
target=$(uname -m)-unknown-linux-musl

skip() {
  printf 'skipped: images in containers: %s\n' "$*" >&2
  rm -rf "$folder"
  cargo build --quiet --workspace --bins $([ "$profile" != release ] || echo --release)
  exit 0
}

log=$(mktemp)
trap 'rm -f "$log"' EXIT
[ "$(id -u)" = 0 ] || skip "containers need root"
tests/tools/install.sh zig crane registry runc >"$log" 2>&1 || skip "$(tail -n1 "$log")"
if ! rustup target list --installed 2>/dev/null | grep -q "$target"; then
  rustup target add "$target" >"$log" 2>&1 || skip "the target $target can't be installed: $(tail -n1 "$log")"
fi
VERSION='' PUSH='' PROFILE=$profile ARCHITECTURES=$architecture OUT=$folder DIST=$folder-dist GZIP_LEVEL=-1 BUNDLE=tests/release \
  tests/package/images.sh >"$log" 2>&1 || { cat "$log" >&2 && exit 1; }
