#!/usr/bin/env bash
# Prints what failed, from the logs of the steps of `make test`: the name and the message of each
# test, and the end of the log of each step that failed without a test. At most 15 lines each, and
# about 60 in all. What processes logged is left out.
# Usage: failures.sh FOLDER, which has a log for each step, and the names of failed steps in
# failed.txt.
set -euo pipefail
folder=$1
[ -s "$folder/failed.txt" ] || exit 0
awk -v folder="$folder" -v names="$folder/failed.txt" '
  function add(line) { if (line !~ /^[ \t]*$/ && size[failures] < 14) text[failures, ++size[failures]] = substr(line, 1, 300) }
  function begin(name) { title[++failures] = name; size[failures] = 0 }
  FNR == 1 { in_test = 0 }
  { last[FILENAME, ++count[FILENAME]] = $0 }
  /^---- .* stdout ----$/ { begin($2); failed[FILENAME] = in_test = 1; panics = own = is_over = 0; next }
  !in_test { next }
  /^failures:$/ { in_test = 0; next }
  # What comes before the first panic is other output of the test, also a panic of another thread.
  /^thread .* panicked at / {
    is_own = index($0, "thread \047" title[failures] "\047") > 0
    is_over = !(panics++ == 0 || is_own && !own)
    if (!is_over) { size[failures] = 0; own = is_own; add($0); next }
  }
  /^(==> end of the log of|note: run with|stack backtrace:)/ { is_over = 1 }
  !is_over { add($0) }
  END {
    while ((getline step < names) > 0) {
      file = step
      gsub(/[^a-z0-9]/, "-", file)
      file = folder "/" file ".log"
      if (file in failed || !(file in count)) continue
      begin("the step " step ", whose log ends with")
      for (i = count[file] > 12 ? count[file] - 11 : 1; i <= count[file]; i++) add(last[file, i])
    }
    if (!failures) exit
    print "\n==> failures"
    # All have the same share.
    most = failures > 4 ? int(60 / failures) - 1 : 14
    for (failure = 1; failure <= failures && failure <= 60; failure++) {
      print "  " title[failure]
      for (i = 1; i <= size[failure] && i <= most; i++) print "      " text[failure, i]
    }
    if (failures > 60) printf "  and %d others\n", failures - 60
  }' "$folder"/*.log
