#!/usr/bin/env bash
# Publishes a release: pushes images and chart, and signs and attests the images without a key, with
# the identity of the workflow. Usage: publish.sh VERSION REGISTRY
#
#   REGISTRY_USER, REGISTRY_PASSWORD   credentials of the registry
#   COSIGN_FLAGS, HELM_FLAGS           more flags, such as those for a key
#   RELEASE                            folder of the release
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
version=$1 registry=$2 release=${RELEASE:-target/release-$1}
[ -d "$release" ] || { echo "$release does not exist: run make release VERSION=$version" >&2; exit 1; }
tools=$(tests/tools/install.sh crane cosign helm)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ -n "${REGISTRY_USER:-}" ]; then
  "$tools/crane" auth login "${registry%%/*}" --username "$REGISTRY_USER" --password-stdin <<<"$REGISTRY_PASSWORD" >&2
fi
cp "$release/digests.txt" "$work/"
while read -r image _; do
  mkdir -p "$work/${image/:/-}"
  tar -xf "$release/${image/:/-}.oci.tar" -C "$work/${image/:/-}"
done <"$release/digests.txt"
tests/package/push.sh "$work" "$registry"
read -ra flags <<<"--yes ${COSIGN_FLAGS:-}"
while read -r image digest; do
  name=${image%%:*} reference=$registry/${image%%:*}@$digest
  "$tools/cosign" sign "${flags[@]}" "$reference"
  "$tools/cosign" attest "${flags[@]}" --type cyclonedx --predicate "$release/$name.cdx.json" "$reference"
  "$tools/cosign" attest "${flags[@]}" --type slsaprovenance1 --predicate "$release/provenance.json" "$reference"
done <"$release/digests.txt"
"$tools/helm" push "$release/knative-operator-$version.tgz" "oci://$registry/charts" ${HELM_FLAGS:-}
