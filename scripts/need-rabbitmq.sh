#!/usr/bin/env bash
# Makes sure that the tests that need RabbitMQ find its programs: silent when they are there, installs
# them as root on Debian and its relatives, without the service that the package would start, and says
# what to install anywhere else.
set -euo pipefail
# shellcheck source=scripts/lib/install.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/install.sh"

there() { [[ -x /usr/lib/rabbitmq/bin/rabbitmq-server ]] || command -v rabbitmq-server >/dev/null; }

# install_server installs Debian's RabbitMQ without the node that the package would start.
install_server() {
  local policy=/usr/sbin/policy-rc.d made=
  say "RabbitMQ was not found, installing the rabbitmq-server package"
  if [[ ! -e $policy ]]; then
    made=yes
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod +x "$policy"
  fi
  apt_install rabbitmq-server || true
  if [[ -n $made ]]; then rm -f "$policy"; fi
}

there && exit 0
if can_install; then
  install_server
  there && exit 0
fi
say "the tests need RabbitMQ 3.10 or newer: rabbitmq-server was not found."
say "  Debian, Ubuntu: sudo apt-get install rabbitmq-server"
say "  Fedora:         sudo dnf install rabbitmq-server"
say "  macOS:          brew install rabbitmq"
exit 1
