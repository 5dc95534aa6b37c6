#!/bin/sh
# Prints the versions of Knative in releases.lock by kind, as JSON: what the chart knows of the
# bundle.
set -eu
cd "$(dirname "$0")"
versions() {
  awk -v start="$1/" 'index($2, start) == 1 { split($2, part, "/"); print part[2] }' releases.lock | sort -uV |
    awk '{ printf "%s\"%s\"", (NR > 1 ? ", " : ""), $0 }'
}
printf '{"KnativeServing": [%s],\n"KnativeEventing": [%s]}\n' "$(versions knative-serving)" "$(versions knative-eventing)"
