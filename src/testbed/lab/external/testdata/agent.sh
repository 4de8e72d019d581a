#!/bin/sh
# Stands in for bosh-agent: it copies its settings, mounts the persistent disk at boot as bosh-agent does, and starts
# monit.
echo "$*" >/var/vcap/data/arguments
cp /var/vcap/bosh/warden-cpi-agent-env.json /var/vcap/data/settings.json
disk=/var/vcap/bosh/managed_disk_settings.json
if [ -e $disk ] && [ "$(dd if="$(cat $disk)" bs=1 skip=510 count=2 2>/dev/null | od -An -tx1)" = ' 55 aa' ]; then
  mkdir -p /var/vcap/store
  mount "$(cat $disk)" /var/vcap/store
fi
systemctl start monit
systemctl restart systemd-networkd
exec sleep 100000
