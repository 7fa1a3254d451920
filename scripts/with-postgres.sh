#!/usr/bin/env bash
# Runs a command with a throw-away PostgreSQL server:
#
#   scripts/with-postgres.sh go test ./...
#
# The command finds the server in ASYNCMONOLITH_TEST_POSTGRES. When that variable is already set,
# the command runs against that server and nothing is started. The throw-away server listens on a
# Unix socket in its own temporary directory, keeps the default settings (fsync stays on) apart from
# max_connections, and is gone when the command ends, however it ends.
# To choose a PostgreSQL version, put its bin directory first on PATH.
set -euo pipefail

say() { printf 'with-postgres: %s\n' "$*" >&2; }

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
  local apt=(env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0)
  say "no PostgreSQL server found, installing the postgresql package"
  "${apt[@]}" update >&2
  "${apt[@]}" install -y --no-install-recommends postgresql-common >&2
  grep -qsE '^[[:space:]]*create_main_cluster' "$conf" || echo 'create_main_cluster = false' >>"$conf"
  "${apt[@]}" install -y --no-install-recommends postgresql >&2
}

if ! bin=$(find_server); then
  if ((EUID != 0)) || ! command -v apt-get >/dev/null; then
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

# PostgreSQL refuses to run as root.
user=
if ((EUID == 0)); then
  user=postgres
  id "$user" >/dev/null 2>&1 || user=nobody
fi

# as_user COMMAND...: runs a command as the user who owns the server.
as_user() {
  if [[ -z $user ]]; then
    "$@"
  elif command -v runuser >/dev/null; then
    runuser -u "$user" -- "$@"
  elif command -v setpriv >/dev/null; then
    setpriv --reuid="$user" --regid="$(id -g "$user")" --init-groups -- "$@"
  else
    su -s /bin/sh "$user" -c "$(printf '%q ' "$@")"
  fi
}

# server_step COMMAND...: runs a command as_user in the temporary directory and in a process group of
# its own: Ctrl-C must not leave half a server behind, it takes effect when the step is over.
server_step() (
  trap '' HUP INT TERM
  set -m
  cd "$dir"
  as_user "$@" </dev/null &
  wait "$!"
)

child=''
signalled=''
# cleanup runs on every exit.
# shellcheck disable=SC2317 # called by trap
cleanup() {
  trap '' HUP INT TERM
  if [[ -e $dir/data/postmaster.pid ]]; then
    server_step "$bin/pg_ctl" --pgdata="$dir/data" --mode=immediate --silent stop >/dev/null 2>&1 ||
      say "could not stop the server in $dir"
  fi
  rm -rf "$dir" || say "could not remove $dir"
}

# on_signal NAME NUMBER: passes the signal to the command, whose end ends this script. A terminal has
# already sent Ctrl-C to both; a second one would mean "at once" to many programs.
# shellcheck disable=SC2317 # called by trap
on_signal() {
  [[ -n $child ]] || exit $((128 + $2))
  signalled=yes
  [[ $1 == INT && -t 0 ]] || kill -s "$1" "$child" 2>/dev/null || true
}

# Always in /tmp: a socket's path must stay under 100 characters and be open to the other user.
dir=$(mktemp -d /tmp/asyncmonolith-pg.XXXXXX)
trap cleanup EXIT
trap 'on_signal HUP 1' HUP
trap 'on_signal INT 2' INT
trap 'on_signal TERM 15' TERM
if [[ -n $user ]]; then chown "$user" "$dir"; fi

port=$((20000 + RANDOM % 20000))
options="-c listen_addresses='' -c unix_socket_directories='$dir' -c port=$port -c max_connections=200"
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

# The command runs beside this shell, so that a signal is handled at once and not after the command;
# it keeps the terminal as its input, and the signals that a background command would ignore.
(trap - INT QUIT && exec "$@") <&0 &
child=$!
status=0
while :; do # a signal ends the wait, not the command
  signalled=
  wait "$child" && status=0 || status=$?
  [[ -n $signalled ]] || break
done
exit "$status"
