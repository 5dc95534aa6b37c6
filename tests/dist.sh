#!/usr/bin/env bash
# Copies the contents of the images to target/dist and checks that the binaries are static, have at
# most 15 MB and start. Usage: tests/dist.sh x86_64
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
machine=$1
case $machine in x86_64) architecture=amd64 ;; aarch64) architecture=arm64 ;; *) architecture=$machine ;; esac
to=target/dist/$architecture
mkdir -p "$to" target/dist/bundle
for binary in knative-operator knative-operator-webhook; do
  cp "target/$machine-unknown-linux-musl/release/$binary" "$to/"
  size=$(stat -c %s "$to/$binary")
  if readelf -lW "$to/$binary" | grep -q INTERP; then echo "$binary is not static"; exit 1; fi
  "$to/$binary" --version >/dev/null
  printf '%-26s %5.1f MB\n' "$binary" "$(awk "BEGIN {print $size / 1e6}")"
  [ "$size" -le 15000000 ] || { echo "$binary is larger than 15 MB"; exit 1; }
done
for file in /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt; do
  if [ -f "$file" ]; then cp "$file" target/dist/ca-certificates.crt; break; fi
done
