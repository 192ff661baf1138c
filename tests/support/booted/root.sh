#!/bin/sh
# PID 1 of new name spaces: makes a root of its own over the host's, then becomes systemd.
#
#   root.sh STATE hybrid|unified CGROUP... -- [FROM:TO]...
#
# Whatever is written goes to a tmpfs and is thrown away with the name spaces. /run, /tmp, /dev and /proc are its own.
# Of all that the host has installed only journal, D-Bus and what the tests start is run.
set -eu
state=$1 layout=$2
shift 2

# Into our cgroups, before their name space is made: what is PID 1 now is what the manager will find there. (0 is the writer.)
if [ "${1:-}" != inside ]; then
	for word; do
		[ "$word" != -- ] || break
		echo 0 >"$word/cgroup.procs"
	done
	exec unshare --cgroup sh "$0" "$state" "$layout" inside "$@"
fi
while [ "$1" != -- ]; do shift; done
shift

read -r pid _ </proc/self/stat # the host's /proc still, so this is our pid outside
root=$state/root/root

mount --make-rprivate /
mount -t tmpfs -o mode=0755 booted "$state/root"
mkdir "$state/root/upper" "$state/root/work" "$root"
mount -t overlay -o "lowerdir=/,upperdir=$state/root/upper,workdir=$state/root/work" booted "$root"
chmod 0755 "$root"
cd "$root"

mount -t proc -o nosuid,nodev,noexec proc proc
mount --bind proc/sys proc/sys
mount -o remount,bind,ro proc/sys # the kernel's settings are the host's
mount -t sysfs -o ro,nosuid,nodev,noexec sysfs sys
mount -t tmpfs -o mode=0755,nosuid,nodev run run
mount -t tmpfs -o mode=1777,nosuid,nodev tmp tmp
mkdir -p run/lock

mount -t tmpfs -o mode=0755,nosuid dev dev
for node in null:1:3 zero:1:5 full:1:7 random:1:8 urandom:1:9 tty:5:0; do
	name=${node%%:*} numbers=${node#*:}
	mknod -m 0666 "dev/$name" c "${numbers%:*}" "${numbers#*:}"
done
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=0666,mode=0620,gid=5,nosuid,noexec devpts dev/pts
mount -t tmpfs -o mode=1777,nosuid,nodev shm dev/shm
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
for number in 0:stdin 1:stdout 2:stderr; do ln -s "/proc/self/fd/${number%:*}" "dev/${number#*:}"; done
: >dev/console
mount --bind "$state/console" dev/console # the manager's last words

if [ "$layout" = unified ]; then
	mount -t cgroup2 -o nosuid,nodev,noexec cgroup2 sys/fs/cgroup
else
	mount -t tmpfs -o mode=0755,nosuid,nodev,noexec cgroup sys/fs/cgroup
	mkdir sys/fs/cgroup/unified sys/fs/cgroup/systemd
	mount -t cgroup2 -o nosuid,nodev,noexec cgroup2 sys/fs/cgroup/unified
	mount -t cgroup -o nosuid,nodev,noexec,none,name=systemd cgroup sys/fs/cgroup/systemd
	while IFS=: read -r _ controllers _; do
		case $controllers in '' | name=*) continue ;; esac
		mkdir "sys/fs/cgroup/$controllers"
		mount -t cgroup -o "nosuid,nodev,noexec,$controllers" cgroup "sys/fs/cgroup/$controllers"
	done </proc/self/cgroup
fi

# Nothing is wanted but what is named here; what units require of each other they still get.
for folder in etc/systemd usr/lib/systemd lib/systemd usr/local/lib/systemd; do
	rm -rf "$folder"/system/*.wants "$folder"/system/*.requires "$folder"/system-generators
done
wants=etc/systemd/system/multi-user.target.wants
mkdir -p "$wants" etc/systemd/system.conf.d etc/systemd/journald.conf.d etc/tmpfiles.d
for unit in systemd-journald.service systemd-tmpfiles-setup.service dbus.socket; do
	ln -s "/usr/lib/systemd/system/$unit" "$wants/$unit"
done
ln -sf /usr/lib/systemd/system/multi-user.target etc/systemd/system/default.target
for name in tmp.conf x11.conf; do : >"etc/tmpfiles.d/$name"; done # nothing of the host's /tmp rules
rm -f etc/fstab etc/machine-id
tr -d - </proc/sys/kernel/random/uuid >etc/machine-id
cat >etc/systemd/system.conf.d/booted.conf <<-END
	[Manager]
	ShowStatus=no
	CrashReboot=no
	DumpCore=no
	DefaultTimeoutStopSec=20s
END
cat >etc/systemd/journald.conf.d/booted.conf <<-END
	[Journal]
	Storage=volatile
	RuntimeMaxUse=256M
	ReadKMsg=no
	Audit=no
	RateLimitIntervalSec=0
END

for bind; do
	to=$root${bind#*:}
	mkdir -p "$to"
	mount --bind "${bind%%:*}" "$to"
	mount -o remount,bind,ro "$to"
done

pivot_root . .
umount -l .
cd /
mount --make-rshared / # as on any booted machine; else mounts would not reach the units
echo "$pid"
exec env -i container=booted LANG=C.UTF-8 TERM=dumb PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
	setpriv --bounding-set=-sys_module,-sys_rawio,-sys_time,-mac_admin,-mac_override \
	/lib/systemd/systemd --system --log-target=journal-or-kmsg </dev/null >/dev/null 2>&1
