#!/usr/bin/env bash
# Provides the programs of the distribution that a real node needs: runc with seccomp, nft, and the
# tools for namespaces. With `policies`, also those of the engine of network policies. As root of
# Debian, installs what is missing; otherwise says what to install.
set -euo pipefail
packages=()
programs=(unshare=util-linux ip=iproute2 nft=nftables runc=runc)
[ "${1:-}" != policies ] || programs+=(iptables=iptables ipset=ipset)
for pair in "${programs[@]}"; do
  PATH=$PATH:/usr/sbin:/sbin command -v "${pair%=*}" >/dev/null || packages+=("${pair#*=}")
done
[ ${#packages[@]} -gt 0 ] || exit 0
if [ "$(id -u)" != 0 ]; then
  echo "real nodes need root, and ${packages[*]}" >&2
elif ! command -v apt-get >/dev/null; then
  echo "real nodes need these packages of your distribution: ${packages[*]}" >&2
else
  echo "installing ${packages[*]} for real nodes" >&2
  export DEBIAN_FRONTEND=noninteractive
  # The lists may be old or missing.
  apt-get install --quiet=2 --yes --no-install-recommends "${packages[@]}" >/dev/null 2>&1 || {
    apt-get update --quiet=2 >/dev/null 2>&1 || true
    apt-get install --quiet=2 --yes --no-install-recommends "${packages[@]}" >/dev/null || echo "the packages can't be installed: ${packages[*]}" >&2
  }
fi
