#!/bin/sh
# Runs a stemcell's agent in a VM of the lab without systemd, as bosh-agent.service or runit does, and what it depends
# on. runit, where the stemcell has it, runs other services, such as sshd.
export PATH=/var/vcap/bosh/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
if [ -x /usr/lib/systemd/systemd-resolved ] && ! systemctl is-active systemd-resolved; then
  mkdir -p /run/dbus /run/systemd/resolve
  chown systemd-resolve:systemd-resolve /run/systemd/resolve
  dbus-daemon --system --fork # through which resolvectl reaches it
  systemctl start systemd-resolved
fi
if [ -x /usr/sbin/runsvdir-start ]; then
  [ ! -e /etc/service/agent ] || exec /usr/sbin/runsvdir-start
  pgrep -x runsvdir >/dev/null || /usr/sbin/runsvdir-start &
fi
cd /var/vcap/bosh || exit 1
exec /var/vcap/bosh/bin/bosh-agent -P "$(cat /var/vcap/bosh/etc/operating_system)" -C /var/vcap/bosh/agent.json
