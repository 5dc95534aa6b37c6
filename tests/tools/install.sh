#!/usr/bin/env bash
# Provides the binaries of the test control plane and prints their folder.
#
# Takes each binary from the first source that has it: $KUBEBUILDER_ASSETS, the cache outside the
# tree, the official downloads (verified with their published checksums; given up within seconds if
# they can't be reached), `go build`.
#
#   KNATIVE_OPERATOR_CACHE  cache folder (default: $XDG_CACHE_HOME or ~/.cache, + knative-operator)
#   TOOLS_MIRROR            a mirror for the downloads, with paths HOST/PATH
#   TOOLS_DOWNLOAD=no       don't download, build with Go
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$here"

K8S=v1.36.3 ETCD=v3.6.16 KWOK=v0.8.0 HELM=v3.22.0
os=$(uname -s | tr '[:upper:]' '[:lower:]')
case $(uname -m) in x86_64) arch=amd64 ;; aarch64 | arm64) arch=arm64 ;; *) arch=$(uname -m) ;; esac

key=$( (cat ./*/go.mod ./*/go.sum; grep -m1 "^K8S=" install.sh) | sha256sum | cut -c1-16)
root=${KNATIVE_OPERATOR_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/knative-operator}
bin=$root/tools/$key
mkdir -p "$bin"
exec 9>"$bin/.lock"
flock 9

say() { printf '%s\n' "$*" >&2; }

# download HOST/PATH FILE: downloads a file. Gives up quickly if the host can't be reached.
download() {
  local url=https://$1
  [ -z "${TOOLS_MIRROR:-}" ] || url=$TOOLS_MIRROR/$1
  curl --fail --silent --show-error --location --connect-timeout 3 --retry 2 --retry-max-time 60 --max-time 300 -o "$2" "$url" 2>/dev/null
}

# verified HOST/PATH CHECKSUM-HOST/PATH FILE: downloads a file and compares it with its published
# SHA-256 checksum.
verified() {
  download "$1" "$3" && download "$2" "$3.sum" || return 1
  local wanted
  wanted=$(grep -E "(^|[ /])$(basename "$1")\$" "$3.sum" | head -n1 | cut -c1-64 || true)
  [ -n "$wanted" ] || wanted=$(cut -c1-64 <"$3.sum" | head -n1)
  if [ "$wanted" != "$(sha256sum "$3" | cut -c1-64)" ]; then
    say "$(basename "$1"): the download does not match its published checksum; ignored"
    return 1
  fi
}

official() {
  [ "${TOOLS_DOWNLOAD:-yes}" != no ] && command -v curl >/dev/null || return 1
  local name=$1 tmp=$2 path
  case $name in
  kube-apiserver | kube-controller-manager | kube-scheduler | kubectl)
    path=dl.k8s.io/release/$K8S/bin/$os/$arch/$name
    verified "$path" "$path.sha256" "$tmp/$name"
    ;;
  etcd)
    path=github.com/etcd-io/etcd/releases/download/$ETCD
    verified "$path/etcd-$ETCD-$os-$arch.tar.gz" "$path/SHA256SUMS" "$tmp/etcd.tar.gz" &&
      tar -xzf "$tmp/etcd.tar.gz" -C "$tmp" --strip-components=1 "etcd-$ETCD-$os-$arch/etcd"
    ;;
  helm)
    path=get.helm.sh/helm-$HELM-$os-$arch.tar.gz
    verified "$path" "$path.sha256sum" "$tmp/helm.tar.gz" &&
      tar -xzf "$tmp/helm.tar.gz" -C "$tmp" --strip-components=1 "$os-$arch/helm"
    ;;
  *) return 1 ;; # kwok and the plugins are published without checksums, or as images only
  esac
}

build() {
  local name=$1 out=$2
  command -v go >/dev/null || { say "$name: not in the cache, and the download failed; install Go 1.26 or later to build it"; return 1; }
  local v=k8s.io/component-base/version package module=kubernetes ldflags="-s -w"
  case $name in
  etcd) module=etcd package=go.etcd.io/etcd/server/v3 ;;
  kwok) module=kwok package=sigs.k8s.io/kwok/cmd/kwok ;;
  helm) module=helm package=helm.sh/helm/v3/cmd/helm ;;
  *secretreader-plugin) module=secretreader package=sigs.k8s.io/cluster-inventory-api/plugins/${name%-plugin}/cmd/plugin ;;
  *) package=k8s.io/kubernetes/cmd/$name ldflags="-s -w -X $v.gitVersion=$K8S -X $v.gitMajor=1 -X $v.gitMinor=36" ;;
  esac
  say "building $name (once; several minutes in all, then cached in $bin)"
  (cd "$module" && CGO_ENABLED=0 go build -ldflags "$ldflags" -o "$out" "$package")
}

# stages: the stages of nodes and Pods in the KWOK module.
stages() {
  local dir
  [ ! -s "$bin/kwok-stages.yaml" ] || return 0
  dir=$(cd kwok && go list -m -f '{{.Dir}}' sigs.k8s.io/kwok)/kustomize/stage
  for file in "$dir"/node/fast/*.yaml "$dir"/node/heartbeat-with-lease/*.yaml "$dir"/pod/fast/*.yaml; do
    case $file in */kustomization.yaml) ;; *) printf -- '---\n' && cat "$file" && printf '\n' ;; esac
  done >"$bin/kwok-stages.tmp"
  mv "$bin/kwok-stages.tmp" "$bin/kwok-stages.yaml"
}

# profile_crd: the CRD of ClusterProfile in its official module.
profile_crd() {
  local dir
  [ ! -s "$bin/clusterprofiles.yaml" ] || return 0
  dir=$(cd secretreader && go list -m -f '{{.Dir}}' sigs.k8s.io/cluster-inventory-api)
  install -m 0644 "$dir"/config/crd/bases/multicluster.x-k8s.io_clusterprofiles.yaml "$bin/clusterprofiles.yaml"
}

provide() {
  local name=$1 tmp
  [ ! -x "$bin/$name" ] || return 0
  if [ -n "${KUBEBUILDER_ASSETS:-}" ] && [ -x "$KUBEBUILDER_ASSETS/$name" ]; then
    ln -sf "$KUBEBUILDER_ASSETS/$name" "$bin/$name"
    return 0
  fi
  tmp=$(mktemp -d "$bin/.tmp.XXXXXX")
  official "$name" "$tmp" || build "$name" "$tmp/$name" || { rm -rf "$tmp"; return 1; }
  chmod +x "$tmp/$name"
  mv "$tmp/$name" "$bin/$name"
  rm -rf "$tmp"
}

tools=("$@")
[ ${#tools[@]} -gt 0 ] || tools=(kube-apiserver kube-controller-manager kube-scheduler kubectl etcd kwok helm secretreader-plugin kubeconfig-secretreader-plugin)
for tool in "${tools[@]}"; do
  provide "$tool"
  case $tool in kwok) stages ;; secretreader-plugin) profile_crd ;; esac
done
printf '%s\n' "$bin"
