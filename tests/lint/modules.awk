# Prints the imports between the modules of a crate, as pairs of files, for tsort.
# Usage: awk -v root=DIR/src -f modules.awk FILE...
# Tests and re-exports are ignored; a name that a mod.rs re-exports counts as the module that has it.

function module_of(file) {
  sub("^" root "/", "", file); sub(/\.rs$/, "", file); sub(/\/mod$/, "", file)
  gsub("/", "::", file)
  return file == "lib" || file == "main" || file == "mod" ? "" : file
}

# Expands braces: `a::{b, c::{d, e}}` becomes `a::b,a::c::d,a::c::e`.
function expand(text,    prefix, inner, parts, n, i, all) {
  while (match(text, /[A-Za-z0-9_:]*\{[^{}]*\}/)) {
    prefix = substr(text, RSTART, RLENGTH); inner = prefix
    sub(/\{.*/, "", prefix); sub(/^[^{]*\{/, "", inner); sub(/\}$/, "", inner)
    n = split(inner, parts, ","); all = ""
    for (i = 1; i <= n; i++) if (parts[i] != "") all = all (all == "" ? "" : ",") prefix parts[i]
    text = substr(text, 1, RSTART - 1) all substr(text, RSTART + RLENGTH)
  }
  return text
}

# The absolute path of `path`, which module `from` mentions, without the leading `crate::`.
function absolute(path, from) {
  if (path ~ /^crate::/) return substr(path, 8)
  while (path ~ /^super::/) { path = substr(path, 8); if (!sub(/::[^:]*$/, "", from)) from = "" }
  sub(/^self::/, "", path)
  return from == "" ? path : from "::" path
}

function record(text, from,    parts, n, i, path) {
  n = split(text, parts, ",")
  for (i = 1; i <= n; i++) {
    path = parts[i]; sub(/ as .*/, "", path); gsub(/ /, "", path); sub(/::self$/, "", path)
    if (path ~ /^(crate|super|self)::/ || (from in is_parent && path ~ /^[a-z_]+::/)) imports[++count] = from " " absolute(path, from)
  }
}

FNR == 1 { module = module_of(FILENAME); files[module] = FILENAME; tests = 0; statement = ""
  if (FILENAME ~ /(^|\/)(mod|lib|main)\.rs$/) is_parent[module] = 1 }
/^#\[cfg\(test\)\]/ { tests = 1 }
/^ *\/\// || tests { next }
{ line = $0; sub(/\/\/ .*/, "", line) }
statement == "" && line ~ /^ *(pub(\([a-z]+\))? )?use / { statement = " "; exported = line ~ /^ *pub/; sub(/^ *(pub(\([a-z]+\))? )?use /, "", line) }
statement != "" {
  statement = statement line
  if (line ~ /;/) {
    sub(/;.*/, "", statement); gsub(/[ \t]+/, " ", statement); gsub(/ *, */, ",", statement); gsub(/\{ /, "{", statement); gsub(/[ ,]*\}/, "}", statement)
    gsub(/^ /, "", statement)
    text = expand(statement)
    if (exported) { n = split(text, parts, ",")
      for (i = 1; i <= n; i++) { path = absolute(parts[i], module); name = path; sub(/.*::/, "", name); reexport[module (module == "" ? "" : "::") name] = path } }
    else record(text, module)
    statement = ""
  }
  next
}
{ while (match(line, /(crate|super)(::[A-Za-z_0-9]+)+/)) { record(substr(line, RSTART, RLENGTH), module); line = substr(line, RSTART + RLENGTH) } }

# The module that has `path`. What has a name below it is a module, although a re-exported function
# may have its name.
function resolve(path,    rounds, has_more) {
  for (rounds = 0; rounds < 20; rounds++) {
    if (has_more && path in files) return path
    if (path in reexport && reexport[path] != path) path = reexport[path]
    else if (path in files) return path
    else if (sub(/::[^:]*$/, "", path)) has_more = 1
    else return ""
  }
  return ""
}
END {
  for (i = 1; i <= count; i++) {
    split(imports[i], pair, " "); to = resolve(pair[2])
    if (to != "" && to != pair[1] && !((pair[1] " " to) in done)) { done[pair[1] " " to]; print (pair[1] == "" ? "lib" : pair[1]), to }
  }
}
