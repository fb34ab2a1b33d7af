#!/usr/bin/env bash
# Counts the instructions and allocations of each delivery, and compares them with their bounds.
#
#   benches/run.sh          installs valgrind if it is missing, builds, counts, prints the table (about 3 minutes)
#
# Fails if a bound is exceeded. Nothing is timed: the figures do not depend on what else the machine does. Only the
# table goes to the standard output. README.md beside this file says what is counted, and how.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! command -v valgrind >/dev/null; then
  as_root=$([ "$(id -u)" = 0 ] || echo sudo)
  $as_root apt-get update -qq </dev/null >&2
  DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -qq --no-install-recommends valgrind libc6-dbg </dev/null >&2
fi

CARGO_PROFILE_RELEASE_DEBUG=line-tables-only CARGO_PROFILE_RELEASE_CODEGEN_UNITS=1 CARGO_PROFILE_RELEASE_LTO=fat \
  cargo build --quiet --release -p tower-mq-benches >&2
programs=${CARGO_TARGET_DIR:-target}/release
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

run() { # stack, deliveries, keys: prints instructions and allocations
  local said program=$programs/count
  case $1 in canonical*) program=$programs/canonical ;; esac
  said=$(valgrind --tool=callgrind --callgrind-out-file="$out/callgrind" \
    --collect-atstart=no '--toggle-collect=*::measured*' "$program" "$@" 2>"$out/log") ||
    { cat "$out/log" >&2; return 1; }
  echo "$(sed -n 's/.*Collected : //p' "$out/log") ${said##*allocations=}"
}

failed=0
slope() { # stack, keys, deliveries of the shorter and of the longer run: sets instructions and allocations of one
  # delivery, allocations in thousandths
  local few=${3:-10000} many=${4:-20000} a b
  read -ra a <<<"$(run "$1" "$few" "$2")"
  read -ra b <<<"$(run "$1" "$many" "$2")"
  instructions=$(((b[0] - a[0]) / (many - few)))
  allocations=$(((b[1] - a[1]) * 1000 / (many - few)))
}

line() { # stack, keys, bound, whether it is kept
  local verdict=ok
  if [ "$4" != kept ]; then verdict=EXCEEDED; failed=1; fi
  printf '| %-20s | %9s | %12s | %9s | %11s | %-8s |\n' "$1" "$2" "$instructions" "$3" \
    "$(printf '%d.%03d' $((allocations / 1000)) $((allocations % 1000)))" "$verdict"
}

row() { # stack, keys, most instructions, most allocations in thousandths
  slope "$1" "$2"
  line "$1" "$2" "$3" "$([ "$instructions" -le "$3" ] && [ "$allocations" -le "$4" ] && echo kept)"
}

flat() { # stack, instructions with 1,024 keys: the same, 5 % apart at most, with few keys and with very many
  local low=$(($2 * 95 / 100)) high=$(($2 * 105 / 100))
  within() { [ "$instructions" -ge $low ] && [ "$instructions" -le $high ] && [ "$allocations" -le 1 ] && echo kept; }
  slope "$1" 10
  line "$1" 10 "$low-$high" "$(within)"
  # Every key has been there before the first delivery that counts.
  slope "$1" 1000000 1000000 1300000
  line "$1" 1000000 "$low-$high" "$(within)"
}

printf '| %-20s | %9s | %12s | %9s | %11s | %-8s |\n' stack keys instructions bound allocations verdict
printf '|---|---:|---:|---:|---:|---|\n'
row source 1024 1000 0
row sequential 1024 300 1
sequential=$instructions
slope empty_layers_8 1024
instructions=$(((instructions - sequential) / 8))
line 'an empty layer' 1024 25 "$([ $instructions -le 25 ] && echo kept)"
row by_key 1024 1100 1
flat by_key "$instructions"
row by_key_inline 1024 950 1
row per_key 1024 1250 1
flat per_key "$instructions"
row per_key_inline 1024 1250 1
row settled_sequential 1024 600 1
row settled_by_key 1024 1400 1
# The added layers together cost no more than the queue, its lanes and its settlements do.
row canonical 1024 $((2 * instructions)) 1
row canonical_recorded 1024 $((instructions + 1500)) 1
exit $failed
