#!/usr/bin/env bash
# Runs a command with a throw-away PostgreSQL server:
#
#   scripts/with-postgres.sh go test ./...
#
# The command finds the server in ASYNCMONOLITH_TEST_POSTGRES. When that variable is already set,
# the command runs against that server and nothing is started. The throw-away server listens on a
# Unix socket in its own temporary directory (in memory with ASYNCMONOLITH_TEST_IN_MEMORY=1), keeps the default settings
# (fsync stays on) apart from max_connections, and is gone when the command ends, however it ends.
# To choose a PostgreSQL version, put its bin directory first on PATH; scripts/need-postgres.sh fetches 13 to 18.
set -euo pipefail
# shellcheck source=scripts/lib/server.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/server.sh"

if (($# == 0)); then
  say "usage: scripts/with-postgres.sh COMMAND [ARGUMENT...]"
  exit 2
fi
if [[ -n ${ASYNCMONOLITH_TEST_POSTGRES:-} ]]; then
  exec "$@"
fi

# has_server DIR: whether DIR holds everything a server needs.
has_server() { [[ -x $1/initdb && -x $1/pg_ctl && -x $1/postgres ]]; }

# find_server prints the directory of the server binaries.
find_server() {
  local dir path
  if path=$(command -v initdb); then
    dir=$(dirname "$(readlink -f "$path")")
    if has_server "$dir"; then echo "$dir" && return; fi
  fi
  if dir=$(pg_config --bindir 2>/dev/null) && has_server "$dir"; then echo "$dir" && return; fi
  while read -r dir; do
    if has_server "$dir"; then echo "$dir" && return; fi
  done < <(printf '%s\n' /usr/lib/postgresql/*/bin | sort -rV)
  return 1
}

# install_server installs Debian's PostgreSQL without the cluster that the package would start.
install_server() {
  local conf=/etc/postgresql-common/createcluster.conf
  say "no PostgreSQL server found, installing the postgresql package"
  apt_install postgresql-common
  grep -qsE '^[[:space:]]*create_main_cluster' "$conf" || echo 'create_main_cluster = false' >>"$conf"
  apt_install postgresql
}

if ! bin=$(find_server); then
  if ! can_install; then
    say "PostgreSQL 13 or newer is needed: initdb, pg_ctl and postgres were not found."
    say "  Debian, Ubuntu: sudo apt-get install postgresql"
    say "  Fedora:         sudo dnf install postgresql-server"
    say "  macOS:          brew install postgresql@17, then put its bin directory on PATH"
    say "Or name a server of yours: ASYNCMONOLITH_TEST_POSTGRES=postgres://user:password@host:5432/database"
    exit 1
  fi
  install_server
  bin=$(find_server) || { say "the postgresql package brought no server" && exit 1; }
fi

# server_step COMMAND...: runs a command as_user in a process group of its own: Ctrl-C must not leave half a
# server behind, it takes effect when the step is over.
server_step() (
  trap '' HUP INT TERM
  set -m
  as_user "$@" </dev/null &
  wait "$!"
)

# shellcheck disable=SC2317 # called by cleanup
stop_server() {
  if [[ -e $dir/data/postmaster.pid ]]; then
    server_step "$bin/pg_ctl" --pgdata="$dir/data" --mode=immediate --silent stop >/dev/null 2>&1 ||
      say "could not stop the server in $dir"
  fi
}

make_dir pg postgres
port=$((20000 + RANDOM % 20000))
options="-c listen_addresses='' -c unix_socket_directories='$dir' -c port=$port -c max_connections=500"
if ! server_step "$bin/initdb" --pgdata="$dir/data" --username=postgres --auth=trust \
  --encoding=UTF8 --locale=C --no-sync >"$dir/initdb.log" 2>&1; then
  cat "$dir/initdb.log" >&2
  exit 1
fi
if ! server_step "$bin/pg_ctl" --pgdata="$dir/data" --log="$dir/data/server.log" --options="$options" \
  --wait --timeout=60 --silent start >&2; then
  cat "$dir/data/server.log" >&2 || true
  exit 1
fi
export ASYNCMONOLITH_TEST_POSTGRES="postgres://postgres@/postgres?host=$dir&port=$port&sslmode=disable&default_query_exec_mode=exec"

run_command "$@"
