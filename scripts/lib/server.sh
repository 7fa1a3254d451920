# shellcheck shell=bash
# What the scripts share that run a command with a throw-away server. To be sourced, by a script that defines
# stop_server: it ends what was started in $dir, if anything.

# shellcheck source=scripts/lib/install.sh
source "${BASH_SOURCE[0]%/*}/install.sh"

dir=''  # of the server
user='' # who owns the server, unless it is the caller
child=''
signalled=''

# base is where the servers' directories are: /tmp, where sockets' paths stay under 100 characters. With
# ASYNCMONOLITH_TEST_IN_MEMORY set it is Linux' memory, when that has 4 GiB of room: what servers sync there is synced
# at once, which shortens tests of many commits, and makes no measurement.
base() {
  local free=0
  if [[ -n ${ASYNCMONOLITH_TEST_IN_MEMORY:-} && -d /dev/shm && -w /dev/shm ]]; then
    free=$(df --output=avail /dev/shm 2>/dev/null | tail -n 1)
  fi
  if ((free > 4 << 20)); then echo /dev/shm; else echo /tmp; fi
}

# make_dir NAME USER: makes the directory of the server, which is gone when the script ends, however it ends.
# Servers refuse to run as root: there, USER owns it.
make_dir() {
  if ((EUID == 0)); then
    user=$2
    id "$user" >/dev/null 2>&1 || user=nobody
  fi
  dir=$(mktemp -d "$(base)/asyncmonolith-$1.XXXXXX")
  trap cleanup EXIT
  trap 'on_signal HUP 1' HUP
  trap 'on_signal INT 2' INT
  trap 'on_signal TERM 15' TERM
  if [[ -n $user ]]; then chown "$user" "$dir"; fi
}

# cleanup runs on every exit.
# shellcheck disable=SC2317 # called by trap
cleanup() {
  trap '' HUP INT TERM
  stop_server
  rm -rf "$dir" || say "could not remove $dir"
}

# on_signal NAME NUMBER: passes the signal to the command, whose end ends this script.
# shellcheck disable=SC2317 # called by trap
on_signal() {
  [[ -n $child ]] || exit $((128 + $2))
  signalled=yes
  kill -s "$1" "$child" 2>/dev/null || true
}

# as_user COMMAND...: becomes the command, run in the server's directory as the user who owns it.
as_user() {
  cd "$dir" || exit
  if [[ -z $user ]]; then
    exec "$@"
  elif command -v setpriv >/dev/null; then
    exec setpriv --reuid="$user" --regid="$(id -g "$user")" --init-groups -- "$@"
  else
    exec su -s /bin/sh "$user" -c "exec $(printf '%q ' "$@")"
  fi
}

# lost: whether the command has ended and this shell does not know: a signal that arrives just then, sent to both of
# them, has it forget what it was told. It would wait for ever.
lost() { ! kill -0 "$child" 2>/dev/null && jobs -rp | grep -qx "$child"; }

# run_command COMMAND...: runs it, and exits with its status. It runs beside this shell, so that a signal is
# handled at once and not after the command; it keeps the terminal as its input, and the signals that a
# background command would ignore.
run_command() {
  local status=0
  # A terminal sends Ctrl-C to the command, too; a second one would mean "at once" to many programs.
  if [[ -t 0 ]]; then trap '' INT; fi
  (trap - INT QUIT && exec "$@") <&0 &
  child=$!
  while :; do # a signal ends the wait, not the command
    signalled=
    wait "$child" && status=0 || status=$?
    if [[ -z $signalled ]] || lost; then break; fi
  done
  exit "$status"
}
