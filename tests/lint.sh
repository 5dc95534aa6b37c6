#!/usr/bin/env bash
# The rules about structure that no compiler knows. docs/architecture.md lists them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
fault=0
say() { printf '%s\n' "$*" >&2; fault=1; }

# One thought a file.
while read -r lines file; do
  [ "$file" = total ] || [ "$lines" -le 400 ] || say "$file has $lines lines: more than one thought?"
done < <(git ls-files '*.rs' | xargs wc -l)

# What decides is pure: no I/O, no clock, no environment.
pure=(shared/src operator/src/render operator/src/plan.rs operator/src/health.rs operator/src/kinds.rs operator/src/object.rs
  operator/src/apply/differ.rs operator/src/apply/inventory.rs operator/src/controller/verdict.rs operator/src/cluster/profile.rs
  operator/src/leader/election.rs certs/src/plan.rs certs/src/issue.rs webhook/src/review.rs webhook/src/judge.rs)
if grep -rnE 'tokio::|std::fs|std::env|std::net|SystemTime::now|Timestamp::now|now_utc|Instant::now' "${pure[@]}" --include='*.rs' | grep -vE 'tests?::|let .*start.* = .*Instant::now|env!\('; then
  say "that is I/O, a clock or the environment where everything is pure"
fi
if cargo tree --quiet -e normal -p knative-operator-shared --prefix none | grep -E '^(tokio|hyper|rustls|kube-client) '; then
  say "shared depends on a client or a runtime"
fi

# Every command in a document is run by a test, or the document says why it can't be.
while read -r file; do
  run=no
  ! git grep -qF "document(\"$file\")" -- tests/tests/e2e || run=yes
  while read -r line; do
    say "$file:$line: no test runs these commands; run them in tests/tests/e2e, or say why not: <!-- not run: REASON -->"
  done < <(awk -v run="$run" '
    /^ *```/ { if (open) { open = 0 } else { open = 1; commands = /^ *```(sh|bash|shell|console|zsh)$/; plain = /^ *```$/
        if (commands && before !~ /<!-- not run: .+ -->/ && run == "no") print FNR } }
    open && plain && /^(kubectl|helm|make|cargo|docker|knative-operator) / { print FNR; plain = 0 }
    NF { before = $0 }' "$file")
done < <(git ls-files '*.md')
git grep -q '"get", "notes"' -- tests/tests/e2e/documents.rs || say "no test runs the commands in the NOTES.txt of the chart"

# Nothing unfinished, nothing switched off.
if git grep -nE 'todo!\(|unimplemented!\(|#\[ignore|FIXME|XXX' -- '*.rs'; then say "that is unfinished or switched off"; fi
exit $fault
