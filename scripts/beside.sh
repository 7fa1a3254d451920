#!/usr/bin/env bash
# scripts/beside.sh COMMAND...: runs commands at the same time, and prints the output of each in their order. It fails if one does.
set -uo pipefail
dir=$(mktemp -d)
pids=()
trap 'rm -rf "$dir"' EXIT
trap 'kill "${pids[@]}" 2>/dev/null; wait; exit 130' INT TERM
for command; do
  bash -c "$command" >"$dir/${#pids[@]}" 2>&1 &
  pids+=($!)
done
code=0
for i in "${!pids[@]}"; do
  wait "${pids[i]}" || code=1
  cat "$dir/$i"
done
exit "$code"
