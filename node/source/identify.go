package source

import "strings"

const (
	idLen  = 64  // digits of a container's id, of 0-9a-f
	maxUID = 128 // characters of a pod's uid; the API server's have 36, a static pod's 32
)

// scopes are the systemd scopes of containers, by their names' beginnings. The monitors
// beside them (crio-conmon-ID.scope, libpod-conmon-ID.scope) fit none of these.
var scopes = [...]struct {
	prefix  string
	runtime Runtime
}{
	{"docker-", Docker}, {"cri-containerd-", Containerd}, {"nerdctl-", Containerd}, {"crio-", CRIO}, {"libpod-", Podman},
}

// Identify returns what a path tells when it is a pod or a container that lies in no other
// container.
func Identify(path string) (Identity, bool) {
	if len(path) < 2 || path[0] != '/' {
		return Identity{}, false
	}
	parts := strings.Split(path[1:], "/")
	var pod Identity
	slice := false // the pod is a slice of systemd's
	for i := range parts {
		last := i == len(parts)-1
		if pod.Pod != "" {
			// Of what lies in a pod only containers are known.
			id, ok := inPod(parts[i], slice)
			id.Pod, id.QoS = pod.Pod, pod.QoS
			return id, ok && last
		}
		if id, ok := container(parts, i); ok {
			return id, last
		}
		if pod.Pod, pod.QoS, slice = podAt(parts, i); pod.Pod != "" && last {
			return pod, true
		}
	}
	return Identity{}, false
}

// podAt recognises a pod in the component i, below what the components before it are.
func podAt(parts []string, i int) (uid string, qos QoS, slice bool) {
	if i == 0 {
		return "", "", false
	}
	if uid, qos, parent := podSlice(parts[i]); uid != "" {
		if parts[i-1] != parent {
			return "", "", false
		}
		return uid, qos, true
	}
	uid, ok := strings.CutPrefix(parts[i], "pod")
	if !ok || !isUID(uid, '-') {
		return "", "", false
	}
	switch parent := parts[i-1]; {
	case parent == kubepods:
		return uid, Guaranteed, false
	case i > 1 && parts[i-2] == kubepods && (parent == string(Burstable) || parent == string(BestEffort)):
		return uid, QoS(parent), false
	}
	return "", "", false
}

// kubepods is the cgroup below which the kubelet keeps all pods.
const kubepods = "kubepods"

// podSlice takes a pod's slice apart: [ROOT-]kubepods[-QOS]-podUID.slice, in which the uid
// has _ for -, and returns the name of the slice that it lies in.
func podSlice(name string) (uid string, qos QoS, parent string) {
	stem, ok := strings.CutSuffix(name, ".slice")
	cut := strings.LastIndexByte(stem, '-')
	if !ok || cut < 0 {
		return "", "", ""
	}
	uid, ok = strings.CutPrefix(stem[cut+1:], "pod")
	if !ok || !isUID(uid, '_') {
		return "", "", ""
	}
	above := stem[:cut]
	stem, qos = above, Guaranteed
	for _, q := range []QoS{Burstable, BestEffort} {
		if rest, ok := strings.CutSuffix(above, "-"+string(q)); ok {
			stem, qos = rest, q
		}
	}
	if stem != kubepods && !strings.HasSuffix(stem, "-"+kubepods) {
		return "", "", ""
	}
	return strings.ReplaceAll(uid, "_", "-"), qos, above + ".slice"
}

// inPod recognises a container in a pod. The two cgroup drivers are never mixed there.
func inPod(name string, slice bool) (Identity, bool) {
	if slice {
		return scope(name)
	}
	if id, ok := strings.CutPrefix(name, "crio-"); ok && isID(id) {
		return Identity{Runtime: CRIO, ID: id}, true
	}
	return Identity{ID: name}, isID(name)
}

// container recognises a container that is not in a pod's cgroup.
func container(parts []string, i int) (Identity, bool) {
	name := parts[i]
	above := ""
	if i > 0 {
		above = parts[i-1]
	}
	if id, ok := scope(name); ok {
		return id, i == 0 || strings.HasSuffix(above, ".slice") || strings.HasSuffix(above, ".service")
	}
	if id, ok := strings.CutPrefix(name, "libpod-payload-"); ok {
		return Identity{Runtime: Podman, ID: id}, isID(id) && strings.HasSuffix(above, ".service")
	}
	if id, ok := strings.CutPrefix(name, "libpod-"); ok {
		return Identity{Runtime: Podman, ID: id}, isID(id) && i > 0
	}
	if id, ok := colons(name); ok {
		return id, i == 0 || strings.HasSuffix(above, ".service")
	}
	if !isID(name) || i == 0 || above == "libpod_parent" {
		return Identity{}, false // a pod of Podman's, which is no container, is the last of these
	}
	id := Identity{ID: name}
	if i == 1 {
		id.Runtime = namedParents[above]
	}
	return id, true
}

// namedParents are the cgroups whose names say who makes bare ids in them, at the root.
var namedParents = map[string]Runtime{"docker": Docker, "default": Containerd, "k8s.io": Containerd}

// colons recognises what a runtime with the cgroupfs driver makes of a path that was
// meant for systemd, SLICE:PREFIX:ID, as one name.
func colons(name string) (Identity, bool) {
	slice, rest, ok := strings.Cut(name, ":")
	prefix, id, found := strings.Cut(rest, ":")
	if !ok || !found || !isID(id) || !strings.HasSuffix(slice, ".slice") {
		return Identity{}, false
	}
	for _, s := range &scopes {
		if s.prefix == prefix+"-" {
			uid, qos, _ := podSlice(slice)
			return Identity{Runtime: s.runtime, ID: id, Pod: uid, QoS: qos}, true
		}
	}
	return Identity{}, false
}

// scope recognises a container's scope by its name.
func scope(name string) (Identity, bool) {
	stem, ok := strings.CutSuffix(name, ".scope")
	if !ok {
		return Identity{}, false
	}
	for _, s := range &scopes {
		if id, ok := strings.CutPrefix(stem, s.prefix); ok && isID(id) {
			return Identity{Runtime: s.runtime, ID: id}, true
		}
	}
	return Identity{}, false
}

func isID(s string) bool { return len(s) == idLen && isHex(s) }

func isHex(s string) bool {
	return !strings.ContainsFunc(s, func(c rune) bool { return (c < '0' || c > '9') && (c < 'a' || c > 'f') })
}

// isUID accepts what the kubelet may be given for a uid: it asks the API server's for
// nothing, and a static pod's file may name its own.
func isUID(s string, dash byte) bool {
	if s == "" || len(s) > maxUID {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if c != dash && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
			return false
		}
	}
	return true
}
