#!/usr/bin/env bash
# A private Redis server for the tests: loopback only, on a free port, with a password, its data in a folder of its own.
#
#   redis.sh install    install the Debian package if it is missing; starts no service
#   redis.sh start      start the server, wait until it answers, print its URL
#   redis.sh stop       end it and remove its data
#   redis.sh url        print the URL
#
# TOWER_MQ_REDIS_DIR is the folder for the data; one folder, one server.
set -euo pipefail
exec </dev/null

dir=$(realpath -m "${TOWER_MQ_REDIS_DIR:-${TMPDIR:-/tmp}/tower-mq-redis-$(id -u)}")
patience=30 # seconds until a start is given up

# shellcheck source=tests/support/server.sh
. "$(dirname "${BASH_SOURCE[0]}")/../support/server.sh"

# The process id of our server, if it runs and is not a stranger that got the same number.
alive() {
  local pid
  pid=$(cat "$dir/server.pid" 2>/dev/null) || return 1
  [ "$(readlink "/proc/$pid/cwd" 2>/dev/null)" = "$dir" ] && echo "$pid"
}

url() {
  [ -s "$dir/server" ] || die "no server in $dir: run '$0 start' first"
  read -r port password <"$dir/server"
  echo "redis://:$password@127.0.0.1:$port/0"
}

start() {
  command -v redis-server >/dev/null || die "Redis is not installed: run '$0 install' first"
  local end port password
  if alive >/dev/null; then url; return; fi
  (umask 077 && mkdir -p "$dir")
  port=$(free_port) password=secret-$RANDOM$RANDOM
  (umask 077 && echo "$port $password" >"$dir/server" && cat >"$dir/redis.conf") <<END
bind 127.0.0.1
port $port
requirepass $password
dir $dir
save ""
appendonly no
logfile $dir/server.log
END
  cd "$dir"
  setsid redis-server "$dir/redis.conf" >console.log 2>&1 &
  echo $! >server.pid
  end=$((SECONDS + patience))
  until answers "$port"; do
    if ! kill -0 $! 2>/dev/null || [ $SECONDS -ge $end ]; then
      cat console.log server.log >&2 || true
      stop
      die "the server ended, or did not answer within $patience s; its output stands above"
    fi
    sleep 0.1
  done
  url
}

stop() {
  local pid
  if pid=$(alive); then
    kill -TERM "$pid" 2>/dev/null || true
    for _ in {1..100}; do
      alive >/dev/null || break
      sleep 0.1
    done
    if pid=$(alive); then kill -KILL "$pid" 2>/dev/null || true; fi
  fi
  rm -rf "$dir"
}

case ${1:-} in
  install) command -v redis-server >/dev/null || install_package redis-server ;;
  start) start ;;
  stop) stop ;;
  url) url ;;
  *) sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
