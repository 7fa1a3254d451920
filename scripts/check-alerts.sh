#!/usr/bin/env bash
# Checks the example alerts in docs/alerts with promtool, which comes with Prometheus, and runs their tests. Without
# promtool it installs it as root on Debian and its relatives; anywhere else it says so and leaves the alerts unchecked.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../docs/alerts"

say() { printf 'check-alerts: %s\n' "$*" >&2; }

if ! command -v promtool >/dev/null && ((EUID == 0)) && command -v apt-get >/dev/null; then
  say "no promtool found, installing prometheus"
  apt=(env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0)
  "${apt[@]}" update >&2
  "${apt[@]}" install -y --no-install-recommends prometheus >&2
fi
if ! command -v promtool >/dev/null; then
  say "no promtool found (Debian, Ubuntu: sudo apt-get install prometheus): the alerts are not checked"
  exit 0
fi
promtool check rules asyncmonolith.rules.yml
promtool test rules asyncmonolith.test.yml
