#!/usr/bin/env bash
# Builds a release bundle: Knative's released manifests, in the layout that the operator reads
# (--releases).
#
#   build.sh OUT [VERSION…]     all of releases.lock, or only these versions of Serving and Eventing
#
# Compares every file with its checksum in releases.lock. After an interruption, run it again: it
# keeps complete files and continues partial downloads. Exits with 1 if a file is missing or wrong.
#
#   BUNDLE_SOURCE   URL to download from (default https://github.com)
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
[ $# -ge 1 ] || { sed -n '2,10p' "${BASH_SOURCE[0]}" | sed 's/^# \{0,1\}//' >&2; exit 2; }
out=$1
shift
lock=${BUNDLE_LOCK:-$here/releases.lock}
source=${BUNDLE_SOURCE:-https://github.com}
command -v curl >/dev/null || { echo "install curl (Debian: apt-get install curl)" >&2; exit 1; }

wanted() {
  [ $# -gt 1 ] || return 0
  local place=$1 version
  shift
  for version in "$@"; do
    version=${version#v}
    case $place in
    knative-serving/"$version"/* | knative-eventing/"$version"/*) return 0 ;;
    ingress/"${version%.*}"/* | eventing-source/"${version%.*}"/*) return 0 ;;
    esac
  done
  return 1
}

sum() { sha256sum "$1" 2>/dev/null | cut -c1-64; }

rows=()
while read -r checksum place path; do
  case $checksum in '' | \#*) continue ;; esac
  wanted "$place" "$@" && rows+=("$checksum $place $path")
done <"$lock"
[ ${#rows[@]} -gt 0 ] || { echo "releases.lock has nothing for version $*; it has $(grep -oE '^[0-9a-f]+ +knative-serving/[^/]+' "$lock" | sed 's|.*/||' | sort -uV | tr '\n' ' ')" >&2; exit 1; }

number=0 failed=0
retries=() # none until something is downloaded: without a connection, give up within ten seconds
for row in "${rows[@]}"; do
  read -r checksum place path <<<"$row"
  number=$((number + 1))
  target=$out/$place part=$out/$place.part
  printf '[%d/%d] %s' "$number" "${#rows[@]}" "$place"
  if [ "$(sum "$target")" = "$checksum" ]; then
    echo ": exists"
    continue
  fi
  mkdir -p "$(dirname "$target")"
  # Continues a partial download. If that fails or the checksum differs, downloads the file again,
  # once.
  for attempt in continue continue restart; do
    status=0
    [ "$attempt" = continue ] || rm -f "$part"
    curl --fail --silent --show-error --location --proto-redir =https,http "${retries[@]}" --connect-timeout 10 --max-time 300 \
      --continue-at - --output "$part" "$source/$path" 2>"$part.error" || status=$?
    case ${#retries[@]}-$status in 0-[67] | 0-28)
      echo ": FAILED: $(tail -n1 "$part.error")"
      rm -f "$part.error"
      echo "$source can't be reached" >&2
      exit 1
      ;;
    esac
    retries=(--retry 3 --retry-connrefused)
    [ "$(sum "$part")" != "$checksum" ] || break
  done
  if [ "$(sum "$part")" = "$checksum" ]; then
    mv "$part" "$target"
    rm -f "$part.error"
    echo ": $(wc -c <"$target") bytes"
  else
    failed=$((failed + 1))
    if [ -s "$part.error" ]; then echo ": FAILED: $(tail -n1 "$part.error")"; else echo ": FAILED: its checksum is $(sum "$part"), not $checksum"; fi
    rm -f "$part.error"
  fi
done
if [ "$failed" -gt 0 ]; then
  echo "$failed of ${#rows[@]} files are missing in $out; run the same command again to continue" >&2
  exit 1
fi
echo "the bundle in $out is complete: ${#rows[@]} files"
