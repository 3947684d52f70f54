#!/bin/sh
# Install the Debian packages that are missing: debian.sh NEED... (needs as in debian-packages.txt). Prints nothing if all are installed.
set -eu
list=$(dirname "$0")/debian-packages.txt

installed() { dpkg-query -W -f '${Status}\n' "$1" 2>/dev/null | grep -q ' installed$'; }
offered() { apt-cache policy "$1" | grep -q 'Candidate: [0-9]'; }

# the entries of these needs of which no choice is installed, as CHOICE|CHOICE:SERVICE
missing=
for need in "$@"; do
    while read -r line_need choices service; do
        [ "$line_need" = "$need" ] || continue
        found=
        for package in $(echo "$choices" | tr '|' ' '); do
            if installed "$package"; then found=yes; fi
        done
        [ -n "$found" ] || missing="$missing $choices:$service"
    done <"$list"
done
[ -n "$missing" ] || exit 0

names=$(echo "$missing" | sed 's/:[^ ]*//g; s/|/ or /g')
command -v apt-get >/dev/null || { echo "error: these Debian packages are missing and there is no apt-get here:$names" >&2; exit 1; }
if [ "$(id -u)" = 0 ]; then as_root=env
elif command -v sudo >/dev/null; then as_root="sudo env"
else echo "error: to install$names, run as root or install sudo" >&2; exit 1
fi
echo "installing Debian packages:$names"

log=$(mktemp)
fail() {
    tail -n 20 "$log" >&2
    echo "error: apt-get could not $1 (its whole output: $log)" >&2
    exit 1
}
$as_root apt-get update >"$log" 2>&1 || fail "update its lists"

packages=
services=
for entry in $missing; do
    chosen=
    for package in $(echo "${entry%:*}" | tr '|' ' '); do
        if [ -z "$chosen" ] && offered "$package"; then chosen=$package; fi
    done
    # no choice is available: let apt-get report the first
    packages="$packages ${chosen:-${entry%%[|:]*}}"
    services="$services ${entry##*:}"
done

# Debian starts a service when its package is installed, and at each boot. Prevent that: a broker on port 1883 is not wanted.
policy=/usr/sbin/policy-rc.d
if [ -n "$(echo $services)" ] && [ ! -e $policy ]; then
    printf '#!/bin/sh\nexit 101\n' | $as_root tee $policy >/dev/null
    $as_root chmod 755 $policy
    trap '$as_root rm -f $policy' EXIT
fi
$as_root DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $packages >"$log" 2>&1 || fail "install$packages"
rm -f "$log"
for service in $services; do
    if command -v systemctl >/dev/null; then $as_root systemctl disable --quiet "$service" 2>/dev/null || true; fi
done
