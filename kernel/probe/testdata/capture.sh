#!/bin/sh
# Takes what the probes read of this machine into the folder named by the first argument. See README.md.
set -eu
to=$1

take() { # a file as it is; what is absent stays absent
	for file in "$@"; do
		[ -e "$file" ] || continue
		mkdir -p "$to$(dirname "$file")"
		cat "$file" >"$to$file"
	done
}

filter() { # file, program and its arguments
	file=$1
	shift
	mkdir -p "$to$(dirname "$file")"
	"$@" <"$file" >"$to$file"
}

filter /proc/self/mounts awk '$3 ~ /^(cgroup2?|resctrl|proc|sysfs|debugfs)$/'
filter /proc/self/cgroup sed 's|^\([^:]*:[^:]*:\).*|\1/|'
filter /proc/self/status grep -E '^(Uid|Gid|Cap...):'
filter /proc/stat head -n 1
take /proc/self/limits /proc/self/schedstat /proc/cpuinfo /proc/filesystems /proc/swaps /proc/schedstat
take /proc/sys/kernel/osrelease /proc/sys/kernel/sched_rt_runtime_us /proc/sys/kernel/sched_schedstats
take /proc/pressure/cpu /proc/pressure/io /proc/pressure/memory /proc/pressure/irq
take /sys/devices/system/node/has_memory /sys/devices/system/cpu/smt/active
take /sys/class/dmi/id/sys_vendor /sys/hypervisor/type
take /sys/kernel/mm/lru_gen/enabled /sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds
for module in damon_reclaim damon_lru_sort damon_stat; do
	take /sys/module/$module/parameters/enabled
done
for name in /sys/kernel/btf/vmlinux /sys/kernel/mm/page_idle/bitmap; do
	[ -e $name ] || continue
	mkdir -p "$to$(dirname $name)"
	: >"$to$name"
done
awk '$3 ~ /^cgroup2?$/ { print $2 }' /proc/self/mounts | while read -r dir; do
	take "$dir/cgroup.controllers" "$dir/cgroup.procs" "$dir/cpu.pressure" "$dir/cpu.cfs_quota_us" "$dir/cpu.cfs_burst_us" \
		"$dir/cpu.idle" "$dir/cpu.rt_runtime_us" "$dir/cpuset.cpus"
	[ -e "$to$dir/cgroup.procs" ] && : >"$to$dir/cgroup.procs" # whose processes does not matter
done
