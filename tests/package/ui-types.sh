#!/usr/bin/env bash
# Checks the types in the scripts of the web page, which are in JSDoc comments.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
tsc=$(tests/tools/install.sh tsc)/tsc
"$tsc" --noEmit --allowJs --checkJs --strict --target es2022 --module es2022 --lib es2022,dom,dom.iterable --ignoreConfig operator/ui/main.js
