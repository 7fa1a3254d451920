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

# have PROGRAM PACKAGE: whether the program is there, if need be after an installation.
have() {
  command -v "$1" >/dev/null && return
  can_install || return
  say "$1 was not found, installing it"
  apt_install "$2" && command -v "$1" >/dev/null
}

# intact FILE CHECKSUM: whether the file is there and is the one that we mean.
intact() { [[ -e $1 ]] && sha256sum --quiet --check --status <<<"$2  $1"; }

# verify FILE CHECKSUM: ends the script unless the file is the one that we mean.
verify() {
  intact "$@" && return
  say "${1##*/} has the checksum $(sha256sum "$1" | cut -d ' ' -f 1), want $2"
  exit 1
}
