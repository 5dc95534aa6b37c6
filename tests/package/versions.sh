#!/usr/bin/env bash
# Checks that all files have the same version. Usage: versions.sh [VERSION]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
cargo=$(sed -nE '/^\[workspace.package\]/,/^$/ s/^version = "(.*)"/\1/p' Cargo.toml)
version=${1:-$cargo}
wrong=0
same() { [ "$2" = "$version" ] || { printf '%s has version %s instead of %s\n' "$1" "${2:-none}" "$version" >&2 && wrong=1; }; }
same "Cargo.toml (workspace.package.version)" "$cargo"
same "Cargo.lock" "$(awk '/^name = "knative-operator"$/ {getline; gsub(/version = |"/, ""); print}' Cargo.lock)"
same "charts/knative-operator/Chart.yaml (version)" "$(sed -n 's/^version: //p' charts/knative-operator/Chart.yaml)"
same "charts/knative-operator/Chart.yaml (appVersion)" "$(sed -n 's/^appVersion: //p' charts/knative-operator/Chart.yaml)"
same "CHANGELOG.md" "$(grep -m1 -oE "^## $version( |\$)" CHANGELOG.md | awk '{print $2}')"
exit $wrong
