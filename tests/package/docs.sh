#!/usr/bin/env bash
# Builds the documentation site in target/site with mdBook, and checks all links and anchors.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
command -v cargo >/dev/null || { echo "install Rust 1.90 or later: https://rustup.rs" >&2; exit 1; }
tools=$(tests/tools/install.sh mdbook)
work=target/site-source
rm -rf "$work" target/site
mkdir -p "$work"
git ls-files '*.md' 'docs/images/*' LICENSE | grep -v '^\.github/' | tar -cf - -T - | tar -xf - -C "$work"
cp docs/book.toml "$work/book.toml"
# Links to sources, which the site doesn't have.
repository=$(sed -nE 's/^git-repository-url = "(.*)"/\1/p' docs/book.toml)
find "$work" -name '*.md' -exec sed -Ei "s#\]\(/([^)]+)\)#]($repository/blob/main/\1)#g" {} +
# docs/SUMMARY.md has paths that are relative to docs. The decisions are appended.
rm -f "$work/docs/SUMMARY.md"
{
  sed -E 's|\]\(\.\./|](/|; s|\]\(([a-z])|](docs/\1|; s|\]\(/|](|' docs/SUMMARY.md
  printf '\n# Decisions\n\n'
  for file in docs/develop/decisions/*.md; do printf -- '- [%s](%s)\n' "$(sed -n '1s/^# //p' "$file")" "$file"; done
} >"$work/SUMMARY.md"
"$tools/mdbook" build "$work" --dest-dir "$PWD/target/site" >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
! grep -E ' (WARN|ERROR) ' "$work/log" >&2 || exit 1
cargo run --quiet -p knative-operator-tests --bin check-links -- target/site
