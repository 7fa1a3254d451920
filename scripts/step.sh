#!/usr/bin/env bash
# scripts/step.sh TEXT COMMAND...: runs a command under a heading, and says how long it took.
set -uo pipefail
text=$1
shift
printf '\n== %s\n' "$text"
"$@"
code=$?
printf -- '-- %s: %d s\n' "$text" "$SECONDS"
exit "$code"
