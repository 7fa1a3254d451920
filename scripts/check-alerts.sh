#!/usr/bin/env bash
# Checks the example alerts in docs/alerts with promtool, which comes with Prometheus, and runs their tests. Without
# promtool it installs it as root on Debian and its relatives; anywhere else it says so and leaves the alerts unchecked.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../docs/alerts"
# shellcheck source=scripts/lib/install.sh
source ../../scripts/lib/install.sh

if ! command -v promtool >/dev/null && can_install; then
  say "no promtool found, installing prometheus"
  apt_install prometheus
fi
if ! command -v promtool >/dev/null; then
  say "no promtool found (Debian, Ubuntu: sudo apt-get install prometheus): the alerts are not checked"
  exit 0
fi
promtool check rules asyncmonolith.rules.yml
promtool test rules asyncmonolith.test.yml
