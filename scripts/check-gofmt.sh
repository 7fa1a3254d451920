#!/usr/bin/env bash
# Fails if a Go file is not formatted.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
files=$(gofmt -l .)
if [[ -n $files ]]; then
  printf 'not formatted:\n%s\n' "$files"
  exit 1
fi
