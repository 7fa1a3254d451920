#!/usr/bin/env bash
# scripts/check-modules.sh MODULE...: fails unless these are the modules that the repository has.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
want=$(printf '%s\n' "$@" | sort)
have=$(find . -name '.?*' -prune -o -name testdata -prune -o -name go.mod -print | sed -e 's|/go.mod$||' -e 's|^\./||' | sort)
if [[ $want != "$have" ]]; then
  echo "the Makefile lists:" $want
  echo "the repository has:" $have
  exit 1
fi
