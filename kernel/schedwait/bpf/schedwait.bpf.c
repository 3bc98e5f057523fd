// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
//
// Who makes whom wait. A thread of a watched cgroup waits from when it may run (it was woken, or put off the CPU while
// it could go on) until it runs. Each CPU keeps a short ring of who ran on it and from when; when a wait ends, what of
// the ring lies in it is charged to whoever ran meanwhile. A wait that spans CPUs is charged in stretches, one a CPU.
//
// What is charged adds up to the waits to the nanosecond: what is in no ring any more is charged to PARTY_UNKNOWN.
//
// Locks: a switch, a wake-up and a thread's leaving a CPU happen under that CPU's run queue lock, so a ring has one
// writer and is read while nobody writes; the waits of one thread are changed under its own lock or that one.
// Nothing here allocates: all maps are preallocated, since memory must not be asked for under a run queue lock.
#include "kernel.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#define PF_KTHREAD 0x00200000
#define TASK_DEAD 0x80
#define RING 1024 /* segments of a CPU, 40 bytes each; a power of two */
#define DEPTH 16 /* of cgroups: how many above one are asked */
#define BUCKETS 96

/* Parties that are no managed task. */
enum {
	PARTY_UNMANAGED, /* a cgroup that no task of ours contains; the row has its id */
	PARTY_IDLE,	 /* nobody: the wake-up was on its way, or the scheduler had not yet looked */
	PARTY_KTHREAD,
	PARTY_SOFTIRQ,
	PARTY_STEAL,	 /* the hypervisor ran something else */
	PARTY_THROTTLED, /* nobody may: the waiting task's own quota was used up */
	PARTY_UNKNOWN,
	PARTY_FIRST_TASK = 16,
};

enum { AFTER_WAKEUP, AFTER_PREEMPTION, KINDS };

struct group {
	u32 party;
	u32 slot; /* 1 and up of a watched task, 0 of others */
};

struct cached {
	struct group group;
	u64 generation;
};

struct segment {
	u64 start;
	u64 irq;   /* of the CPU, when it began */
	u64 steal; /* so, too */
	u64 cgroup;
	u32 party;
	u32 tgid;
};

struct tally {
	u64 switches;
	u64 no_row;   /* charges to the unknown for want of a row */
	u64 ring_end; /* stretches longer than a ring is */
};

struct cpu {
	u64 irq;	    /* time in soft interrupts so far */
	u64 irq_from;
	u64 epoch;
	u64 head; /* segments so far; the last of them runs */
	u32 pid;  /* of what runs */
	u32 slot; /* of its group */
	struct segment ring[RING];
};

struct wait {
	u64 since; /* 0: it does not wait */
	u64 from;  /* of this stretch */
	u64 irq;
	u64 steal;
	u64 throttled;
	u64 epoch;
	u64 times; /* that the thread left a CPU so far: with more it ran while its cgroup was not watched */
	u32 cpu;
	u32 slot;
	u32 kind;
	u32 pad;
};

struct row_key {
	u32 slot;
	u32 party;
	u64 cgroup; /* of PARTY_UNMANAGED */
};

struct row {
	u64 nsec;
	u64 most; /* the longest that one thread group ran in one wait */
	u64 tgid; /* that one */
};

struct waits {
	u64 count[KINDS];
	u64 nsec[KINDS];
	u64 not_taken; /* waits: no room for another thread */
	u64 strays;    /* waits that ended on another CPU than the one they were on */
	u64 buckets[KINDS][BUCKETS];
};

struct control {
	u64 epoch;	/* of this measurement; 0: off */
	u64 generation; /* of the groups */
};

struct event { /* for the test that holds the accounting to a trace */
	u64 at;
	u64 cgroup;
	u64 irq, steal, throttled; /* of the CPU and the thread whose wait ends or begins */
	u64 irq_to;		   /* of the CPU that a thread moves to */
	u64 throttled_next;
	u32 kind, cpu, pid, next;
	u32 party, slot, next_slot, pad;
};

enum { EVENT_WAKE, EVENT_SWITCH, EVENT_MIGRATE };

#define MAP(name, kind, k, v, n)                                                                                       \
	struct {                                                                                                       \
		__uint(type, kind);                                                                                    \
		__type(key, k);                                                                                        \
		__type(value, v);                                                                                      \
		__uint(max_entries, n);                                                                                \
	} name SEC(".maps")

