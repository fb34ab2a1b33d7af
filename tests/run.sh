#!/usr/bin/env bash
# Every check of the project, with one command:
#
#   tests/run.sh [part ...] [--full]
#
#   lint       format, clippy, documentation, each feature and each crate by itself
#   layers     all tests that need no broker, with the examples in the documentation, and the quickstart
#   loom       models of the hand-made synchronisation, run through every interleaving
#   rabbitmq   tests and faults on a private RabbitMQ node, which is installed when it is missing
#   redis      tests on a private Redis server, which is installed when it is missing
#
# No part named: all of them. --full: the large numbers. Whatever is started is stopped again, also when a test
# fails or the run is interrupted.
# shellcheck disable=SC2317 # The parts are called by their names.
set -euo pipefail
exec </dev/null
cd "$(dirname "$0")/.."

all=(lint layers loom rabbitmq redis)
rabbitmq_script=$PWD/tests/brokers/rabbitmq.sh
redis_script=$PWD/tests/stores/redis.sh
# One set of features for all parts, so that the dependencies are built once.
features=(--features full)

lint() {
  local feature manifest failed=0
  { cargo fmt --version && cargo clippy --version; } >/dev/null 2>&1 || rustup component add rustfmt clippy
  cargo fmt --all --check || failed=1
  cargo clippy --workspace --all-targets --all-features -- -D warnings || failed=1
  RUSTDOCFLAGS='-D warnings' cargo doc --no-deps --all-features || failed=1
  for feature in '' $(sed -n '/^\[features\]/,/^\[[^f]/s/^\([a-z][a-z0-9-]*\) *=.*/\1/p' Cargo.toml); do
    echo "== feature ${feature:-(none)}"
    cargo clippy --quiet -p tower-mq --no-default-features --features "$feature" -- -D warnings || failed=1
  done
  # By itself, so that no crate lives on what another one asks of their dependencies.
  for manifest in layers/*/Cargo.toml; do
    echo "== ${manifest%/Cargo.toml}"
    cargo clippy --quiet --manifest-path "$manifest" --no-default-features -- -D warnings || failed=1
  done
  return "$failed"
}

layers() {
  local failed=0
  cargo test "${features[@]}" --no-fail-fast || failed=1
  quickstart || failed=1
  return "$failed"
}

# As a reader of the README runs it. It ends by itself, and its last lines tell what became of the orders.
quickstart() {
  local said
  cargo build --quiet --example quickstart || return 1
  said=$(timeout 60 cargo run --quiet --example quickstart) || return 1
  printf '%s\n' "$said"
  grep -q '^taken 9: acked 7, retried 1, rejected 1,' <<<"$said" && grep -qx 'dead letters: 1' <<<"$said"
}

loom() {
  RUSTFLAGS='--cfg tower_mq_loom' CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}/loom \
    cargo test --release --lib -p tower-mq-breaker -p tower-mq-delivery -p tower-mq-partition
}

rabbitmq() {
  local failed=0
  export TOWER_MQ_RABBITMQ_URL TOWER_MQ_RABBITMQ_SCRIPT=$rabbitmq_script
  "$rabbitmq_script" install
  TOWER_MQ_RABBITMQ_URL=$("$rabbitmq_script" start)
  cargo test "${features[@]}" --features __brokers --test rabbitmq || failed=1
  cargo test "${features[@]}" --features __brokers --test rabbitmq_contract || failed=1
  cargo test "${features[@]}" --features __brokers --test rabbitmq_stack || failed=1
  # A fault hits every test on the node, so these run one after the other, on a node without the queues of the others.
  "$rabbitmq_script" stop
  TOWER_MQ_RABBITMQ_URL=$("$rabbitmq_script" start)
  cargo test "${features[@]}" --features __brokers --test rabbitmq_dead_letter -- --test-threads=1 || failed=1
  cargo test "${features[@]}" --features __brokers --test rabbitmq_faults -- --test-threads=1 || failed=1
  return "$failed"
}

redis() {
  export TOWER_MQ_REDIS_URL
  "$redis_script" install
  TOWER_MQ_REDIS_URL=$("$redis_script" start)
  cargo test "${features[@]}" --features __brokers --test redis
}

stop_all() {
  trap '' INT TERM
  if [ -n "$running" ]; then
    kill -TERM -- "-$running" 2>/dev/null || true
    wait "$running" 2>/dev/null || true
  fi
  "$rabbitmq_script" stop
  "$redis_script" stop
  rm -rf "$scratch"
}

parts=()
for argument; do
  case $argument in
    --full) export TOWER_MQ_FULL=1 ;;
    lint | layers | loom | rabbitmq | redis) parts+=("$argument") ;;
    *) sed -n '2,/^# shellcheck/{/^# shellcheck/!s/^# \{0,1\}//p}' "$0" >&2; exit 2 ;;
  esac
done
[ ${#parts[@]} -gt 0 ] || parts=("${all[@]}")

running='' table='' failed=0
scratch=$(mktemp -d)
export TOWER_MQ_RABBITMQ_DIR=$scratch/rabbitmq TOWER_MQ_REDIS_DIR=$scratch/redis
trap stop_all EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
# A part is a job with a process group of its own: a signal to this script ends it at once, with all its processes.
set -m

for part in "${parts[@]}"; do
  echo "==== $part"
  began=$SECONDS result=passed
  (set -e; "$part") &
  running=$!
  wait "$running" || result=FAILED failed=1
  running=''
  if [ "$part" = rabbitmq ]; then "$rabbitmq_script" stop; fi
  if [ "$part" = redis ]; then "$redis_script" stop; fi
  table+=$(printf '%-10s %-8s %5d s' "$part" "$result" $((SECONDS - began)))$'\n'
  echo "==== $part $result after $((SECONDS - began)) s"
done
printf '\n%s' "$table"
exit $failed
