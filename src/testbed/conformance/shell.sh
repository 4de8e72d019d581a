#!/usr/bin/bash
# The shell of upstream's BusyBox image, in two parts. Tests look for messages of BusyBox's shell, and for variables with names that a shell
# does not accept, such as data-1: Debian's BusyBox removes those from the environment, bash keeps them.
if /bin/busybox grep -qzvE '^[A-Za-z_][A-Za-z0-9_]*=' /proc/self/environ; then
  exec -a "$0" /usr/bin/bash "$@"
fi
# BusyBox's shell prefers its own commands to those of the PATH, but not to functions.
if [[ ${1-} == -c && $# -ge 2 ]]; then
  # shellcheck disable=SC2016 # the shell that runs the script expands this
  set -- -c 'dd() { /usr/bin/dd "$@"; }; wget() { /usr/bin/wget "$@"; }; '"$2" "${@:3}"
fi
exec -a "$0" /bin/busybox "$@"
