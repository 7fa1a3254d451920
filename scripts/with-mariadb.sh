#!/usr/bin/env bash
# Runs a command with a throw-away MariaDB server:
#
#   scripts/with-mariadb.sh go test ./...
#
# The command finds the server in ASYNCMONOLITH_TEST_MARIADB. When that variable is already set,
# the command runs against that server and nothing is started. The throw-away server listens on a
# Unix socket in its own temporary directory, keeps the default settings apart from
# max_connections, and is gone when the command ends, however it ends.
# To choose a MariaDB version, put its programs first on PATH.
set -euo pipefail
# shellcheck source=scripts/lib/server.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/server.sh"

if (($# == 0)); then
  say "usage: scripts/with-mariadb.sh COMMAND [ARGUMENT...]"
  exit 2
fi
if [[ -n ${ASYNCMONOLITH_TEST_MARIADB:-} ]]; then
  exec "$@"
fi

# find_server sets where the server's programs are; some distributions keep mariadbd out of PATH.
find_server() {
  PATH=$PATH:/usr/sbin:/usr/local/sbin:/usr/libexec
  server=$(command -v mariadbd) && install=$(command -v mariadb-install-db) && admin=$(command -v mariadb-admin)
}

# install_server installs Debian's MariaDB without the server that the package would start.
install_server() {
  local policy=/usr/sbin/policy-rc.d made=
  say "no MariaDB server found, installing the mariadb-server package"
  if [[ ! -e $policy ]]; then
    made=yes
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod +x "$policy"
  fi
  apt_install mariadb-server || true
  if [[ -n $made ]]; then rm -f "$policy"; fi
}

if ! find_server; then
  if ! can_install; then
    say "MariaDB 10.6 or newer is needed: mariadbd, mariadb-install-db and mariadb-admin were not found."
    say "  Debian, Ubuntu: sudo apt-get install mariadb-server"
    say "  Fedora:         sudo dnf install mariadb-server"
    say "  macOS:          brew install mariadb"
    say "Or name a server of yours: ASYNCMONOLITH_TEST_MARIADB='user:password@tcp(host:3306)/'"
    exit 1
  fi
  install_server
  find_server || { say "the mariadb-server package brought no server" && exit 1; }
fi

running=''
# shellcheck disable=SC2317 # called by cleanup
stop_server() {
  if [[ -n $running ]]; then # nothing in it is worth an orderly end
    kill -KILL -- "-$running" 2>/dev/null || true
    wait "$running" 2>/dev/null || true
  fi
}

make_dir my mysql
# A directory for temporary tables of its own: a server that starts removes all it finds in there.
if ! (as_user "$install" --no-defaults --datadir="$dir/data" --tmpdir="$dir" --auth-root-authentication-method=normal --skip-test-db) \
  >"$dir/install.log" 2>&1 </dev/null; then
  cat "$dir/install.log" >&2
  exit 1
fi
# A process group of its own keeps Ctrl-C from it: it is stopped when the command is over.
set -m
as_user "$server" --no-defaults --datadir="$dir/data" --tmpdir="$dir" --socket="$dir/s" --pid-file="$dir/pid" --skip-networking \
  --max-connections=500 >"$dir/server.log" 2>&1 </dev/null &
running=$!
set +m
for ((i = 0; ; i++)); do
  if "$admin" --no-defaults --socket="$dir/s" --user=root ping >/dev/null 2>&1; then break; fi
  if ((i >= 300)) || ! kill -0 "$running" 2>/dev/null; then
    cat "$dir/server.log" >&2
    exit 1
  fi
  sleep 0.2
done
export ASYNCMONOLITH_TEST_MARIADB="root@unix($dir/s)/"

run_command "$@"