/* Sizes are set when they are loaded. */
MAP(groups, BPF_MAP_TYPE_HASH, u64, struct group, 1);
MAP(cache, BPF_MAP_TYPE_HASH, u64, struct cached, 1);
MAP(cpus, BPF_MAP_TYPE_ARRAY, u32, struct cpu, 1);
MAP(tallies, BPF_MAP_TYPE_ARRAY, u32, struct tally, 1); /* by CPU */
MAP(threads, BPF_MAP_TYPE_HASH, u32, struct wait, 1);
MAP(rows, BPF_MAP_TYPE_HASH, struct row_key, struct row, 1);
MAP(waits, BPF_MAP_TYPE_ARRAY, u32, struct waits, 1);
MAP(longest, BPF_MAP_TYPE_ARRAY, u32, u64, 1); /* of a slot, since the reader last set it to 0 */
MAP(controls, BPF_MAP_TYPE_ARRAY, u32, struct control, 1);

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} trace SEC(".maps");

const volatile u32 on_v2;   /* cgroups are those of the v2 hierarchy */
const volatile u32 tracing; /* events go to the ring buffer as well */
const volatile u32 segments = RING; /* how many of a ring's a wait is charged from */

/* switched_on copies the controls: they may change while a program runs, and it is to be of one mind. */
static __always_inline bool switched_on(struct control *c)
{
	u32 zero = 0;
	struct control *now = bpf_map_lookup_elem(&controls, &zero);

	if (!now)
		return false;
	*c = *now;
	return c->epoch;
}

/* lose counts something that could not be measured as it should, on this CPU. */
#define lose(field)                                                                                                    \
	do {                                                                                                           \
		u32 here = bpf_get_smp_processor_id();                                                                 \
		struct tally *lost = bpf_map_lookup_elem(&tallies, &here);                                             \
		if (lost)                                                                                              \
			lost->field++;                                                                                 \
	} while (0)

static __always_inline struct cgroup *cgroup_of(struct task_struct *t)
{
	/* An autogroup has no cgroup: its threads are in the root. */
	return on_v2 ? t->cgroups->dfl_cgrp : t->sched_task_group->css.cgroup;
}

static __always_inline u64 id_of(struct cgroup *g)
{
	return g ? g->kn->id : 1;
}

/* group_of says whose a cgroup is: of the nearest one at or above it that is a task's. */
static __always_inline struct group group_of(struct control *c, struct cgroup *g, u64 id)
{
	struct cached *hit = bpf_map_lookup_elem(&cache, &id);

	if (hit && hit->generation == c->generation)
		return hit->group;
	struct cached fresh = {.generation = c->generation};

	fresh.group.party = PARTY_UNMANAGED;
	for (int i = 0; i < DEPTH && g; i++) {
		u64 above = g->kn->id;
		struct group *found = bpf_map_lookup_elem(&groups, &above);

		if (found) {
			fresh.group = *found;
			break;
		}
		struct cgroup_subsys_state *up = g->self.parent;

		if (!up)
			break;
		g = up->cgroup;
	}
	bpf_map_update_elem(&cache, &id, &fresh, BPF_ANY);
	return fresh.group;
}

static __always_inline u64 steal_of(struct rq *rq)
{
	if (!bpf_core_field_exists(rq->prev_steal_time_rq))
		return 0;
	return rq->prev_steal_time_rq;
}

/* throttled_of is for how long the run queue of a thread's cgroup on its CPU was throttled, by its own quota or one
 * above it, up to now. */
static __always_inline u64 throttled_of(struct task_struct *t)
{
	struct cfs_rq *q = t->se.cfs_rq;
	u64 sum, from;

	if (bpf_core_field_exists(q->throttled_clock_self_time)) {
		sum = q->throttled_clock_self_time;
		from = q->throttled_clock_self;
		if (from && q->rq->clock > from)
			sum += q->rq->clock - from;
		return sum;
	}
	if (bpf_core_field_exists(q->throttled_clock_pelt_time)) {
		sum = q->throttled_clock_pelt_time;
		from = q->throttled_clock_pelt;
		if (q->throttle_count && q->rq->clock_pelt > from)
			sum += q->rq->clock_pelt - from;
		return sum;
	}
	return 0;
}

static __always_inline void emit(struct event *e)
{
	if (tracing)
		bpf_ringbuf_output(&trace, e, sizeof(*e), 0);
}

