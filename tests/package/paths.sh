#!/usr/bin/env bash
# Fails, with a reason, if images can't be built in the folders of this machine: jemalloc's build
# splits the paths of zig and of cargo-zigbuild's linker, and CFLAGS those of crates.
set -euo pipefail
cache=${XDG_CACHE_HOME:-$HOME/.cache}
for folder in "${CARGO_HOME:-$HOME/.cargo}" "${KNATIVE_OPERATOR_CACHE:-$cache}" "$cache"; do
  case $folder in *[[:space:]]*)
    echo "images can't be built with spaces in the path $folder: set CARGO_HOME, XDG_CACHE_HOME and KNATIVE_OPERATOR_CACHE to others" >&2
    exit 1
    ;;
  esac
done
