#!/bin/sh
# Install the Debian packages that are missing: debian.sh NEED... (needs as in debian-packages.txt). Says nothing when nothing is missing.
set -eu
list=$(dirname "$0")/debian-packages.txt

missing=
services=
for need in "$@"; do
    while read -r line_need package service; do
        [ "$line_need" = "$need" ] || continue
        case $(dpkg-query -W -f '${Status}' "$package" 2>/dev/null) in
            *" installed") ;;
            *) missing="$missing $package"; services="$services $service" ;;
        esac
    done <"$list"
done
[ -n "$missing" ] || exit 0

command -v apt-get >/dev/null || { echo "error: these Debian packages are missing and there is no apt-get here:$missing" >&2; exit 1; }
if [ "$(id -u)" = 0 ]; then as_root=env
elif command -v sudo >/dev/null; then as_root="sudo env"
else echo "error: to install$missing, run as root or install sudo" >&2; exit 1
fi
echo "installing Debian packages:$missing"

# Debian starts a service when its package is installed, and once more at each boot. Nobody asked us for a broker on port 1883.
policy=/usr/sbin/policy-rc.d
if [ -n "$(echo $services)" ] && [ ! -e $policy ]; then
    printf '#!/bin/sh\nexit 101\n' | $as_root tee $policy >/dev/null
    $as_root chmod 755 $policy
    trap '$as_root rm -f $policy' EXIT
fi
log=$(mktemp)
if ! { $as_root apt-get update && $as_root DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $missing; } >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    echo "error: apt-get could not install$missing (its whole output: $log)" >&2
    exit 1
fi
rm -f "$log"
for service in $services; do
    if command -v systemctl >/dev/null; then $as_root systemctl disable --quiet "$service" 2>/dev/null || true; fi
done
