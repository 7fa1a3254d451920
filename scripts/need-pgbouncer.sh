#!/usr/bin/env bash
# Makes sure that the tests that reach PostgreSQL through a pooler find pgbouncer: silent when there is
# one, installs it as root on Debian and its relatives, and says what to install anywhere else.
set -euo pipefail
# shellcheck source=scripts/lib/install.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/install.sh"

there() { command -v pgbouncer >/dev/null || [[ -x /usr/sbin/pgbouncer ]]; }

there && exit 0
if can_install; then
  say "pgbouncer was not found, installing it"
  # In this runlevel Debian's packages do not start their services.
  RUNLEVEL=1 apt_install pgbouncer
  there && exit 0
fi
say "the tests need pgbouncer."
say "  Debian, Ubuntu: sudo apt-get install pgbouncer"
say "  Fedora:         sudo dnf install pgbouncer"
say "  macOS:          brew install pgbouncer"
exit 1
