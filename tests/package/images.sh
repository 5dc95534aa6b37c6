#!/usr/bin/env bash
# Builds the images as OCI image layouts, without a container engine: crane packs what dist.sh
# built, by the instructions of the Dockerfiles. Prints digests and sizes.
#
#   OUT             folder of the layouts (default: target/images); replaced when all are complete
#   VERSION         tag (default: the version in Cargo.toml)
#   BUNDLE          folder of the release bundle. `none`: only the image without a bundle.
#                   Default: Knative's releases, from the sources of operator/bundle/build.sh.
#   REGISTRY, PUSH  with PUSH=yes: pushes to the registry and prints the values of the chart
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$here/../.."
"$here/paths.sh"
say() { printf '%s\n' "$*" >&2; }
fail() { say "$*" && exit 1; }

cargo_version=$(sed -nE '/^\[workspace.package\]/,/^$/ s/^version = "(.*)"/\1/p' Cargo.toml)
version=${VERSION:-$cargo_version}
[[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$ ]] || fail "VERSION=$version is not a version: use MAJOR.MINOR.PATCH, such as $cargo_version"
[ "$version" = "$cargo_version" ] || fail "VERSION=$version: Cargo.toml has version $cargo_version; set workspace.package.version"
export ARCHITECTURES=${ARCHITECTURES:-amd64 arm64} PROFILE=${PROFILE:-release} DIST=${DIST:-target/dist}
out=${OUT:-target/images}
[ "${PUSH:-}" != yes ] || [ -n "${REGISTRY:-}" ] || fail "PUSH=yes needs REGISTRY=host/path"

# The release bundle.
if [ -z "${BUNDLE:-}" ]; then
  # An empty folder: only files with their checksum are in the image.
  rm -rf target/bundle
  BUNDLE=target/bundle
  if ! BUNDLE='' operator/bundle/build.sh target/bundle >&2; then
    say "NOTE: Knative's releases can't be downloaded, so only the image without a release bundle is built. Use BUNDLE=folder."
    BUNDLE=none
  fi
fi
[ "$BUNDLE" = none ] || [ -d "$BUNDLE" ] || fail "BUNDLE=$BUNDLE is not a folder"
export BUNDLE="${BUNDLE#none}"
"$here/dist.sh"

tools=$(tests/tools/install.sh crane)
work=$(mktemp -d "${out%/}.XXXXXX")
trap 'kill "${registry:-}" 2>/dev/null || true; rm -rf "$work"' EXIT
"$tools/crane" registry serve --address 127.0.0.1:0 2>"$work/log" &
registry=$!
limit=$((SECONDS + 30))
until port=$(sed -n 's/.*serving on port //p' "$work/log") && [ -n "$port" ]; do
  [ $SECONDS -lt $limit ] || fail "the registry of crane has not started after 30 s"
  kill -0 $registry 2>/dev/null || fail "$(cat "$work/log")"
  sleep 0.05
done
at=127.0.0.1:$port

revision=$(git rev-parse HEAD 2>/dev/null || echo unknown)
git diff --quiet HEAD 2>/dev/null || revision+=-modified
created=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
labels=(
  --label "org.opencontainers.image.source=https://github.com/knative-operator-rs/knative-operator"
  --label "org.opencontainers.image.revision=$revision"
  --label "org.opencontainers.image.version=$version"
  --label "org.opencontainers.image.licenses=Apache-2.0"
  --label "org.opencontainers.image.created=$(date -u -d "@$created" +%FT%TZ)"
)

# layer SOURCE DESTINATION FILE: packs a COPY instruction. Equal contents are equal bytes.
layer() {
  local root=$work/root
  rm -rf "$root" && mkdir -p "$root"
  case $2 in
  */) mkdir -p "$root$2" && cp -a "$1/." "$root$2" ;;
  *) mkdir -p "$(dirname "$root$2")" && cp -a "$1" "$root$2" ;;
  esac
  tar --format=gnu --sort=name --mtime="@$created" --owner=0 --group=0 --numeric-owner -C "$root" -cf - . | gzip -n ${GZIP_LEVEL:--9} >"$3"
}

