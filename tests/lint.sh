#!/usr/bin/env bash
# Checks structure and prose: what rustfmt and clippy can't check. docs/develop/architecture.md
# lists the invariants.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
failed=0
report() { printf '%s\n' "$*" >&2; failed=1; }

# Files stay small.
while read -r lines file; do
  [ "$file" = total ] || [ "$lines" -le 400 ] || report "$file has $lines lines, more than 400: split it"
done < <(git ls-files '*.rs' | xargs wc -l)

# Pure code has no I/O, no clock and no environment.
pure=(shared/src shared/base/src shared/patch/src shared/rules/src operator/objects/src operator/render/src operator/fleet/src operator/apply/src/differ.rs
  operator/apply/src/inventory.rs operator/apply/src/managed_fields.rs operator/apply/src/ownership.rs
  operator/apply/src/preserve.rs operator/src/controller/conditions.rs operator/src/controller/readiness.rs
  operator/cluster-access/src/profile.rs operator/cluster-access/src/binding.rs operator/cluster-access/src/named_secrets.rs
  operator/src/leader/share.rs
  operator/cli/src/spoke_role operator/cli/src/images operator/cli/src/command/audit/subject.rs operator/cli/src/command/audit/report.rs certs/src/rotation.rs certs/src/issue.rs
  certs/src/validity.rs webhook/src/request.rs webhook/src/review.rs webhook/src/admission.rs webhook/src/fleet.rs
  webhook/src/approval.rs webhook/src/authorization/questions.rs
  shared/runtime/src/tls_server/activity.rs)
for path in "${pure[@]}"; do [ -e "$path" ] || report "tests/lint.sh: $path does not exist"; done
if grep -rnE 'tokio::|std::fs|std::env|std::net|SystemTime::now|Timestamp::now|now_utc|Instant::now' "${pure[@]}" --include='*.rs' | grep -vE 'tests?::|let .*start.* = .*Instant::now|env!\('; then
  report "pure code must not use I/O, a clock or the environment"
fi
for package in shared base patch rules objects render fleet; do
  if cargo tree --quiet -e normal -p "knative-operator-$package" --prefix none | grep -E '^(tokio|hyper|rustls|kube-client) '; then
    report "knative-operator-$package must not depend on a client or a runtime"
  fi
done

# `cargo build` has what `cargo test` has compiled.
features() { cargo tree --quiet --workspace -e "$1" --prefix none -f '{p} [{f}]' | sed 's/ (\*)$//' | LC_ALL=C sort -u; }
if [ -n "$(LC_ALL=C comm -23 <(features normal,build) <(features normal,build,dev) | tee /dev/stderr)" ]; then
  report "dependencies of tests give these libraries other features: cargo build compiles them, and what is above them, again. Add the features at the end of the dependencies in Cargo.toml"
fi

# What connects to clusters is a library for others, too: it knows nothing of Knative.
if cargo tree --quiet -e normal -p knative-operator-cluster-access --prefix none | grep -oE '^knative-operator-[a-z-]+' |
  sort -u | grep -vxE 'knative-operator-(cluster-access|base|client)'; then
  report "knative-operator-cluster-access must not depend on what is Knative's"
fi
if git grep -nE 'operator\.knative\.dev|--[a-z]+-[a-z]|Helm' -- shared/base/src shared/client/src operator/cluster-access/src \
  ':!operator/cluster-access/src/provider.rs'; then
  report "a library doesn't know flags, Helm values and annotations of the operator"
fi

# The test bed is a library for others, too: it knows nothing of what it tests.
if cargo tree --quiet -e normal -p knative-operator-test-bed --prefix none | grep -oE '^knative-operator[a-z-]*' |
  sort -u | grep -vx knative-operator-test-bed; then
  report "knative-operator-test-bed must not depend on the product"
fi

# Writes name their field manager: post_as and patch_as of the runtime. Reviews are not stored.
if git grep -nE '(Post|Patch)Params::default\(\)' -- 'operator/*.rs' 'webhook/*.rs' 'certs/*.rs' 'shared/*.rs' ':!shared/client/src/identity.rs' ':!shared/runtime/src/access.rs'; then
  report "a write without a field manager: use post_as or patch_as"
fi

# Modules of a crate import each other in one direction only; so do its top-level folders.
for source in $(git ls-files '*/src/lib.rs' | xargs dirname); do
  imports=$(git ls-files "$source/*.rs" | grep -vE '/src/bin/|/tests\.rs$' | xargs awk -v root="$source" -f tests/lint/modules.awk)
  folders=$(awk '{ sub(/::.*/, "", $1); sub(/::.*/, "", $2); if ($1 != $2) print }' <<<"$imports")
  for edges in "$imports" "$folders"; do
    circle=$(tsort <<<"$edges" 2>&1 >/dev/null) || report "modules of $source import each other in a circle: $(sed -n 's/^tsort: \([a-z_:]*\)$/\1/p' <<<"$circle" | sort -u | xargs)"
  done
done

# Errors are types: callers decide by variants, and Display has the text.
texts=(':!operator/cli/src/command' # prints what it gets
  ':!*tests.rs')
if git grep -nP 'Result<((?:[^<>]|<(?1)>)*), String>' -- '*/src/*.rs' ':!tests' "${texts[@]}"; then
  report "an error is a type of its own, not a String"
fi

# Code has at most 120 columns (rustfmt checks that), comments and prose have at most 100.
while read -r place; do
  report "$place: comments have at most 100 columns"
