#!/usr/bin/env bash
# Checks the files of a release with the tools of their formats, and on a real API server.
#
#   RELEASE   folder of the release
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
RELEASE=$(cd "$RELEASE" && pwd)
export RELEASE
fail() { printf '%s\n' "$*" >&2 && exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tools=$(tests/tools/install.sh crane cosign operator-verify validate-krew-manifest helm kubectl)
echo "==> checksums"
(cd "$RELEASE" && sha256sum --check --quiet SHA256SUMS)
echo "==> bundle for OperatorHub (operator-verify)"
tar -xzf "$RELEASE"/operatorhub-*.tar.gz -C "$work"
"$tools/operator-verify" manifests --operatorhub_validate --object_validate "$work/olm" >"$work/olm.log" 2>&1 || fail "$(cat "$work/olm.log")"
cat "$work/olm.log"
! grep -q 'level=error' "$work/olm.log" || fail "the bundle is invalid"
echo "==> krew manifest (validate-krew-manifest)"
"$tools/validate-krew-manifest" -manifest "$RELEASE/knative-operator.yaml" -skip-install 2>&1
if ! command -v qemu-aarch64-static >/dev/null && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  apt-get install -y -qq --no-install-recommends qemu-user-static >/dev/null 2>&1 || true
fi
echo "==> signatures, chart and manifests (a registry and an API server)"
for archive in "$RELEASE"/*.oci.tar; do
  folder=$work/images/$(basename "$archive" .oci.tar)
  mkdir -p "$folder"
  tar -xf "$archive" -C "$folder"
done
cp "$RELEASE/digests.txt" "$work/images/"
export KNATIVE_IMAGES=$work/images
tests/tools/install.sh >/dev/null
cargo build --quiet --workspace
cargo test --quiet -p knative-operator-tests --test release -- --nocapture
