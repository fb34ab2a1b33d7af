#!/usr/bin/env bash
# A private RabbitMQ node for the tests: loopback only, with its own free ports, data and epmd.
#
#   rabbitmq.sh install    install the Debian package if it is missing; starts no service
#   rabbitmq.sh start      start the node on the data that is there, wait until it answers, print its URL
#   rabbitmq.sh kill       end it with SIGKILL and keep data and ports: the next start brings both back
#   rabbitmq.sh stop       end it and remove its data
#   rabbitmq.sh url        print the URL
#   rabbitmq.sh env        print NAME=VALUE lines: URL, HTTP API, process id, log
#   rabbitmq.sh ctl ...    rabbitmqctl for this node
#
# TOWER_MQ_RABBITMQ_DIR is the folder for the data; one folder, one node. User and password are guest.
set -euo pipefail
exec </dev/null

dir=$(realpath -m "${TOWER_MQ_RABBITMQ_DIR:-${TMPDIR:-/tmp}/tower-mq-rabbitmq-$(id -u)}")
bin=/usr/lib/rabbitmq/bin # Debian's wrappers in /usr/sbin change the user and read the system's settings
patience=90               # seconds until a start is given up

# shellcheck source=tests/support/server.sh
. "$(dirname "${BASH_SOURCE[0]}")/../support/server.sh"

# The process id of our beam or epmd ($1), if it runs and is not a stranger that got the same number.
alive() {
  local pid
  pid=$(cat "$dir/$1.pid" 2>/dev/null) || return 1
  grep -Fqxz "RABBITMQ_PID_FILE=$dir/node.pid" "/proc/$pid/environ" 2>/dev/null && echo "$pid"
}

ports() {
  [ -s "$dir/ports" ] || die "no node in $dir: run '$0 start' first"
  read -r amqp http dist epmd <"$dir/ports"
  url="amqp://guest:guest@127.0.0.1:$amqp/%2f"
}

node_environment() {
  local local_only='-kernel inet_dist_use_interface {127,0,0,1}'
  unset RABBITMQ_NODE_PORT RABBITMQ_NODE_IP_ADDRESS RABBITMQ_USE_LONGNAME
  export HOME=$dir/home LC_ALL=C.UTF-8 ERL_EPMD_PORT=$epmd ERL_EPMD_ADDRESS=127.0.0.1
  export RABBITMQ_NODENAME=tower-mq@localhost RABBITMQ_DIST_PORT=$dist RABBITMQ_PID_FILE=$dir/node.pid
  export RABBITMQ_CONF_ENV_FILE=/dev/null RABBITMQ_CONFIG_FILE=$dir/rabbitmq.conf
  export RABBITMQ_ADVANCED_CONFIG_FILE=$dir/advanced.config RABBITMQ_ENABLED_PLUGINS_FILE=$dir/plugins
  export RABBITMQ_GENERATED_CONFIG_DIR=$dir/generated RABBITMQ_SCHEMA_DIR=$dir/schema
  export RABBITMQ_MNESIA_BASE=$dir/data RABBITMQ_LOG_BASE=$dir/log RABBITMQ_LOGS=$dir/log/node.log
  export RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=$local_only RABBITMQ_CTL_ERL_ARGS=$local_only
}

configure() {
  (umask 077 && mkdir -p "$dir"/{home,data,log,generated,schema})
  [ -s "$dir/ports" ] || echo "$(free_port) $(free_port) $(free_port) $(free_port)" >"$dir/ports"
  ports
  cat >"$dir/rabbitmq.conf" <<END
listeners.tcp.1 = 127.0.0.1:$amqp
management.tcp.ip = 127.0.0.1
management.tcp.port = $http
# The numbers of the HTTP API are half a second old at most, not five.
collect_statistics_interval = 500
management.rates_mode = none
vm_memory_high_watermark.absolute = 1GB
disk_free_limit.absolute = 50MB
END
  echo '[].' >"$dir/advanced.config"
  echo '[rabbitmq_management,rabbitmq_consistent_hash_exchange,rabbitmq_amqp1_0].' >"$dir/plugins"
}

start() {
  [ -x $bin/rabbitmq-server ] || die "RabbitMQ is not installed: run '$0 install' first"
  local port end
  if alive beam >/dev/null; then ports; echo "$url"; return; fi
  configure
  for port in "$amqp" "$http" "$dist" "$epmd"; do
    if answers "$port"; then die "port $port of the node in $dir is taken; 'stop' gives it up"; fi
  done
  node_environment
  cd "$dir"
  rm -f node.pid
  # The Erlang machine reserves memory for every file that it may open.
  ulimit -S -n 65536 2>/dev/null || true
  # An epmd started by the node itself would be a daemon of unknown process id.
  setsid epmd -port "$epmd" >log/epmd.log 2>&1 &
  echo $! >epmd.pid
  # Under systemd the script becomes the node instead of watching over it, so its process id is the node's.
  RUNNING_UNDER_SYSTEMD=true setsid $bin/rabbitmq-server >log/console.log 2>&1 &
  echo $! >beam.pid
  end=$((SECONDS + patience))
  until [ -s node.pid ] && answers "$amqp" && answers "$http"; do
    if ! kill -0 $! 2>/dev/null || [ $SECONDS -ge $end ]; then
      tail -n 30 log/console.log >&2
      end_processes KILL
      die "the node ended, or did not answer within $patience s; its output stands above"
    fi
    sleep 0.1
  done
  echo "$url"
}

end_processes() { # with signal $1, with SIGKILL when that takes more than 15 s
  local name pid port
  [ -s "$dir/ports" ] || return 0
  ports
  for name in beam epmd; do
    pid=$(alive $name) || continue
    kill "-$1" "$pid" 2>/dev/null || true
    for _ in {1..150}; do
      alive $name >/dev/null || continue 2
      sleep 0.1
    done
    kill -KILL "$pid" 2>/dev/null || true
  done
  # A process that dies gives its sockets back a moment after its memory.
  for _ in {1..50}; do
    for port in "$amqp" "$http" "$dist" "$epmd"; do
      answers "$port" && sleep 0.1 && continue 2
    done
    break
  done
}

case ${1:-} in
  install) [ -x $bin/rabbitmq-server ] || install_package rabbitmq-server ;;
  start) start ;;
  kill) end_processes KILL ;;
  stop) end_processes TERM; rm -rf "$dir" ;;
  url) ports; echo "$url" ;;
  env)
    ports
    echo "TOWER_MQ_RABBITMQ_URL=$url"
    echo "TOWER_MQ_RABBITMQ_HTTP=http://guest:guest@127.0.0.1:$http/api"
    echo "TOWER_MQ_RABBITMQ_PID=$(alive beam || true)"
    echo "TOWER_MQ_RABBITMQ_LOG=$dir/log/node.log"
    ;;
  ctl) shift; ports; node_environment; exec $bin/rabbitmqctl -q "$@" ;;
  *) sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
