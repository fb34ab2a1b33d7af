#!/usr/bin/env bash
# Counts the instructions and allocations of each delivery, and compares them with their bounds.
#
#   benches/run.sh          installs valgrind if it is missing, builds, counts, prints the table
#
# Fails if a bound is exceeded. Nothing is timed: the figures do not depend on what else the machine does.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! command -v valgrind >/dev/null; then
  as_root=$([ "$(id -u)" = 0 ] || echo sudo)
  $as_root apt-get update -qq </dev/null
  DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -qq --no-install-recommends valgrind libc6-dbg </dev/null
fi

CARGO_PROFILE_RELEASE_DEBUG=line-tables-only CARGO_PROFILE_RELEASE_CODEGEN_UNITS=1 CARGO_PROFILE_RELEASE_LTO=fat \
  cargo build --quiet --release -p tower-mq-benches --bin count
count=${CARGO_TARGET_DIR:-target}/release/count
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

run() { # stack, deliveries, keys: prints instructions and allocations
  local said
  said=$(valgrind --tool=callgrind --callgrind-out-file="$out/callgrind" \
    --collect-atstart=no '--toggle-collect=*count::measured*' "$count" "$@" 2>"$out/log") ||
    { cat "$out/log" >&2; return 1; }
  echo "$(sed -n 's/.*Collected : //p' "$out/log") ${said##*allocations=}"
}

failed=0
slope() { # stack, keys: sets instructions and allocations of one delivery, as thousandths
  local few=10000 many=20000 a b
  read -ra a <<<"$(run "$1" $few "$2")"
  read -ra b <<<"$(run "$1" $many "$2")"
  instructions=$(((b[0] - a[0]) / (many - few)))
  allocations=$(((b[1] - a[1]) * 1000 / (many - few)))
}

row() { # stack, keys, most instructions, most allocations in thousandths
  slope "$1" "$2"
  local verdict=ok
  if [ "$instructions" -gt "$3" ] || [ "$allocations" -gt "$4" ]; then verdict=EXCEEDED; failed=1; fi
  printf '| %-20s | %9s | %12s | %6s | %11s | %s |\n' "$1" "$2" "$instructions" "$3" \
    "$(printf '%d.%03d' $((allocations / 1000)) $((allocations % 1000)))" "$verdict"
}

printf '| %-20s | %9s | %12s | %6s | %11s | %s |\n' stack keys instructions bound allocations verdict
printf '|---|---:|---:|---:|---:|---|\n'
row source 1024 1000 0
row sequential 1024 300 1
sequential=$instructions
row by_key 1024 1100 1
by_key=$instructions
row by_key_inline 1024 950 1
row per_key 1024 1250 1
per_key=$instructions
row per_key_inline 1024 1250 1
# The message itself is the one allocation that the embedded broker makes for a delivery.
row settled_sequential 1024 600 1001
row settled_by_key 1024 1400 1001

slope empty_layers_8 1024
printf '\nAn empty layer: %s instructions (bound 25).\n' $(((instructions - sequential) / 8))
if [ $(((instructions - sequential) / 8)) -gt 25 ]; then failed=1; fi

flat() { # stack, instructions with 1,024 keys
  local keys
  for keys in 10 1000000; do
    slope "$1" "$keys"
    printf '%s with %s keys: %s instructions, %s with 1024 (bound: 5 %% apart).\n' "$1" "$keys" "$instructions" "$2"
    if [ $((instructions * 100)) -gt $(($2 * 105)) ] || [ $((instructions * 100)) -lt $(($2 * 95)) ]; then failed=1; fi
  done
}
flat by_key "$by_key"
flat per_key "$per_key"
exit $failed
