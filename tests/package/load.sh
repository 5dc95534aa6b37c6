#!/usr/bin/env bash
# Loads image layouts into a local cluster of kind, k3d or minikube, the first that is installed.
# Usage: load.sh FOLDER. CLUSTER is the name of the cluster.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
folder=$1
fail() { printf '%s\n' "$*" >&2 && exit 1; }
[ -s "$folder/digests.txt" ] || fail "$folder has no images: run make images"
tool=""
for candidate in kind k3d minikube; do
  if [ -z "$tool" ] && command -v $candidate >/dev/null; then tool=$candidate; fi
done
[ -n "$tool" ] || { echo "skipped: neither kind nor k3d nor minikube is installed; for other clusters, push the images: make images REGISTRY=host/path PUSH=yes"; exit 0; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tools=$(tests/tools/install.sh crane)
case $(uname -m) in x86_64) architecture=amd64 ;; *) architecture=arm64 ;; esac
"$tools/crane" registry serve --address 127.0.0.1:0 2>"$work/log" &
trap 'kill $! 2>/dev/null || true; rm -rf "$work"' EXIT
limit=$((SECONDS + 30))
until port=$(sed -n 's/.*serving on port //p' "$work/log") && [ -n "$port" ]; do
  [ $SECONDS -lt $limit ] || fail "the registry of crane has not started after 30 s"
  kill -0 $! 2>/dev/null || fail "$(cat "$work/log")"
  sleep 0.05
done
while read -r image digest; do
  # These tools load archives in Docker's format, for one architecture, with the name in the chart.
  at=127.0.0.1:$port/${image%:*}@$digest
  "$tools/crane" push "$folder/${image/:/-}" "127.0.0.1:$port/$image" >/dev/null 2>&1
  archive=$work/${image/:/-}.tar
  name=ghcr.io/knative-operator-rs/$image
  "$tools/crane" mutate --platform "linux/$architecture" "$at" --tag "$name" --output "$archive" >/dev/null 2>"$work/error" || fail "$(cat "$work/error")"
  case $tool in
  kind) kind load image-archive "$archive" --name "${CLUSTER:-kind}" ;;
  k3d) k3d image import "$archive" --cluster "${CLUSTER:-k3s-default}" ;;
  minikube) minikube image load "$archive" --profile "${CLUSTER:-minikube}" ;;
  esac
  echo "loaded $name into $tool"
done <"$folder/digests.txt"
