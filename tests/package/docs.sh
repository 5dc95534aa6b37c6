#!/usr/bin/env bash
# Builds the documentation site in OUT (target/site) with mdBook: the working tree, and below it
# a folder for the last release of each of the last three minors.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
command -v cargo >/dev/null || { echo "install Rust 1.90 or later: https://rustup.rs" >&2; exit 1; }
out=$(realpath -m "${OUT:-target/site}")
tools=$(tests/tools/install.sh mdbook)
work=$out-source
repository=$(sed -nE 's/^git-repository-url = "(.*)"/\1/p' docs/site/book.toml)
rm -rf "$work" "$out"

releases=$(git tag --list 'v*' --sort=-version:refname | grep -E '^v[0-9]+\.[0-9]+\.[0-9]+$' |
  awk -F. '!seen[$1 "." $2]++' | head -3 || true)
versions=main
for release in $releases; do
  ! git cat-file -e "$release:docs/SUMMARY.md" 2>/dev/null || versions+=" $release"
done

# Texts and images of $1, main or a release.
sources() {
  local paths=('*.md' 'docs/images/*' LICENSE ':!.github')
  if [ "$1" = main ]; then
    git ls-files "${paths[@]}" | tar -cf - -T -
  else
    git ls-tree -r --name-only "$1" | grep -E '(\.md|^LICENSE|^docs/images/.*)$' | grep -v '^\.github/' |
      xargs git archive "$1"
  fi
}
for version in $versions; do
  mkdir -p "$work/$version"
  sources "$version" | tar -xf - -C "$work/$version"
done

# The pages of each version, for the choice of a version.
pages() {
  local version lines=()
  for version in $versions; do
    lines+=("\"$version\": [$(cd "$work/$version" && find . -name '*.md' ! -name SUMMARY.md -printf '"%P",' |
      sed -E 's/README\.md"/index.html"/g; s/\.md"/.html"/g')]")
  done
  printf 'const siteVersions = {"here": "%s", "versions": {%s}};\n' "$1" "$(IFS=,; echo "${lines[*]}")"
}
for version in $versions; do
  book=$work/$version
  cp -r docs/site "$book/docs/"
  mv "$book/docs/site/book.toml" "$book/book.toml"
  pages "$version" >"$book/docs/site/versions.js"
done
for version in $versions; do
  book=$work/$version
  # Links to sources, which the site doesn't have; and mdBook writes index.html for README.md.
  find "$book" -name '*.md' ! -name SUMMARY.md -exec sed -Ei "s#\]\(/([^)]+)\)#]($repository/blob/$version/\1)#g
    s#\]\((([^):]*/)?)README\.md#](\1index.md#g" {} +
  # docs/SUMMARY.md has paths that are relative to docs. The decisions are appended.
  {
    sed -E 's|\]\(\.\./|](/|; s|\]\(([a-z])|](docs/\1|; s|\]\(/|](|' "$book/docs/SUMMARY.md"
    printf '\n# Decisions\n\n'
    for file in $(cd "$book" && ls docs/develop/decisions/*.md); do
      printf -- '- [%s](%s)\n' "$(sed -n '1s/^# //p' "$book/$file")" "$file"
    done
  } >"$book/SUMMARY.md"
  rm -f "$book/docs/SUMMARY.md"
  to=$out
  [ "$version" = main ] || to=$out/$version
  "$tools/mdbook" build "$book" --dest-dir "$to" >"$book.log" 2>&1 || { cat "$book.log" >&2; exit 1; }
  ! grep -E ' (WARN|ERROR) ' "$book.log" >&2 || exit 1
done