static __always_inline void charge(u32 slot, u32 party, u64 cgroup, u32 tgid, u64 nsec)
{
	struct row_key key = {.slot = slot, .party = party};
	struct row *row;

	if (!nsec)
		return;
	if (party == PARTY_UNMANAGED)
		key.cgroup = cgroup;
	row = bpf_map_lookup_elem(&rows, &key);
	if (!row) {
		struct row none = {};

		bpf_map_update_elem(&rows, &key, &none, BPF_NOEXIST);
		row = bpf_map_lookup_elem(&rows, &key);
	}
	if (!row) { /* full; this one is made when the task is watched */
		lose(no_row);
		key.party = PARTY_UNKNOWN;
		key.cgroup = 0;
		row = bpf_map_lookup_elem(&rows, &key);
		if (!row)
			return;
	}
	__sync_fetch_and_add(&row->nsec, nsec);
	if (nsec > row->most && tgid) {
		row->most = nsec;
		row->tgid = tgid;
	}
}

struct walk {
	struct cpu *cpu;
	u64 from, to;
	u64 irq, steal;		/* at from */
	u64 irq_end, steal_end; /* at to */
	u32 slot;
};

static long walk_back(u32 i, struct walk *w)
{
	if (i >= w->cpu->head)
		return 1;
	struct segment *s = &w->cpu->ring[(w->cpu->head - 1 - i) & (RING - 1)];
	u64 begin = s->start, irq0 = s->irq, steal0 = s->steal;

	if (begin <= w->from) {
		begin = w->from;
		irq0 = w->irq;
		steal0 = w->steal;
	}
	if (begin < w->to) {
		u64 left = w->to - begin;
		u64 irq = w->irq_end > irq0 ? w->irq_end - irq0 : 0;
		u64 steal = w->steal_end > steal0 ? w->steal_end - steal0 : 0;

		if (irq > left)
			irq = left;
		left -= irq;
		if (steal > left)
			steal = left;
		left -= steal;
		charge(w->slot, PARTY_SOFTIRQ, 0, 0, irq);
		charge(w->slot, PARTY_STEAL, 0, 0, steal);
		charge(w->slot, s->party, s->cgroup, s->tgid, left);
		w->to = begin;
	}
	w->irq_end = irq0;
	w->steal_end = steal0;
	return w->to <= w->from;
}

/* stretch charges what passed since a wait, or the last stretch of it, began. */
static __always_inline void stretch(struct wait *w, struct cpu *cpu, u64 now, u64 irq, u64 throttled, u64 steal)
{
	u64 own;

	u32 slot = w->slot;
	struct waits *sums = bpf_map_lookup_elem(&waits, &slot);

	if (now <= w->from || !sums)
		return;
	__sync_fetch_and_add(&sums->nsec[w->kind & 1], now - w->from);
	own = throttled > w->throttled ? throttled - w->throttled : 0;
	if (own > now - w->from)
		own = now - w->from;
	charge(w->slot, PARTY_THROTTLED, 0, 0, own);
	struct walk walk = {
		.cpu = cpu, .from = w->from + own, .to = now, .slot = w->slot,
		.irq = w->irq, .steal = w->steal, .irq_end = irq, .steal_end = steal,
	};
	if (cpu->epoch == w->epoch && walk.from < walk.to)
		bpf_loop(segments, walk_back, &walk, 0);
	if (walk.from < walk.to) {
		lose(ring_end);
		charge(w->slot, PARTY_UNKNOWN, 0, 0, walk.to - walk.from);
	}
}

static __always_inline u32 bucket(u64 nsec)
{
	u64 v = nsec >> 10;
	u32 e = 0;

	if (v >= 1 << 24)
		return BUCKETS - 4;
	if (v < 4)
		return v;
	if (v >> 16)
		e += 16;
	if (v >> (e + 8))
		e += 8;
	if (v >> (e + 4))
		e += 4;
	if (v >> (e + 2))
		e += 2;
	if (v >> (e + 1))
		e += 1;
	return (e - 1) * 4 + ((v >> (e - 2)) & 3);
}

/* waits_still says whether a wait is of this measurement, and of a thread that has not run since. */
static __always_inline bool waits_still(struct control *c, struct task_struct *t, struct wait *w)
{
	return w->since && w->epoch == c->epoch && w->times == t->nvcsw + t->nivcsw;
}

