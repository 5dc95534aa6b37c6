#!/usr/bin/env bash
# Builds a release bundle: Knative's released manifests, in the layout that the operator reads
# (--releases).
#
#   build.sh OUT [VERSION…]     all of releases.lock, or only these versions of Serving and Eventing
#
# Takes each file from the first source that has it: the folder $BUNDLE, if it is set (and then no
# other); the cache outside the tree; the Go module knative.dev/operator, with Go; GitHub.
# Compares every file with its checksum in releases.lock. After an interruption, run it again: it
# keeps complete files and continues partial downloads. In the end, OUT has exactly these files:
# others of an earlier bundle are deleted, and a folder with anything else is refused. Exits with 1
# if a file is missing or wrong.
#
#   BUNDLE                  folder with the files
#   KNATIVE_OPERATOR_CACHE  cache folder (default: $XDG_CACHE_HOME or ~/.cache, + knative-operator)
#   BUNDLE_MODULE=no        doesn't use the Go module
#   BUNDLE_SOURCE           URL to download from (default https://github.com)
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
[ $# -ge 1 ] || { sed -n '2,17p' "${BASH_SOURCE[0]}" | sed 's/^# \{0,1\}//' >&2; exit 2; }
out=$1
shift
lock=${BUNDLE_LOCK:-$here/releases.lock}
from=${BUNDLE_SOURCE:-https://github.com}
root=${KNATIVE_OPERATOR_CACHE:-${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}/knative-operator}
cache=$root/releases/$(sha256sum "$lock" | cut -c1-16)
module_folder=$here/../../tests/tools/go-operator

# Places of files in bundles, with those of partial downloads and copies.
layout='^(knative-serving|knative-eventing|ingress|eventing-source|security-guard)/[^/]+/([^/]+/)?[^/]+\.yaml(\.part(\.error)?|\.[0-9]+)?$'

# found: the places of all files in OUT, separated by NUL.
found() { find -H "$out" -mindepth 1 -not -type d -printf '%P\0'; }

wanted() {
  [ $# -gt 1 ] || return 0
  local place=$1 version
  shift
  for version in "$@"; do
    version=${version#v}
    case $place in
    knative-serving/"$version"/* | knative-eventing/"$version"/*) return 0 ;;
    ingress/"${version%.*}"/* | eventing-source/"${version%.*}"/*) return 0 ;;
    security-guard/*) return 0 ;;
    esac
  done
  return 1
}

sum() { sha256sum "$1" 2>/dev/null | cut -c1-64; }

# checked FOLDER: prints the places of rows whose file in FOLDER has its checksum.
checked() {
  [ -d "$1" ] || return 0
  (cd "$1" && printf '%s\n' "${sums[@]}" | sha256sum --check 2>/dev/null || true) | sed -n 's/: OK$//p'
}

# copy FILE TARGET CHECKSUM: copies a file, and checks the copy, which is complete or not there.
copy() {
  local new=$2.$$
  cp "$1" "$new" && [ "$(sum "$new")" = "$3" ] && chmod 0644 "$new" && mv -T "$new" "$2" && return 0
  rm -f "$new"
  return 1
}

# use FOLDER NAME: copies what is missing and right in FOLDER.
use() {
  local folder=$1 name=$2 place number=0
  while read -r place; do
    [ -n "${missing[$place]:-}" ] || continue
    mkdir -p "$(dirname "$out/$place")"
    copy "$folder/$place" "$out/$place" "${checksums[$place]}" || continue
    unset "missing[$place]"
    number=$((number + 1))
  done < <(checked "$folder")
  [ $number = 0 ] || echo "$number files from $name"
  for place in "${!missing[@]}"; do
    [ ! -e "$folder/$place" ] || echo "$place: in $name, its checksum is $(sum "$folder/$place"), not ${checksums[$place]}: ignored"
  done
}

# The rows that are wanted, and what is missing.
declare -A missing=() paths=() checksums=()
places=() sums=()
while read -r checksum place path; do
  case $checksum in '' | \#*) continue ;; esac
  wanted "$place" "$@" || continue
  places+=("$place") sums+=("$checksum  $place")
  missing[$place]=yes paths[$place]=$path checksums[$place]=$checksum
done <"$lock"
total=${#places[@]}
versions=$(grep -oE '^[0-9a-f]+ +knative-(serving|eventing)/[^/]+' "$lock" | sed 's|.*/||' | sort -uV | tr '\n' ' ')
for version in "$@"; do
  case " $versions" in *" ${version#v} "*) ;; *) echo "releases.lock has nothing for version $version; it has $versions" >&2; exit 1 ;; esac
done
[ "$total" -gt 0 ] || { echo "$lock lists no files" >&2; exit 1; }
mkdir -p "$out" 2>/dev/null && [ -w "$out" ] || { echo "$out can't be written: use another folder" >&2; exit 1; }
while IFS= read -r -d '' file; do
  [[ $file =~ $layout ]] || { echo "$out is neither empty nor a bundle, for it has $file: use another folder" >&2; exit 1; }
done < <(found)
for place in $(checked "$out"); do [ -L "$out/$place" ] || unset "missing[$place]"; done
[ ${#missing[@]} = "$total" ] || echo "$((total - ${#missing[@]})) files exist in $out"

if [ -n "${BUNDLE:-}" ]; then
  [ -d "$BUNDLE" ] || { echo "BUNDLE=$BUNDLE is not a folder" >&2; exit 1; }
  use "$BUNDLE" "the folder $BUNDLE"
  for place in "${places[@]}"; do
    [ -z "${missing[$place]:-}" ] || [ -e "$BUNDLE/$place" ] || echo "$place: FAILED: it is not in $BUNDLE"
  done
elif [ ${#missing[@]} -gt 0 ]; then
  [ "$cache" -ef "$out" ] || use "$cache" "the cache $cache"
  if [ ${#missing[@]} -gt 0 ] && [ "${BUNDLE_MODULE:-}" != no ] && command -v go >/dev/null && [ -f "$module_folder/go.mod" ]; then
    error=$(mktemp)
    if (cd "$module_folder" && timeout --foreground 120 go mod download knative.dev/operator) 2>"$error" >&2 &&
      dir=$(cd "$module_folder" && go list -m -f '{{.Dir}}' knative.dev/operator 2>"$error"); then
      use "$dir/cmd/operator/kodata" "the Go module ${dir##*/pkg/mod/}"
    else
      reason=$(tail -n1 "$error")
      echo "the Go module knative.dev/operator can't be downloaded: ${reason:-no answer in 120 s}"
    fi
    rm -f "$error"
  fi
fi

# The rest from GitHub.
[ ${#missing[@]} = 0 ] || [ -n "${BUNDLE:-}" ] || command -v curl >/dev/null || { echo "install curl (Debian: apt-get install curl)" >&2; exit 1; }
number=0 downloaded=0
retries=() # none until something is downloaded: without a connection, give up within ten seconds
for place in "${places[@]}"; do
  number=$((number + 1))
  [ -n "${missing[$place]:-}" ] && [ -z "${BUNDLE:-}" ] || continue
  target=$out/$place part=$out/$place.part
  printf '[%d/%d] %s' "$number" "$total" "$place"
  mkdir -p "$(dirname "$target")"
  # Continues a partial download. If that fails or the checksum differs, downloads the file again,
  # once.
  for attempt in continue continue restart; do
    status=0
    [ "$attempt" = continue ] || rm -f "$part"
    curl --fail --silent --show-error --location --proto-redir =https,http "${retries[@]}" --connect-timeout 8 --max-time 300 \
      --continue-at - --output "$part" "$from/${paths[$place]}" 2>"$part.error" || status=$?
    case ${#retries[@]}-$status in 0-[567] | 0-28)
      echo ": FAILED: $(tail -n1 "$part.error")"
      rm -f "$part.error"
      echo "$from can't be reached; ${#missing[@]} of $total files are missing in $out: make it or the Go module proxy reachable (with Go 1.26 or later), or use BUNDLE=folder" >&2
      exit 1
      ;;
    esac
    retries=(--retry 3 --retry-connrefused)
    [ "$(sum "$part")" != "${checksums[$place]}" ] || break
  done
  if [ "$(sum "$part")" = "${checksums[$place]}" ]; then
    mv -T "$part" "$target"
    unset "missing[$place]"
    downloaded=$((downloaded + 1))
    echo ": $(wc -c <"$target") bytes"
  elif [ -s "$part.error" ]; then
    echo ": FAILED: $(tail -n1 "$part.error")"
  else
    echo ": FAILED: its checksum is $(sum "$part"), not ${checksums[$place]}"
  fi
  rm -f "$part.error"
done
[ $downloaded = 0 ] || echo "$downloaded files from $from"
if [ ${#missing[@]} -gt 0 ]; then
  hint="run the same command again to continue"
  [ -z "${BUNDLE:-}" ] || hint="complete the folder $BUNDLE, or run it without BUNDLE for the other sources"
  echo "${#missing[@]} of $total files are missing in $out; $hint" >&2
  exit 1
fi
# What releases.lock doesn't list here: files of an earlier bundle, and parts of downloads.
deleted=0
while IFS= read -r -d '' file; do
  [ -z "${paths[$file]:-}" ] || continue
  rm -f -- "$out/$file"
  deleted=$((deleted + 1))
done < <(found)
find -H "$out" -mindepth 1 -type d -empty -delete
[ $deleted = 0 ] || echo "$deleted other files of an earlier bundle are deleted"
# For the next bundle, and for clones without Go or network.
if ! [ "$cache" -ef "$out" ] && [ -z "${BUNDLE:-}" ] && mkdir -p "$cache" 2>/dev/null; then
  for place in "${places[@]}"; do
    [ -e "$cache/$place" ] && [ "$(sum "$cache/$place")" = "${checksums[$place]}" ] && continue
    mkdir -p "$cache/$(dirname "$place")"
    copy "$out/$place" "$cache/$place" "${checksums[$place]}" || break
  done
fi
echo "the bundle in $out is complete: $total files, each with its checksum in releases.lock"