# crane COMMAND…: prints what crane prints, or fails with its error.
crane() { "$tools/crane" "$@" 2>"$work/error" || fail "$(cat "$work/error")"; }

# image NAME DOCKERFILE TAG: builds an image for each architecture, and an index of them. It goes on
# with digests, not tags: other users of the machine can push to the registry.
image() {
  local name=$1 file=$2 tag=$3 architecture line source number parts=() layers settings built
  for architecture in $ARCHITECTURES; do
    layers=() settings=() number=0
    while read -r line; do
      case $line in
      '' | '#'* | 'FROM scratch' | 'ARG TARGETARCH') ;;
      'COPY target/dist/bundle/ '*) [[ $tag == *-slim ]] || add_layer "$line" ;;
      'COPY '*) add_layer "$line" ;;
      'USER '*) settings+=(--user "${line#USER }") ;;
      'ENTRYPOINT ["'*'"]') settings+=(--entrypoint "$(sed -E 's/ENTRYPOINT \["(.*)"\]/\1/' <<<"$line")") ;;
      'LABEL '*) settings+=(--label "$(sed -E 's/LABEL ([^=]*)="(.*)"/\1=\2/' <<<"$line")") ;;
      *) fail "$file: images.sh does not know this instruction: $line" ;;
      esac
    done <"$file"
    built=$(crane append --oci-empty-base "${layers[@]}" -t "$at/$name:$architecture")
    built=$(crane mutate "$built" --workdir / --set-platform "linux/$architecture" "${settings[@]}" "${labels[@]}" -t "$at/$name:$architecture")
    parts+=(-m "$built")
  done
  built=$(crane index append --docker-empty-base=false "${parts[@]}" -t "$at/$name:$tag")
  "$tools/crane" validate --remote "$built" >&2
  crane pull --format=oci "$built" "$work/layouts/$name-$tag"
  report "$name" "$tag" "${built#*@}"
}

add_layer() {
  read -r _ source destination <<<"$1"
  source=${source/'${TARGETARCH}'/$architecture}
  layer "$DIST${source#target/dist}" "$destination" "$work/$name-$number.tar.gz"
  layers+=(-f "$work/$name-$number.tar.gz")
  number=$((number + 1))
}

# report NAME TAG DIGEST: prints digest and compressed sizes. Without a bundle: at most 12 MB.
report() {
  local digest=$3 architecture size sizes=()
  for architecture in $ARCHITECTURES; do
    size=$("$tools/crane" manifest --platform "linux/$architecture" "$at/$1@$digest" | grep -oE '"size": ?[0-9]+' | grep -oE '[0-9]+' | awk '{s += $1} END {print s}')
    sizes+=("$architecture $(awk "BEGIN {printf \"%.1f MB\", $size / 1e6}")")
    [ "$PROFILE" != release ] || [ -n "$BUNDLE" -a "$2" = "$version" ] || [ "$size" -le 12000000 ] || fail "$1:$2 for $architecture is larger than 12 MB"
  done
  printf '%s %s\n' "$1:$2" "$digest" >>"$work/layouts/digests.txt"
  printf '%-40s %s  %s\n' "$1:$2" "$digest" "$(IFS=,; echo "${sizes[*]}")"
}

mkdir -p "$work/layouts"
[ -z "$BUNDLE" ] || image knative-operator operator/Dockerfile "$version"
image knative-operator operator/Dockerfile "$version-slim"
image knative-operator-webhook webhook/Dockerfile "$version"
rm -rf "$out"
mv "$work/layouts" "$out"
printf 'OCI image layouts: %s\n' "$out"
[ "${PUSH:-}" != yes ] || "$here/push.sh" "$out" "$REGISTRY"
