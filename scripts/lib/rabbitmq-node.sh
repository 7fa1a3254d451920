#!/usr/bin/env bash
# One node of a throw-away RabbitMQ, in a directory that with-rabbitmq.sh has made:
#
#   scripts/lib/rabbitmq-node.sh DIRECTORY start | kill | pause | cut | block | unblock | channels | permit EXCHANGE KEYS | leader QUEUE | online QUEUE
#
# start returns when the node takes connections, and lets a paused one go on; kill ends it as a crash does; pause stops
# it with its connections; cut closes all connections of clients; block has it take nothing from publishers, as if it had
# no memory left, until unblock; channels prints how many clients have open; permit lets guest publish to an exchange by routing keys
# that match, and no others; leader prints the node that leads a quorum queue, online on how many nodes it runs.
set -euo pipefail
node=$1
# shellcheck source=/dev/null
source "$node/env" # what a node is called, its ports, its owner

# runs: whether the node's process is there.
runs() { [[ -e $node/pid ]] && kill -0 "$(<"$node/pid")" 2>/dev/null; }

# answers: whether the node takes connections.
answers() { (: <"/dev/tcp/127.0.0.1/$RABBITMQ_NODE_PORT") 2>/dev/null; }

# as_owner COMMAND...: becomes the command, as the user who owns the node, in a session of its own.
as_owner() {
  cd "$node"
  if [[ -z $owner ]]; then
    exec setsid "$@"
  fi
  exec setsid setpriv --reuid="$owner" --regid="$(id -g "$owner")" --init-groups -- "$@"
}

case $2 in
start)
  if runs; then
    kill -CONT -- "-$(<"$node/pid")"
  else
    as_owner "$programs/rabbitmq-server" >>"$node/server.log" 2>&1 </dev/null &
    echo "$!" >"$node/pid"
  fi
  for ((i = 0; ; i++)); do
    if answers; then break; fi
    if ((i >= 600)) || ! runs; then
      cat "$node/server.log" >&2
      exit 1
    fi
    sleep 0.1
  done
  ;;
kill)
  if runs; then kill -KILL -- "-$(<"$node/pid")" 2>/dev/null || true; fi
  while runs; do sleep 0.02; done
  rm -f "$node/pid"
  ;;
pause)
  kill -STOP -- "-$(<"$node/pid")"
  # The signal is there before the last thread has stopped: until then the node may still answer.
  while pgrep -g "$(<"$node/pid")" | while read -r one; do cat "/proc/$one/task/"*/status; done | grep '^State:' | grep -qv 'T (stopped)'; do
    sleep 0.01
  done
  ;;
block) (as_owner "$programs/rabbitmqctl" --quiet set_vm_memory_high_watermark 0.00001) ;;
unblock) (as_owner "$programs/rabbitmqctl" --quiet set_vm_memory_high_watermark absolute 1GB) ;;
cut) (as_owner "$programs/rabbitmqctl" --quiet close_all_connections cut) ;;
channels) (as_owner "$programs/rabbitmqctl" --quiet list_channels pid) | grep -c '^<' || true ;;
permit) (as_owner "$programs/rabbitmqctl" --quiet set_topic_permissions guest "$3" "$4" '.*') ;;
leader) (as_owner "$programs/rabbitmqctl" --quiet list_queues name leader) | while read -r queue leader; do
  if [[ $queue == "$3" ]]; then echo "$leader"; fi
done ;;
online) (as_owner "$programs/rabbitmqctl" --quiet list_queues name online) | while read -r queue online; do
  if [[ $queue == "$3" ]]; then tr -cd @ <<<"$online" | wc -c; fi
done ;;
*)
  echo "usage: rabbitmq-node.sh DIRECTORY start | kill | pause | cut | block | unblock | channels | permit EXCHANGE KEYS | leader QUEUE | online QUEUE" >&2
  exit 2
  ;;
esac
