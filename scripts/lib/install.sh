# shellcheck shell=bash
# What the scripts share that look for a program and install it where they can. To be sourced.

# say TEXT: a line under the name of the script.
say() {
  local name=${0##*/}
  printf '%s: %s\n' "${name%.sh}" "$*" >&2
}

# can_install: whether apt_install works here: as root on Debian and its relatives.
can_install() { ((EUID == 0)) && command -v apt-get >/dev/null; }

# apt_install PACKAGE...
apt_install() {
  local apt=(env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0)
  "${apt[@]}" update >&2 && "${apt[@]}" install -y --no-install-recommends "$@" >&2
}
