/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
 *
 * The few fields of the kernel that schedwait.bpf.c follows. Where they lie is looked up in the running kernel's
 * BTF when the programs are loaded (CO-RE), so that one object serves all kernels; only names and types count here.
 */
#ifndef COMMENSAL_KERNEL_H
#define COMMENSAL_KERNEL_H

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long s64;
typedef _Bool bool;
#define true 1
#define false 0

/* What <linux/bpf.h> and libbpf's headers want. */
typedef u8 __u8;
typedef unsigned short __u16;
typedef u32 __u32;
typedef u64 __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef s64 __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;

enum {
	BPF_ANY = 0,
	BPF_NOEXIST = 1,
};

enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_RINGBUF = 27,
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct kernfs_node {
	u64 id; /* the inode number of a cgroup's directory */
};

struct cgroup;

struct cgroup_subsys_state {
	struct cgroup *cgroup;
	struct cgroup_subsys_state *parent;
};

struct cgroup {
	struct cgroup_subsys_state self;
	struct kernfs_node *kn;
};

struct css_set {
	struct cgroup *dfl_cgrp; /* of the v2 hierarchy */
};

struct task_group {
	struct cgroup_subsys_state css; /* of the hierarchy that has the cpu controller */
};

struct rq {
	u64 clock;
	u64 clock_pelt;
	u64 prev_steal_time_rq; /* CONFIG_PARAVIRT_TIME_ACCOUNTING */
};

struct cfs_rq {
	struct rq *rq;
	int throttle_count;		 /* CONFIG_CFS_BANDWIDTH, and so are those below */
	u64 throttled_clock_self;	 /* Linux 6.6 on */
	u64 throttled_clock_self_time;
	u64 throttled_clock_pelt;
	u64 throttled_clock_pelt_time;
};

struct sched_entity {
	u8 sched_delayed; /* Linux 6.12 on */
	struct cfs_rq *cfs_rq;
};

struct thread_info {
	u32 cpu;
};

struct task_struct {
	struct thread_info thread_info;
	unsigned int flags;
	int on_cpu;
	int on_rq;
	int pid;
	int tgid;
	unsigned long nvcsw; /* switches so far, counted before sched_switch tells of one */
	unsigned long nivcsw;
	struct sched_entity se;
	struct task_group *sched_task_group;
	struct css_set *cgroups;
};

#pragma clang attribute pop

#endif
