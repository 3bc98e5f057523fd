package survey

import (
	"regexp"
	"slices"
	"strings"
)

// A pod's name tells what made it (Kubernetes' pkg/controller and apiserver's names/generate.go):
// five characters of an alphabet without vowels are put behind what a ReplicaSet, DaemonSet
// or Job is called, a ReplicaSet's name is its Deployment's and a hash in the same alphabet, a
// CronJob's Job is called by its minute, and a StatefulSet numbers its pods.
const suffix = "[bcdfghjklmnpqrstvwxz2456789]"

var (
	cronPod       = regexp.MustCompile(`^(.+)-[0-9]{8,10}-` + suffix + `{5}$`)
	deploymentPod = regexp.MustCompile(`^(.+)-` + suffix + `{6,10}-` + suffix + `{5}$`)
	daemonPod     = regexp.MustCompile(`^(.+)-` + suffix + `{5}$`)
	statefulPod   = regexp.MustCompile(`^(.+)-[0-9]{1,3}$`)
)

// workload is what a pod belongs to, as its name tells.
type workload struct {
	stem  string // the name that a person gave
	tail  string // a glob of what follows it, as short as it can be
	fixed string // the same, matching only tails as long as this pod's
	cron  bool
}

func workloadOf(pod string) workload {
	for _, form := range []struct {
		re   *regexp.Regexp
		tail string
		cron bool
	}{{cronPod, "-*-?????", true}, {deploymentPod, "-*-?????", false}, {daemonPod, "-?????", false}, {statefulPod, "-*", false}} {
		if m := form.re.FindStringSubmatch(pod); m != nil {
			rest := pod[len(m[1]):]
			fixed := strings.Map(func(r rune) rune {
				if r == '-' {
					return r
				}
				return '?'
			}, rest)
			return workload{stem: m[1], tail: form.tail, fixed: fixed, cron: form.cron}
		}
	}
	return workload{stem: pod}
}

// stemsOf lists the workloads' names in each namespace.
func stemsOf(list []Group) map[string][]string {
	stems := map[string][]string{}
	for i := range list {
		if p := list[i].Pod; p != nil {
			stems[p.Namespace] = append(stems[p.Namespace], workloadOf(p.Name).stem)
		}
	}
	return stems
}

// glob claims the pods of a workload. Where one workload's name begins with another's (web and
// web-api), the tails are told apart by their lengths.
func (w workload) glob(stems []string) string {
	near := slices.ContainsFunc(stems, func(s string) bool {
		return s != w.stem && (strings.HasPrefix(s, w.stem+"-") || strings.HasPrefix(w.stem, s+"-"))
	})
	if near {
		return w.stem + w.fixed
	}
	return w.stem + w.tail
}
