#!/usr/bin/env bash
# Tests PostgreSQL versions other than the installed one:
#
#   scripts/test-versions.sh 13 18
#
# It runs what depends most on the server: SQL and plans, claims, settling, order, the event log, transactions that
# hang, a failover, and the quick benchmarks. scripts/need-postgres.sh fetches the servers.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
trap 'exit 130' INT # not only the part that runs

# Tests wait for the disk, not for the processor: with fsync on, creating a database takes a while. pg_dump refuses
# servers newer than itself.
tests=(env ASYNCMONOLITH_TEST_DATABASES=postgres go test -count=1 -parallel 8 -skip TestDumpAndRestore)

# part NAME COMMAND...: runs the command on a throw-away server.
part() {
  PATH=$bin:$PATH scripts/step.sh "PostgreSQL $version: $1" scripts/with-postgres.sh "${@:2}" || failed+=" $1"
}

unset ASYNCMONOLITH_TEST_POSTGRES # it names a server of another version
summary=() status=0
for major; do
  bin=$(scripts/need-postgres.sh "$major")
  version=$("$bin/postgres" --version)
  version=${version##* } failed='' begun=$SECONDS
  part store "${tests[@]}" ./integration/store
  part outbox "${tests[@]}" -run 'Claim|Settl|Order|Key|Group|Lost|Lease|Fence|Lock|Commit|Transaction|Isolation|Prepare|Server' ./integration/outbox
  part eventlog "${tests[@]}" ./integration/eventlog
  part txn "${tests[@]}" ./integration/txn
  part failover go test -C integration/chaos -count=1 -run '^TestBars$' -args -bar 2-failover
  part bench go run ./integration/bench -quick
  if [[ -z $failed ]]; then
    summary+=("PostgreSQL $version: passed in $((SECONDS - begun)) s")
  else
    summary+=("PostgreSQL $version: FAILED:$failed") status=1
  fi
done
printf '\n'
printf '%s\n' "${summary[@]}"
exit "$status"
