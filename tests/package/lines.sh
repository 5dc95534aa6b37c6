#!/usr/bin/env bash
# Prints the lines of Rust of each package at a commit: tests/package/lines.sh [COMMIT]. None of the
# numbers has blank lines. Tests are items with #[cfg(test)], the files of such modules, and the
# folders tests and benches.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
git archive "${1:-HEAD}" | tar -x -C "$folder"
cd "$folder"
mapfile -t files < <(find . -name '*.rs' -printf '%P\n' | sort)
mapfile -t packages < <(find . -name Cargo.toml -printf '%h\n' | sed 's|^\./||' | sort)

# The files are read twice: for the names of modules with tests, then for the lines.
awk -v packages="${packages[*]}" '
  function package_of(file, name) {
    name = "."
    for (i in all) if (index(file, all[i] "/") == 1 && (name == "." || length(all[i]) > length(name))) name = all[i]
    return name
  }
  # The file of module `name` of `parent`, without .rs.
  function module(parent, name) {
    if (parent ~ /(^|\/)(lib|main|mod)\.rs$/) sub(/[a-z]+\.rs$/, "", parent); else sub(/\.rs$/, "/", parent)
    return parent name
  }
  function is_test(file, path) {
    if (file ~ /(^|\/)(tests|benches)\//) return 1
    sub(/\.rs$/, "", file)
    for (path in test_modules) if (file == path || index(file, path "/") == 1) return 1
    return 0
  }
  BEGIN { split(packages, all, " ") }
  FNR == 1 { pass = (FILENAME in read) ? 2 : 1; read[FILENAME]; in_test = 0; marked = 0; path = "" }
  pass == 1 {
    if (/^#\[cfg\(test\)\]/) { marked = 1; path = "" }
    else if (marked && /^#\[path = "/) { path = $0; gsub(/^#\[path = "|\.rs"\]$/, "", path) }
    else if (marked && /^(pub(\([a-z]+\))? )?mod [a-z_]+;/) {
      name = $0; sub(/;.*/, "", name); sub(/.*mod /, "", name)
      folder = FILENAME; sub(/[^\/]*$/, "", folder)
      test_modules[path == "" ? module(FILENAME, name) : folder path]
      marked = 0
    } else if (!/^#\[/) marked = 0
    next
  }
  FNR == 1 { package = package_of(FILENAME); tests_only = is_test(FILENAME); known[package] }
  /^[ \t]*$/ { next }
  /^#\[cfg\(test\)\]/ { in_test = 1 }
  /^[ \t]*\/\// { kind = "comments" }
  !/^[ \t]*\/\// { kind = "code" }
  { lines[package, (tests_only || in_test) ? "tests" : kind]++ }
  # An item ends with its closing brace, or its semicolon.
  in_test && (/^}/ || /^[^#}\/ \t].*;$/) { in_test = 0 }
  END {
    for (package in known) {
      printf "%s\t%d\t%d\t%d\n", package, lines[package, "code"], lines[package, "comments"], lines[package, "tests"]
      code += lines[package, "code"]; comments += lines[package, "comments"]; tests += lines[package, "tests"]
    }
    printf "~total\t%d\t%d\t%d\n", code, comments, tests
  }' "${files[@]}" "${files[@]}" | sort | sed 's/^~//' |
  awk -F'\t' 'BEGIN { printf "%-26s %7s %9s %7s\n", "package", "code", "comments", "tests" }
    { printf "%-26s %7d %9d %7d\n", $1, $2, $3, $4 }'
