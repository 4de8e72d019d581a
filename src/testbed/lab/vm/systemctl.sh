#!/bin/sh
# Substitutes systemctl in a VM of the lab without systemd, for the units without which a stemcell does not work: monit,
# which the agent starts and kills, and systemd-resolved. It does nothing with others.
unit=${2%.service}
case $unit in
monit) command='nice -n -10 /var/vcap/bosh/bin/monit -I -c /var/vcap/bosh/etc/monitrc' ;;
systemd-resolved) command=/usr/lib/systemd/systemd-resolved ;;
*) exit 0 ;;
esac
group=UNITS/system.slice/$unit.service
pidfile=/run/lab/$unit.pid

running() { [ -s "$pidfile" ] && kill -0 "$(cat "$pidfile")" 2>/dev/null; }

start() {
  ! running || return 0
  mkdir -p "$group"
  setsid "$0" loop "$unit" </dev/null >/dev/null 2>&1 &
  while ! running; do sleep 0.05; done
}

stop() {
  running || return 0
  loop=$(cat "$pidfile")
  # shellcheck disable=SC2046 # a word for each process
  kill "$loop" $(pgrep -P "$loop")
  while running; do sleep 0.05; done
}

case $1 in
loop)
  echo $$ >"$pidfile"
  while :; do
    sh -c "echo \$\$ >$group/cgroup.procs; exec $command"
    sleep 0.1
  done
  ;;
start) start ;;
stop) stop ;;
restart) stop && start ;;
kill) find "$group" -name cgroup.procs -exec cat {} + | while read -r pid; do kill "$pid" 2>/dev/null; done ;;
is-active) running ;;
esac