done < <(git ls-files '*.rs' '*.sh' '*.toml' '*Dockerfile' Makefile .ci/run 'charts/*.yaml' ':!charts/*/files/crds/*' |
  LC_ALL=C xargs awk '{ s = $0; sub(/^ */, "", s); gsub(/[\200-\277]/, "") } s ~ /^(\/\/|# )/ && length($0) > 100 && s !~ /https?:/ { print FILENAME ":" FNR }')
while read -r place; do
  report "$place: prose has at most 100 columns"
done < <(git ls-files '*.md' | LC_ALL=C xargs awk 'FNR == 1 { code = 0 } /^ *```/ { code = !code } { gsub(/[\200-\277]/, "") }
  !code && length($0) > 100 && !/^\|/ && !/<!--/ && !/https?:/ { print FILENAME ":" FNR }')

# Words: tests/lint/words.txt has the replacements.
while IFS=$'\t' read -r pattern instead; do
  case $pattern in '' | '#'*) continue ;; esac
  if git grep -inwE "($pattern)" -- '*.rs' '*.md' '*.sh' '*.snap' '*.txt' Makefile .ci charts ':!charts/*/files/crds/*' ':!tests/lint/words.txt' ':!tests/tests/conformance/golden' >&2; then
    report "use other words: $instead"
  fi
done <tests/lint/words.txt

# A test runs every command in a document, or the document gives a reason why not.
while read -r file; do
  run=no
  ! git grep -qF "document(\"$file\")" -- tests/tests || run=yes
  while read -r line; do
    report "$file:$line: no test runs these commands; run them in tests/tests/e2e, or give a reason: <!-- not run: REASON -->"
  done < <(awk -v run="$run" '
    /^ *```/ { if (open) { open = 0 } else { open = 1; commands = /^ *```(sh|bash|shell|console|zsh)$/; plain = /^ *```$/
        if (commands && before !~ /<!-- not run: .+ -->/ && run == "no") print FNR } }
    open && plain && /^(kubectl|helm|make|cargo|docker|knative-operator) / { print FNR; plain = 0 }
    NF { before = $0 }' "$file")
done < <(git ls-files '*.md')
git grep -q '"get", "notes"' -- tests/tests/e2e/documents.rs || report "no test runs the commands in the NOTES.txt of the chart"

# Each test that the threat model names exists.
while read -r name; do
  git grep -q "fn $name(" -- '*.rs' || report "docs/operate/security.md: there is no test $name"
done < <(grep -oE '`[a-z0-9]+(_[a-z0-9]+){2,}`' docs/operate/security.md | tr -d '`' | sort -u)

# What documents for developers name is where their links say: [`Type::function`](/path).
while read -r file name target; do
  case $target in *"$name"*) continue ;; esac
  grep -qw -- "${name##*::}" "$target" 2>/dev/null || report "$file: there is no $name in $target"
done < <(git grep -oE '\[`[A-Za-z_:]+`\]\(/[^)#]+' -- docs/develop CONTRIBUTING.md | sed -E 's/:\[`/ /; s/`\]\(\// /' | sort -u)

# Links have a target. The site has only documents and images: links to other files are absolute,
# and docs.sh makes them those of the repository.
while IFS=: read -r file link; do
  case $link in
  /*) target=.$link ;;
  *.md | *.png | *.svg) target=$(dirname "$file")/$link ;;
  *) report "$file: the link $link is relative, and its target is no document: start it with / and the path from the root" && continue ;;
  esac
  [ -e "$target" ] || report "$file: the target of the link $link does not exist"
done < <(git grep -oE '\]\([^):#]+[)#]' -- '*.md' | sed -E 's/\]\(//; s/[)#]$//')

# Names of links say where they lead.
if git grep -nEi '\[(here|this|this page|page|link|click here|below|above|more)\]\(' -- '*.md'; then report "name the target of the link"; fi

# Pictures are images: not everything that shows documents renders Mermaid.
if git grep -n '^ *```mermaid' -- '*.md'; then report "replace Mermaid with an SVG in docs/images"; fi

# Go compiles shared libraries once: tools have the control plane's versions, or newer ones.
# Knative's processes end with another OpenTelemetry than that of their release, which gRPC's
# version requires.
versions() { sed -nE 's/^(require |\t)([^ ]+) (v[^ ]+).*/\2 \3/p' "tests/tools/$1/go.mod" | LC_ALL=C sort; }
for module in containerd coredns cni gitops go-operator knative-1.22; do
  while read -r library own wanted; do
    [[ ! $library =~ ^(go.opentelemetry.io/|google.golang.org/(grpc|genproto)) ]] || continue
    [ "$(printf '%s\n' "$own" "$wanted" | sort -V | tail -n1)" = "$own" ] ||
      report "tests/tools/$module has $library $own: go get it in $wanted, which the control plane has"
  done < <(LC_ALL=C join <(versions "$module") <(versions control-plane))
done

# Workflows are valid, and their actions are pinned by digest.
if command -v go >/dev/null; then
  "$(tests/tools/install.sh actionlint)/actionlint" -no-color -shellcheck= >&2 || report "a workflow is invalid"
else
  [ -z "${REQUIRE_ALL:-}" ] || report "install Go: actionlint is required"
  echo "skipped: actionlint: Go is not installed" >&2
fi
if git grep -nE 'uses: ' -- .github | grep -vE '@[0-9a-f]{40} # v[0-9.]+$'; then report "pin actions by digest, with the version as a comment"; fi

# No unfinished code, no ignored tests.
if git grep -nE 'todo!\(|unimplemented!\(|#\[ignore|FIXME|XXX' -- '*.rs'; then report "remove unfinished code and ignored tests"; fi
exit $failed
