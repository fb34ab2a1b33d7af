# What the scripts that run a private server have in common. Sourced by them.

say() { echo "${0##*/}: $*" >&2; }
die() { say "$@"; exit 1; }
answers() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# Below 32768: the kernel gives the ports above it to outgoing connections, also while the server is down.
free_port() {
  local port
  while port=$((20000 + RANDOM % 12000)); answers "$port"; do :; done
  echo "$port"
}

# Installs a package of Debian, and starts nothing.
install_package() {
  command -v apt-get >/dev/null || die "$1 is missing and this machine has no apt-get: install it by hand"
  local root='' policy=/usr/sbin/policy-rc.d log forbid=false status=0
  [ "$(id -u)" = 0 ] || root=sudo
  log=$(mktemp)
  apt() { $root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=300 "$@"; }
  # The package would start the machine's own server.
  if [ ! -e $policy ]; then
    forbid=true
    printf '#!/bin/sh\nexit 101\n' | $root install -m 755 /dev/stdin $policy
  fi
  say "installing $1"
  { apt install -y --no-install-recommends "$1" ||
    { apt update && apt install -y --no-install-recommends "$1"; }; } >"$log" 2>&1 || status=$?
  if $forbid; then $root rm -f $policy; fi
  if [ $status != 0 ]; then tail -n 20 "$log" >&2; fi
  rm -f "$log"
  [ $status = 0 ] || die "apt-get could not install $1"
}
