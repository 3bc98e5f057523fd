// Package throttle is `commensal-lab run throttle`: what CFS quotas do to services whose
// load comes in bursts of milliseconds, and what the shared CPU pool and the burstable quota
// of Alibaba (section 4.1) make of it. It prints figures 12, 13 and 15 and the surge of
// section 5.3.
//
// On this host the services are real processes in real cgroups with real quotas: about
// twenty of them, whose quotas come to as many CPUs as there are. Requests come open-loop,
// at times that a seed drew beforehand, and a response takes from the time at which its
// request was to come until it is done. Four columns meet the same requests: the kernel's
// default, the burst policy alone, the pool's AIMD alone, and both. In every column the real
// agent runs, so that its own cost is in all of them. Columns take turns (A B C D A B C D),
// because a shared host is noisy, and intervals are over the turns.
//
// On the twin the same four columns run on 160 instances of a machine of 64 cores, on the
// mainline kernel and on Alibaba's, which takes a burst of ten times the quota.
package throttle
