#!/bin/sh
# Substitutes `systemd-run --scope` in a VM of the lab: moves itself into a control group of its own and becomes the command
# (systemd, src/run/run.c, start_transient_scope). Properties have no effect.
unit=run-$$.scope
while [ $# -gt 0 ]; do
  case $1 in
  --unit=*) unit=${1#--unit=} ;;
  --) shift && break ;;
  -*) ;;
  *) break ;;
  esac
  shift
done
slice=UNITS/system.slice
# systemd removes a scope with its last process. A scope that has processes cannot be removed.
rmdir "$slice"/*.scope 2>/dev/null
for _ in 1 2 3; do # another systemd-run may remove the new scope while it is empty
  mkdir -p "$slice/$unit" && echo $$ >"$slice/$unit/cgroup.procs" && exec "$@"
done
echo "systemd-run: cannot move to $slice/$unit" >&2
exit 1
