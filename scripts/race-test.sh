#!/usr/bin/env bash
# Runs go test with the given arguments, of which those that begin with ./ name packages. The race detector itself
# gives up now and then ("ThreadSanitizer: CHECK failed", a check of its own runtime), which says nothing of any test:
# where that and nothing else went wrong, the packages that it has ended run once more.
set -uo pipefail
log=$(mktemp)
trap 'rm -f "$log"' EXIT
go test "$@" 2>&1 | tee "$log"
code=${PIPESTATUS[0]}
if [[ $code == 0 ]] || ! grep -q '^ThreadSanitizer: CHECK failed' "$log" || grep -qE '^ *--- FAIL|DATA RACE|^panic:|^fatal error:' "$log"; then
  exit "$code"
fi
mapfile -t again < <(sed -n 's/^FAIL\t\([^\t]*\)\t.*/\1/p' "$log")
echo "the race detector has ended ${again[*]}: once more"
flags=()
for arg; do [[ $arg == ./* ]] || flags+=("$arg"); done
go test "${flags[@]}" "${again[@]}"
