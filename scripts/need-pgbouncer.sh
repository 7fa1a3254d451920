#!/usr/bin/env bash
# Makes sure that the tests that reach PostgreSQL through a pooler find pgbouncer: silent when there is
# one, installs it as root on Debian and its relatives, and says what to install anywhere else.
set -euo pipefail

say() { printf 'need-pgbouncer: %s\n' "$*" >&2; }
there() { command -v pgbouncer >/dev/null || [[ -x /usr/sbin/pgbouncer ]]; }

there && exit 0
if ((EUID == 0)) && command -v apt-get >/dev/null; then
  say "pgbouncer was not found, installing it"
  # In this runlevel Debian's packages do not start their services.
  apt=(env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get -qq -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0)
  "${apt[@]}" update >&2
  "${apt[@]}" install -y --no-install-recommends pgbouncer >&2
  there && exit 0
fi
say "the tests need pgbouncer."
say "  Debian, Ubuntu: sudo apt-get install pgbouncer"
say "  Fedora:         sudo dnf install pgbouncer"
say "  macOS:          brew install pgbouncer"
exit 1
