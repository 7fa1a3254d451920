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

say() { printf 'with-mariadb: %s\n' "$*" >&2; }

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
  local apt=(env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0)
  local policy=/usr/sbin/policy-rc.d made=
  say "no MariaDB server found, installing the mariadb-server package"
  if [[ ! -e $policy ]]; then
    made=yes
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod +x "$policy"
  fi
  "${apt[@]}" update >&2 && "${apt[@]}" install -y --no-install-recommends mariadb-server >&2 || true
  if [[ -n $made ]]; then rm -f "$policy"; fi
}

if ! find_server; then
  if ((EUID != 0)) || ! command -v apt-get >/dev/null; then
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

# MariaDB refuses to run as root.
user=
if ((EUID == 0)); then
  user=mysql
  id "$user" >/dev/null 2>&1 || user=nobody
fi

# as_user COMMAND...: runs a command as the user who owns the server.
as_user() {
  if [[ -z $user ]]; then
    exec "$@"
  elif command -v setpriv >/dev/null; then
    exec setpriv --reuid="$user" --regid="$(id -g "$user")" --init-groups -- "$@"
  else
    exec su -s /bin/sh "$user" -c "exec $(printf '%q ' "$@")"
  fi
}

child=''
signalled=''
running=''
# cleanup runs on every exit.
# shellcheck disable=SC2317 # called by trap
cleanup() {
  trap '' HUP INT TERM
  if [[ -n $running ]]; then # nothing in it is worth an orderly end
    kill -KILL -- "-$running" 2>/dev/null || true
    wait "$running" 2>/dev/null || true
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
dir=$(mktemp -d /tmp/asyncmonolith-my.XXXXXX)
trap cleanup EXIT
trap 'on_signal HUP 1' HUP
trap 'on_signal INT 2' INT
trap 'on_signal TERM 15' TERM
if [[ -n $user ]]; then chown "$user" "$dir"; fi
cd_run() { (cd "$dir" && as_user "$@"); }

if ! cd_run "$install" --no-defaults --datadir="$dir/data" --auth-root-authentication-method=normal --skip-test-db \
  >"$dir/install.log" 2>&1 </dev/null; then
  cat "$dir/install.log" >&2
  exit 1
fi
# A process group of its own keeps Ctrl-C from it: it is stopped when the command is over.
set -m
cd_run "$server" --no-defaults --datadir="$dir/data" --socket="$dir/s" --pid-file="$dir/pid" --skip-networking \
  --max-connections=300 >"$dir/server.log" 2>&1 </dev/null &
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
