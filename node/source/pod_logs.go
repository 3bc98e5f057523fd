package source

// /var/log/pods (the kubelet's; "Logging Architecture" in Kubernetes' documentation): one
// directory a pod, NAMESPACE_NAME_UID, made before the pod's first container and removed
// after the pod. It is the one place where a file's name says what the pod's cgroup does
// not. Neither a namespace nor a pod's name can have a _; a static pod's uid is a hash.
//
//	kube-system_kube-proxy-6xsx9_81e09ae0-12ec-4ec5-94b8-51cda7906370
//	kube-system_etcd-node1_33d556edd3ae8ef21980288cef77ae8b
//
// To ask the runtime or the API server would tell more (labels, images), and need a socket
// or a credential, and somebody on the other side who is well.

import "strings"

// PodLogs is the folder of the pods' logs, unless the kubelet has another podLogsDir.
const PodLogs = "/var/log/pods"

// PodName is what people call a pod.
type PodName struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// Names are the names of pods by their uids.
type Names map[string]PodName

// ParsePodLogs takes the names of the folder's entries apart. What has another form, such
// as something that a person put there, says nothing.
func ParsePodLogs(entries []string) Names {
	names := make(Names, len(entries))
	for _, e := range entries {
		parts := strings.Split(e, "_")
		if len(parts) == 3 && isName(parts[0], "") && isName(parts[1], "") && isUID(parts[2], '-') {
			names[parts[2]] = PodName{Namespace: parts[0], Name: parts[1]}
		}
	}
	return names
}

// maxName is the longest name that the API server takes.
const maxName = 253

func isName(s, wild string) bool {
	if s == "" || len(s) > maxName {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if (c < '0' || c > '9') && (c < 'a' || c > 'z') && c != '-' && c != '.' && strings.IndexByte(wild, c) < 0 {
			return false
		}
	}
	return true
}
