#!/usr/bin/env bash
# Builds everything that a release is made of in target/release-VERSION, offline, and checks it:
# images, chart, manifests, command, SBOMs, provenance, the bundle for OperatorHub, checksums.
#
#   VERSION   the version, which Cargo.toml, Chart.yaml and CHANGELOG.md must have
#   BUNDLE    folder of the release bundle in the operator's image (default: Knative's releases)
#   CHECK=no  doesn't run the checks (`make release-check` runs them)
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$here/../.."
fail() { printf '%s\n' "$*" >&2 && exit 1; }
step() { printf '==> %s\n' "$*"; }

version=${VERSION:-}
[[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$ ]] || fail "VERSION=$version is not a version: use make release VERSION=MAJOR.MINOR.PATCH"
out=target/release-$version
[ ! -e "$out" ] || fail "$out exists: delete it to build the release again"
tagged=$(git rev-parse -q --verify "v$version^{commit}" || true)
[ -z "$tagged" ] || [ "$tagged" = "$(git rev-parse HEAD)" ] || fail "the version $version is released already: tag v$version is commit $tagged"
tests/package/versions.sh "$version"

created=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
time=$(date -u -d "@$created" +%FT%TZ)
revision=$(git rev-parse HEAD)
git diff --quiet HEAD || revision+=-modified
work=$(mktemp -d "target/release-$version.XXXXXX")
work=$(cd "$work" && pwd)
trap 'rm -rf "$work"' EXIT
release=$work/release
mkdir -p "$release"
tools=$(tests/tools/install.sh crane helm kubectl cargo-cyclonedx)
pack() { tar --format=gnu --sort=name --mtime="@$created" --owner=0 --group=0 --numeric-owner "$@"; }

step "images"
[ -n "${BUNDLE:-}" ] || { operator/bundle/build.sh "$work/bundle" >&2 && BUNDLE=$work/bundle; } || fail "the release bundle can't be downloaded: use BUNDLE=folder"
BUNDLE=$BUNDLE OUT=$work/images VERSION=$version PUSH='' tests/package/images.sh
while read -r image _; do
  pack -C "$work/images/${image/:/-}" -cf "$release/${image/:/-}.oci.tar" .
done <"$work/images/digests.txt"
cp "$work/images/digests.txt" "$release/digests.txt"
digest() { sed -n "s/^$1 //p" "$release/digests.txt"; }
operator=$(digest "knative-operator:$version") webhook=$(digest "knative-operator-webhook:$version")

step "chart"
cp -r charts/knative-operator "$work/chart"
printf '{"knative_operator": "%s", "operator_webhook": "%s"}\n' "$operator" "$webhook" >"$work/chart/files/digests.json"
"$tools/helm" package "$work/chart" --destination "$release" >/dev/null

step "manifests"
offline=(--namespace knative-operator --skip-tests --kube-version 1.33)
# render NAME [FLAG…]: the chart without Helm, with its namespace.
render() {
  local name=$1
  shift
  {
    printf '# Knative operator %s: kubectl apply --server-side -f %s.yaml\n' "$version" "$name"
    printf 'apiVersion: v1\nkind: Namespace\nmetadata:\n  name: knative-operator\n'
    "$tools/helm" template knative-operator "$work/chart" "${offline[@]}" "$@"
  } >"$release/$name.yaml"
}
multicluster=(--set knative_operator.multicluster.enabled=true --set-json 'knative_operator.multicluster.accessProvidersConfig={"providers":[{"name":"secretreader","builtin":"secretreader"}]}' --set knative_operator.fleet.enabled=true)
render install
render install-multicluster "${multicluster[@]}"
for base in base multicluster; do
  mkdir -p "$work/kustomize/$base"
  cp "$release/install$([ $base = base ] || echo -multicluster).yaml" "$work/kustomize/$base/install.yaml"
  printf 'apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [install.yaml]\n' >"$work/kustomize/$base/kustomization.yaml"
done
pack -C "$work" -czf "$release/kustomize-$version.tar.gz" kustomize

step "command"
cargo build --quiet -p knative-operator-tests --bin package
machine=$(uname -m | sed 's/x86_64/amd64/; s/aarch64/arm64/')
"target/dist/$machine/knative-operator" man "$work/cli/man"
mkdir -p "$work/cli/completions"
for shell in bash zsh fish; do "target/dist/$machine/knative-operator" completions $shell >"$work/cli/completions/knative-operator.$shell"; done
cp LICENSE "$work/cli/"
# Beside the command, which so needs no other file.
cp -r target/dist/bundle "$work/cli/bundle"
archives=()
for architecture in amd64 arm64; do
  install -m 0755 "target/dist/$architecture/knative-operator" "$work/cli/knative-operator"
  archive=knative-operator-$version-linux-$architecture.tar.gz
  pack -C "$work/cli" -cf - knative-operator LICENSE bundle completions man | gzip -n -9 >"$release/$archive"
  archives+=(--archive "$architecture=$(sha256sum "$release/$archive" | cut -c1-64)")
done
target/debug/package krew --version "$version" "${archives[@]}" >"$release/knative-operator.yaml"

step "SBOM and provenance"
for part in operator webhook; do
  name=knative-operator$([ $part = operator ] || echo -webhook)
  (cd $part && SOURCE_DATE_EPOCH=$created PATH="$tools:$PATH" cargo cyclonedx --quiet --format json --target x86_64-unknown-linux-musl --no-build-deps --override-filename release-sbom)
  # Not the folder in which it was built.
  sed "s|file://$PWD|file:///src|g" "$part/release-sbom.json" >"$release/$name.cdx.json"
done
find . -name release-sbom.json -not -path './target/*' -delete
target/debug/package provenance --version "$version" --revision "$revision" --created "$time" --builder "${BUILDER:-https://github.com/knative-operator-rs/knative-operator/blob/main/Makefile}" \
  --material Cargo.lock --material operator/bundle/releases.lock >"$release/provenance.json"

step "bundle for OperatorHub"
"$tools/helm" template knative-operator "$work/chart" "${offline[@]}" "${multicluster[@]}" \
  --set knative_operator.operator_webhook.certificates.source=secret,knative_operator.operator_webhook.certificates.secretName=operator-webhook-service-cert >"$work/olm.yaml"
target/debug/package olm --rendered "$work/olm.yaml" --version "$version" --created "$time" --out "$work/olm"
pack -C "$work" -czf "$release/operatorhub-$version.tar.gz" olm

step "notes and checksums"
awk -v heading="## $version" 'index($0, "## ") == 1 {on = (index($0, heading) == 1); next} on' CHANGELOG.md |
  sed "s|](docs/|](https://github.com/knative-operator-rs/knative-operator/blob/v$version/docs/|g" >"$release/NOTES.md"
(cd "$release" && sha256sum -- * >"$work/SHA256SUMS" && mv "$work/SHA256SUMS" .)
[ "${CHECK:-}" = no ] || RELEASE=$release tests/package/check.sh
mv "$release" "$out"
printf '\n%s:\n' "$out"
(cd "$out" && stat -c '%12s  %n' -- *)
