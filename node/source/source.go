// Package source recognises cgroups by who made them: systemd units, containers, and
// Kubernetes pods. It looks at nothing but the path of a cgroup below its hierarchy's root,
// which on cgroup v1 is the cpu controller's. So it knows what a path tells: a unit's name,
// a runtime, a container's id, a pod's uid and QoS class; and not what only the runtime
// knows: containers' names, images, labels. Pods' names come from the kubelet's log folder
// (pod_logs.go), which the caller lists. The forms that it takes, each with its origin, are listed
// in testdata/README.md; what has none of these forms is nothing.
//
// A path tells at most one pod or container: the outermost. What lies inside a container
// (its own cgroups, a container runtime in it, a whole Kubernetes node in it) is that
// container's own affair, since a task contains no other task (DESIGN.md, decision 4).
package source

import (
	"fmt"
	"slices"
	"strings"

	"github.com/commensal-io/commensal/internal/glob"
)

// Runtime is who made a container's cgroup, as far as the path tells.
type Runtime string

// The runtimes.
const (
	Any        Runtime = ""           // of a rule: no matter which; of a container: the path does not tell
	Docker     Runtime = "docker"     // docker-ID.scope, /docker/ID
	Containerd Runtime = "containerd" // cri-containerd-ID.scope, nerdctl-ID.scope, /default/ID, /k8s.io/ID
	CRIO       Runtime = "crio"       // crio-ID.scope, crio-ID
	Podman     Runtime = "podman"     // libpod-ID.scope, libpod-ID, libpod-payload-ID
)

// Runtimes lists the runtimes that a path can tell.
func Runtimes() []Runtime { return []Runtime{Docker, Containerd, CRIO, Podman} }

// QoS is a pod's quality-of-service class, by the name of the kubelet's cgroups.
type QoS string

// The classes.
const (
	AnyQoS     QoS = "" // of a rule
	Guaranteed QoS = "guaranteed"
	Burstable  QoS = "burstable"
	BestEffort QoS = "besteffort"
)

// Classes lists the QoS classes.
func Classes() []QoS { return []QoS{Guaranteed, Burstable, BestEffort} }

// Identity is what a path tells of a cgroup that is a pod or a container.
type Identity struct {
	Runtime Runtime `json:"runtime,omitempty"`
	ID      string  `json:"id,omitempty"`  // of a container, 64 hexadecimal digits; "" of a pod
	Pod     string  `json:"pod,omitempty"` // uid of the pod it is, or is in; as the API server writes it
	QoS     QoS     `json:"qos,omitempty"` // of that pod
}

// IsPod reports whether the cgroup is a pod, rather than a container.
func (i Identity) IsPod() bool { return i.ID == "" && i.Pod != "" }

// String describes an identity for people: ids are cut as runtimes cut them.
func (i Identity) String() string {
	var parts []string
	if i.Pod != "" {
		parts = append(parts, fmt.Sprintf("pod %s (%s)", i.Pod, i.QoS))
	}
	if i.ID != "" {
		what := "container"
		if i.Runtime != Any {
			what = string(i.Runtime) + " container"
		}
		parts = append(parts, what+" "+i.ID[:min(12, len(i.ID))])
	}
	return strings.Join(parts, ", ")
}

// Containers claims containers that are in no pod.
type Containers struct {
	Runtime Runtime
	ID      string // the beginning of the id; "": any
	Parent  string // the cgroup that they lie directly in, a path with * and ? in a component; "": any
}

// Check says what is wrong, and with which of runtime, id and parent.
func (c *Containers) Check() (key, why string) {
	switch {
	case c.Runtime != Any && !slices.Contains(Runtimes(), c.Runtime):
		return "runtime", fmt.Sprintf("is %q; expected docker, containerd, crio or podman, or nothing for any", c.Runtime)
	case len(c.ID) > idLen || !isHex(c.ID):
		return "id", fmt.Sprintf("is %q; expected the beginning of an id: up to %d of 0-9a-f", c.ID, idLen)
	}
	return "", ""
}

// Level is which cgroups of Kubernetes are tasks.
type Level string

// The levels.
const (
	Pod       Level = "pod"
	Container Level = "container"
)

// Pods claims the pods of a Kubernetes node, or the containers in them.
type Pods struct {
	Namespace string // with * and ?; "": any
	Name      string // of the pod, with * and ?; "": any
	QoS       QoS
	UID       string // "": any
	Level     Level
}

// NeedNames reports whether paths alone do not say which pods are meant.
func (p *Pods) NeedNames() bool { return p.Namespace != "" || p.Name != "" }

// Check says what is wrong, and with which of namespace, name, qos, uid and level.
func (p *Pods) Check() (key, why string) {
	switch {
	case p.Namespace != "" && !isName(p.Namespace, "*?"):
		return "namespace", fmt.Sprintf("is %q; expected a namespace, with * and ?", p.Namespace)
	case p.Name != "" && !isName(p.Name, "*?"):
		return "name", fmt.Sprintf("is %q; expected a pod's name, with * and ?", p.Name)
	case p.QoS != AnyQoS && !slices.Contains(Classes(), p.QoS):
		return "qos", fmt.Sprintf("is %q; expected guaranteed, burstable or besteffort, or nothing for any", p.QoS)
	case p.UID != "" && !isUID(p.UID, '-'):
		return "uid", fmt.Sprintf("is %q; expected a pod's uid as the API server writes it", p.UID)
	case p.Level != Pod && p.Level != Container:
		return "level", fmt.Sprintf("is %q; expected pod or container", p.Level)
	}
	return "", ""
}

// Matches reports whether an identity is one of those claimed. A pod whose name is not
// known, or not yet, is none that is claimed by name.
func (p *Pods) Matches(i Identity, names Names) bool {
	if p.NeedNames() {
		n, ok := names[i.Pod]
		if !ok || p.Namespace != "" && !glob.Match(p.Namespace, n.Namespace) || p.Name != "" && !glob.Match(p.Name, n.Name) {
			return false
		}
	}
	return i.Pod != "" && i.IsPod() == (p.Level == Pod) && (p.QoS == AnyQoS || p.QoS == i.QoS) && (p.UID == "" || p.UID == i.Pod)
}
