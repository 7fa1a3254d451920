#!/usr/bin/env bash
# Makes sure that the tests of the command on a terminal find tmux: silent when there is one, installs it
# as root on Debian and its relatives, and says what to install anywhere else.
set -euo pipefail
# shellcheck source=scripts/lib/install.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/install.sh"

command -v tmux >/dev/null && exit 0
if can_install; then
  say "tmux was not found, installing it"
  apt_install tmux
  command -v tmux >/dev/null && exit 0
fi
say "the tests need tmux."
say "  Debian, Ubuntu: sudo apt-get install tmux"
say "  Fedora:         sudo dnf install tmux"
say "  macOS:          brew install tmux"
exit 1