/* begin_wait returns the wait that it began, if it did. */
static __always_inline struct wait *begin_wait(struct control *c, struct task_struct *t, u32 cpu, u32 slot, u32 kind, u64 now)
{
	u32 pid = t->pid;
	struct wait *w = bpf_map_lookup_elem(&threads, &pid);
	struct cpu *at = bpf_map_lookup_elem(&cpus, &cpu);

	if (!w) {
		struct wait none = {};

		bpf_map_update_elem(&threads, &pid, &none, BPF_NOEXIST);
		w = bpf_map_lookup_elem(&threads, &pid);
	}
	if (!at)
		return NULL;
	if (!w) {
		struct waits *sums = bpf_map_lookup_elem(&waits, &slot);

		if (sums)
			__sync_fetch_and_add(&sums->not_taken, 1);
		return NULL;
	}
	if (waits_still(c, t, w))
		return NULL; /* woken again while it waits */
	w->since = w->from = now;
	w->irq = at->irq;
	w->steal = steal_of(t->se.cfs_rq->rq);
	w->throttled = throttled_of(t);
	w->epoch = c->epoch;
	w->times = t->nvcsw + t->nivcsw;
	w->cpu = cpu;
	w->slot = slot;
	w->kind = kind;
	return w;
}

static __always_inline void end_wait(struct control *c, struct task_struct *t, u32 cpu, u32 of, u64 now, u64 throttled, u64 steal)
{
	u32 pid = t->pid;
	struct wait *w = bpf_map_lookup_elem(&threads, &pid);
	struct waits *sums;
	u32 slot;
	u64 took;

	if (!w || !w->since)
		return;
	if (w->slot == of && waits_still(c, t, w)) { /* else another has its group's slot by now */
		u32 id = w->cpu;
		struct cpu *at = bpf_map_lookup_elem(&cpus, &id);

		if (at)
			stretch(w, at, now, at->irq, throttled, steal);
		took = now > w->since ? now - w->since : 0;
		slot = w->slot;
		sums = bpf_map_lookup_elem(&waits, &slot);
		if (sums) {
			u32 kind = w->kind & 1, i = bucket(took);

			asm volatile("" : "+r"(i)); /* the verifier is to see the bound below */
			__sync_fetch_and_add(&sums->count[kind], 1);
			if (id != cpu)
				__sync_fetch_and_add(&sums->strays, 1);
			if (i < BUCKETS)
				__sync_fetch_and_add(&sums->buckets[kind][i], 1);
		}
		u64 *most = bpf_map_lookup_elem(&longest, &slot);

		if (most && took > *most)
			*most = took;
	}
	w->since = 0;
}

static __always_inline int woken(struct task_struct *t)
{
	struct control on, *c = &on;

	if (!switched_on(c))
		return 0;
	struct cgroup *g = cgroup_of(t);
	struct group who = group_of(c, g, id_of(g));

	if (!who.slot || t->on_cpu)
		return 0; /* a thread that runs is woken when it was about to sleep */
	u64 now = bpf_ktime_get_ns();
	u32 cpu = t->thread_info.cpu;

	struct wait *w = begin_wait(c, t, cpu, who.slot, AFTER_WAKEUP, now);

	if (tracing && w) {
		struct event e = {
			.at = now, .kind = EVENT_WAKE, .cpu = cpu, .pid = t->pid, .slot = who.slot,
			.irq = w->irq, .steal = w->steal, .throttled = w->throttled,
		};
		emit(&e);
	}
	return 0;
}

SEC("tp_btf/sched_wakeup")
int on_wakeup(u64 *ctx)
{
	return woken((struct task_struct *)ctx[0]);
}

SEC("tp_btf/sched_wakeup_new")
int on_wakeup_new(u64 *ctx)
{
	return woken((struct task_struct *)ctx[0]);
}

SEC("tp_btf/sched_migrate_task")
int on_migrate(u64 *ctx)
{
	struct task_struct *t = (struct task_struct *)ctx[0];
	struct control on, *c = &on;
	u32 pid = t->pid, to = ctx[1];

	if (!switched_on(c))
		return 0;
	struct wait *w = bpf_map_lookup_elem(&threads, &pid);

	if (!w || !waits_still(c, t, w))
		return 0;
	struct cgroup *g = cgroup_of(t);
	struct group who = group_of(c, g, id_of(g));

	if (who.slot != w->slot)
		return 0;
	u64 now = bpf_ktime_get_ns(), throttled = throttled_of(t), steal = steal_of(t->se.cfs_rq->rq);
	u32 id = w->cpu;
	struct cpu *at = bpf_map_lookup_elem(&cpus, &to), *was = bpf_map_lookup_elem(&cpus, &id);

	if (!at || !was)
		return 0;
	u64 irq = was->irq;

	stretch(w, was, now, irq, throttled, steal);
	w->from = now;
	w->cpu = to;
	w->irq = at->irq;
	/* What the other CPU's run queue says is known once the thread is on it: until then nothing is taken off. */
	w->steal = ~0ULL;
	w->throttled = ~0ULL;
	if (tracing) {
		struct event e = {
			.at = now, .kind = EVENT_MIGRATE, .cpu = to, .pid = pid, .irq = irq, .irq_to = w->irq, .steal = steal, .throttled = throttled,
		};
		emit(&e);
	}
	return 0;
}

