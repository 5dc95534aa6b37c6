#!/usr/bin/env bash
# Builds the contents of the images in target/dist: static binaries (musl) for each architecture,
# users, certificate authorities, and the release bundle.
#
#   ARCHITECTURES   default: amd64 arm64
#   PROFILE         Cargo profile (default: release)
#   BUNDLE          folder of the release bundle; empty: none
#   DEMO=yes        also builds the demo, which then shares the dependencies
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
profile=${PROFILE:-release}
dist=${DIST:-target/dist}
say() { printf '%s\n' "$*" >&2; }

tools=$(tests/tools/install.sh zig)
zig=$(readlink -f "$tools/zig")
export PATH="$zig/bin:$PATH" PYTHONPATH="$zig" CARGO_ZIGBUILD_ZIG_PATH="$zig/ziglang/zig"
# The binaries don't depend on the folders in which they are built.
cargo_home=${CARGO_HOME:-$HOME/.cargo}
export RUSTFLAGS="--remap-path-prefix=$PWD=/src --remap-path-prefix=$cargo_home=/cargo"
export CFLAGS="-ffile-prefix-map=$PWD=/src -ffile-prefix-map=$cargo_home=/cargo"
# Kernels for arm64 have pages of up to 64 KiB. jemalloc needs the size when it is built.
export JEMALLOC_SYS_WITH_LG_PAGE=16

rm -rf "$dist"
mkdir -p "$dist/base/etc/ssl/certs" "$dist/base/tmp" "$dist/bundle"
for architecture in ${ARCHITECTURES:-amd64 arm64}; do
  case $architecture in
  amd64) target=x86_64-unknown-linux-musl ;;
  arm64) target=aarch64-unknown-linux-musl ;;
  *) say "architecture $architecture is not supported: use amd64 or arm64" && exit 1 ;;
  esac
  rustup target list --installed 2>/dev/null | grep -q $target || rustup target add $target >&2
  # Together: built apart, they would have other features, and so other dependencies. So images of
  # tests have the features of the demo, whether it is built or not.
  built=(-p knative-operator -p knative-operator-webhook --bin knative-operator --bin knative-operator-webhook)
  [ "$profile" = release ] || built+=(-p knative-operator-tests -p knative-operator-test-bed)
  [ "${DEMO:-}" != yes ] || built+=(--bin demo --bin tether --bin isolate)
  cargo zigbuild --quiet --locked --profile "$profile" --target $target "${built[@]}"
  mkdir -p "$dist/$architecture"
  for binary in knative-operator knative-operator-webhook; do
    file=$dist/$architecture/$binary
    install -m 0755 "target/$target/$profile/$binary" "$file"
    if readelf -lW "$file" | grep -q INTERP; then say "$binary for $architecture is not static" && exit 1; fi
    [ "$profile" != release ] || printf '%-26s %-6s %5.1f MB\n' "$binary" "$architecture" "$(awk "BEGIN {print $(stat -c %s "$file") / 1e6}")"
  done
done

# Certificate authorities of the distribution, without those that this machine adds.
if [ -d /usr/share/ca-certificates/mozilla ]; then
  cat /usr/share/ca-certificates/mozilla/*.crt >"$dist/base/etc/ssl/certs/ca-certificates.crt"
elif [ -f /etc/pki/tls/certs/ca-bundle.crt ]; then
  cp /etc/pki/tls/certs/ca-bundle.crt "$dist/base/etc/ssl/certs/ca-certificates.crt"
else
  say "no certificate authorities: install ca-certificates" && exit 1
fi
printf 'root:x:0:0:root:/:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/:/sbin/nologin\n' >"$dist/base/etc/passwd"
printf 'root:x:0:\nnonroot:x:65532:\n' >"$dist/base/etc/group"
if [ -n "${BUNDLE:-}" ]; then
  [ -d "$BUNDLE" ] || { say "BUNDLE=$BUNDLE is not a folder"; exit 1; }
  cp -rL "$BUNDLE/." "$dist/bundle/"
fi
chmod -R u=rwX,go=rX "$dist/base" "$dist/bundle"
chmod 1777 "$dist/base/tmp"
