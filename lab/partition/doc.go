// Package partition is `commensal-lab run partition`: a latency-critical service whose load
// swings tenfold, beside batch work that takes what it can get. Five arms are compared:
// (a) no batch work, (b) batch work without control, (c) with cpu.idle, (d) with
// cpu.shares 2, and (e) with the cpuset partition of ByteDance, by the agent.
//
// On this host the service is a process of the lab's own with real threads under an open
// loop, and the agent is the real binary: what is judged is how soon a core is handed
// back after a step in the load. On the twin, at the size of a server, the real engine
// runs, and what is judged is the service's tail against (a) and the machine's
// utilisation against (b).
package partition
