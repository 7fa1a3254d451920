#!/usr/bin/env bash
# Runs a command with a throw-away RabbitMQ:
#
#   scripts/with-rabbitmq.sh [NODES] go test ./...
#
# NODES is 1 unless it is given; three make a cluster that quorum queues are replicated in. The command finds the URLs of
# all nodes, with spaces between, in ASYNCMONOLITH_TEST_RABBITMQ, and their directories, for rabbitmq-node.sh, in
# ASYNCMONOLITH_TEST_RABBITMQ_NODES. When the first variable is already set, the command runs against those nodes and
# nothing is started. Nodes listen on loopback, at ports and under names of their own, and refuse messages above 1 MiB;
# they have nothing to do with the distribution's service, and are gone when the command ends, however it ends.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=scripts/lib/server.sh
source "$here/lib/server.sh"

nodes=1
if [[ ${1:-} =~ ^[0-9]+$ ]]; then
  nodes=$1
  shift
fi
if (($# == 0 || nodes < 1)); then
  say "usage: scripts/with-rabbitmq.sh [NODES] COMMAND [ARGUMENT...]"
  exit 2
fi
if [[ -n ${ASYNCMONOLITH_TEST_RABBITMQ:-} ]]; then
  exec "$@"
fi
"$here/need-rabbitmq.sh"

programs=/usr/lib/rabbitmq/bin # without Debian's wrapper, which changes the user
if [[ ! -x $programs/rabbitmq-server ]]; then programs=$(dirname "$(command -v rabbitmq-server)"); fi

epmd=''
# shellcheck disable=SC2317 # called by cleanup
stop_server() {
  local i
  for ((i = 1; i <= nodes; i++)); do
    if [[ -e $dir/$i/env ]]; then "$here/lib/rabbitmq-node.sh" "$dir/$i" kill || true; fi
  done
  if [[ -n $epmd ]]; then # Erlang's directory of nodes
    kill -KILL "$epmd" 2>/dev/null || true
    wait "$epmd" 2>/dev/null || true
  fi
}

# free_port sets port to the next one from port on that nobody listens on.
free_port() {
  while (: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do port=$((port + 1)); done
}

make_dir mq rabbitmq
# Below the ports that systems give to clients.
port=$((20000 + RANDOM % 10000))
free_port
epmd_port=$port
set -m # a process group of its own keeps Ctrl-C from it
as_user epmd -address 127.0.0.1 -port "$epmd_port" >"$dir/epmd.log" 2>&1 </dev/null &
epmd=$!
set +m

# make_node NUMBER: makes the directory of a node.
make_node() {
  local node=$dir/$1 amqp i
  mkdir "$node"
  port=$((port + 1)) && free_port && amqp=$port
  port=$((port + 1)) && free_port
  cat >"$node/env" <<END
programs=$programs
owner=$user
export HOME=$node
export RABBITMQ_NODENAME=asyncmonolith$1-$epmd_port@localhost
export RABBITMQ_NODE_IP_ADDRESS=127.0.0.1
export RABBITMQ_NODE_PORT=$amqp
export RABBITMQ_DIST_PORT=$port
export RABBITMQ_CTL_DIST_PORT_MIN=$((port + 10000))
export RABBITMQ_CTL_DIST_PORT_MAX=$((port + 10050))
export RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS='-kernel inet_dist_use_interface {127,0,0,1}'
export ERL_EPMD_PORT=$epmd_port
export ERL_EPMD_ADDRESS=127.0.0.1
export RABBITMQ_MNESIA_BASE=$node/mnesia
export RABBITMQ_LOG_BASE=$node/log
export RABBITMQ_CONF_ENV_FILE=$node/none
export RABBITMQ_CONFIG_FILE=$node/rabbitmq.conf
export RABBITMQ_ADVANCED_CONFIG_FILE=$node/advanced.config
export RABBITMQ_GENERATED_CONFIG_DIR=$node/generated
export RABBITMQ_ENABLED_PLUGINS_FILE=$node/enabled_plugins
END
  {
    echo "max_message_size = 1048576"
    echo "disk_free_limit.absolute = 50MB"
    echo "vm_memory_high_watermark.absolute = 1GB"
    if ((nodes > 1)); then
      echo "cluster_formation.peer_discovery_backend = classic_config"
      for ((i = 1; i <= nodes; i++)); do
        echo "cluster_formation.classic_config.nodes.$i = asyncmonolith$i-$epmd_port@localhost"
      done
    fi
  } >"$node/rabbitmq.conf"
  echo '[].' >"$node/enabled_plugins"
  echo "asyncmonolith-$epmd_port" >"$node/.erlang.cookie"
  chmod 600 "$node/.erlang.cookie"
  if [[ -n $user ]]; then chown -R "$user" "$node"; fi
  urls+=("amqp://guest:guest@127.0.0.1:$amqp/")
  dirs+=("$node")
}

urls=() dirs=()
for ((i = 1; i <= nodes; i++)); do make_node "$i"; done
# One after another: the first makes the cluster, the others join it.
for one in "${dirs[@]}"; do "$here/lib/rabbitmq-node.sh" "$one" start; done
export ASYNCMONOLITH_TEST_RABBITMQ="${urls[*]}"
export ASYNCMONOLITH_TEST_RABBITMQ_NODES="${dirs[*]}"

run_command "$@"
