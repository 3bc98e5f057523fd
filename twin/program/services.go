package program

const (
	wcaSource  = "Intel WCA's measured profiles: cores, GB/s read and written; CPI, overlap and curve are ours, chosen to give that traffic on busy cores of machine.Skylake"
	cpi2Source = "CPI2 (EuroSys'13): the CPI; all else is ours, for a service of that CPI"
)

// service makes a profile of a server that is known by its traffic on busy cores.
func service(name, what string, cores int, readGB, writeGB, cycles float64) Profile {
	mpki := missesFor(readGB, cores, cycles)
	p := Profile{
		Name: name, What: what, Source: wcaSource, Threads: cores, Service: true,
		// Hash tables and heaps: a hot part that caches hold, a long tail that none does.
		APKI: 4 * mpki, Overlap: 3, WriteShare: writeGB / (writeGB + readGB),
		Curve: falling(2.6*mpki, mpki, 3.5),
	}
	return p.alone(cycles)
}

// job makes a profile of a service that is known by its CPI.
func job(name, what string, cycles, apki, first, last float64) Profile {
	p := Profile{
		Name: name, What: what, Source: cpi2Source, Service: true,
		APKI: apki, Overlap: 3, WriteShare: 0.25, Curve: falling(first, last, 3.5),
	}
	return p.alone(cycles)
}

// services is programs that serve requests.
func services() []Profile {
	return []Profile{
		service("memcached-small", "memcached, 26 GB", 10, 1.99, 1.41, 1.3),
		service("memcached-big", "memcached, 91 GB", 10, 1.86, 1.86, 1.4),
		service("redis-big", "redis, 70 GB", 3, 2.19, 1.43, 1.4),
		service("specjbb-big", "SPECjbb, a Java business server, 66 GB", 24, 12.30, 3.97, 1.1),
		job("web-search-leaf", "a leaf of web search (figure 7: mean 1.8)", 1.8, 14, 9, 3),
		job("cpi2-job-a", "table 1's job A (0.88)", 0.88, 5, 2.5, 0.8),
		job("cpi2-job-b", "table 1's job B (1.36)", 1.36, 10, 6, 2),
		job("cpi2-job-c", "table 1's job C (2.03)", 2.03, 16, 11, 4),
		job("web-frontend", "renders pages: mostly instructions", 1.1, 6, 3, 0.7),
		job("ad-server", "scores models that almost fit into the cache", 1.5, 20, 12, 1.5),
	}
}
