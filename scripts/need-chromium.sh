#!/usr/bin/env bash
# Makes sure that the tests of the console find a browser, and the checks of accessibility that they run in
# it: silent when both are there. It installs Chromium as root on Debian and its relatives, says what to
# install anywhere else, and has npm fetch axe-core, of a version and a checksum that stand here, into .cache.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/lib/install.sh
source scripts/lib/install.sh

axe=axe-core-4.14.1
checksum=29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c

browser() { command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null; }

if ! browser && ! have chromium chromium; then
  say "the tests of the console need Chromium."
  say "  Debian, Ubuntu: sudo apt-get install chromium"
  say "  Fedora:         sudo dnf install chromium"
  say "  macOS:          brew install --cask chromium"
  exit 1
fi
intact ".cache/$axe.js" "$checksum" && exit 0
if ! have npm npm; then
  say "the tests of the console need npm, once, to fetch $axe."
  say "  Debian, Ubuntu: sudo apt-get install npm"
  exit 1
fi
say "fetching $axe"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
npm pack --silent --pack-destination "$dir" "${axe%-*}@${axe##*-}" >/dev/null
tar -xzf "$dir/$axe.tgz" -C "$dir" package/axe.min.js
verify "$dir/package/axe.min.js" "$checksum"
mkdir -p .cache
mv "$dir/package/axe.min.js" ".cache/$axe.js"