/* stays_runnable says whether a thread that leaves the CPU waits for it from now on. A thread that was about to sleep
 * and is put off the CPU before it could, or has a signal to take, goes on later without a wake-up. Since 6.12 one that
 * sleeps may stay on the queue for a while. */
static __always_inline bool stays_runnable(struct task_struct *t, bool preempt, u32 state)
{
	if (preempt || !state)
		return true;
	if (t->on_rq != 1)
		return false;
	return !bpf_core_field_exists(t->se.sched_delayed) || !t->se.sched_delayed;
}

SEC("tp_btf/sched_switch")
int on_switch(u64 *ctx)
{
	struct task_struct *prev = (struct task_struct *)ctx[1], *next = (struct task_struct *)ctx[2];
	struct control on, *c = &on;
	bool stays = stays_runnable(prev, ctx[0], ctx[3]);
	u32 id = bpf_get_smp_processor_id();
	struct cpu *cpu;

	if (!switched_on(c))
		return 0;
	cpu = bpf_map_lookup_elem(&cpus, &id);
	if (!cpu)
		return 0;
	u64 now = bpf_ktime_get_ns();

	if (cpu->epoch != c->epoch) {
		cpu->epoch = c->epoch;
		cpu->head = 0;
		cpu->pid = 0;
	}
	lose(switches);

	struct cgroup *to = cgroup_of(next);
	struct segment *s;
	u64 cgroup = id_of(to);
	struct group who = group_of(c, to, cgroup);
	struct group was = {};
	u64 steal = steal_of(next->se.cfs_rq->rq);

	u64 throttled = who.slot ? throttled_of(next) : 0, was_throttled = 0;

	if (next->pid && who.slot)
		end_wait(c, next, id, who.slot, now, throttled, steal);
	if (!next->pid)
		who.party = PARTY_IDLE;
	else if (next->flags & PF_KTHREAD)
		who.party = PARTY_KTHREAD;
	s = &cpu->ring[(cpu->head - 1) & (RING - 1)];
	if (!cpu->head || s->party != who.party || s->cgroup != cgroup) { /* else the segment goes on */
		s = &cpu->ring[cpu->head & (RING - 1)];
		s->start = now;
		s->irq = cpu->irq;
		s->steal = steal;
		s->cgroup = cgroup;
		s->party = who.party;
		s->tgid = next->tgid;
		cpu->head++;
	}
	if (prev->pid) {
		/* Its group as when it began to run: a thread that was moved since waits as what it ran as. */
		if (cpu->pid == prev->pid) {
			was.slot = cpu->slot;
		} else {
			struct cgroup *from = cgroup_of(prev);

			was = group_of(c, from, id_of(from));
		}
		if (was.slot && stays) {
			struct wait *w = begin_wait(c, prev, id, was.slot, AFTER_PREEMPTION, now);

			if (w)
				was_throttled = w->throttled;
		}
		if (was.slot && ctx[3] & TASK_DEAD) {
			u32 pid = prev->pid;

			bpf_map_delete_elem(&threads, &pid);
		}
	}
	cpu->pid = next->pid;
	cpu->slot = who.slot;
	if (tracing) {
		struct event e = {
			.at = now, .kind = EVENT_SWITCH, .cpu = id, .cgroup = cgroup, .irq = cpu->irq, .steal = steal,
			.pid = prev->pid, .next = next->pid, .party = who.party, .slot = stays ? was.slot : 0, .next_slot = who.slot,
			.throttled = was_throttled, .throttled_next = throttled,
		};
		emit(&e);
	}
	return 0;
}

SEC("tp_btf/softirq_entry")
int on_softirq_entry(u64 *ctx)
{
	u32 id = bpf_get_smp_processor_id();
	struct cpu *cpu = bpf_map_lookup_elem(&cpus, &id);

	struct control on;

	if (cpu && switched_on(&on))
		cpu->irq_from = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/softirq_exit")
int on_softirq_exit(u64 *ctx)
{
	u32 id = bpf_get_smp_processor_id();
	struct cpu *cpu = bpf_map_lookup_elem(&cpus, &id);

	if (cpu && cpu->irq_from) {
		cpu->irq += bpf_ktime_get_ns() - cpu->irq_from;
		cpu->irq_from = 0;
	}
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
