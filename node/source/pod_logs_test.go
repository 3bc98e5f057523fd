package source

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParsePodLogs(t *testing.T) {
	const uid, hash = "81e09ae0-12ec-4ec5-94b8-51cda7906370", "33d556edd3ae8ef21980288cef77ae8b"
	got := ParsePodLogs([]string{
		"kube-system_kube-proxy-6xsx9_" + uid, "kube-system_etcd-node1.example_" + hash,
		"", "lost+found", "a_b", "a_b_c_d", "_b_" + uid, "a__" + uid, "A_b_1", "a_b_1/2", "a_*_1", strings.Repeat("a", 300) + "_b_2",
	})
	want := Names{uid: {"kube-system", "kube-proxy-6xsx9"}, hash: {"kube-system", "etcd-node1.example"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestPodsByName(t *testing.T) {
	names := Names{"1": {"prod", "web-7"}, "2": {"test", "web-8"}, "3": {"prod", "db-0"}}
	for _, c := range []struct {
		pods Pods
		want string // uids
	}{
		{Pods{Namespace: "prod"}, "1 3"}, {Pods{Name: "web-*"}, "1 2"}, {Pods{Namespace: "p*", Name: "web-?"}, "1"},
		{Pods{}, "1 2 3 4"}, {Pods{Name: "*"}, "1 2 3"}, {Pods{Name: "web-*", QoS: Guaranteed}, ""}, {Pods{Name: "*", UID: "2"}, "2"},
	} {
		c.pods.Level = Pod
		var got []string
		for _, uid := range []string{"1", "2", "3", "4"} {
			if c.pods.Matches(Identity{Pod: uid, QoS: Burstable}, names) {
				got = append(got, uid)
			}
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("%+v: %q, want %q", c.pods, s, c.want)
		}
	}
	if (&Pods{Name: "web", Level: Pod}).Matches(Identity{Pod: "1"}, nil) {
		t.Error("a pod is claimed by a name that nobody knows")
	}
}

func FuzzParsePodLogs(f *testing.F) {
	f.Add("kube-system_kube-proxy-6xsx9_81e09ae0-12ec-4ec5-94b8-51cda7906370")
	f.Add("a_b_c\nd_e_f")
	f.Fuzz(func(t *testing.T, text string) {
		for uid, n := range ParsePodLogs(strings.Split(text, "\n")) {
			p := Pods{Namespace: n.Namespace, Name: n.Name, UID: uid, Level: Pod}
			if key, why := p.Check(); why != "" {
				t.Fatalf("%q: %+v cannot be named: %s %s", text, n, key, why)
			}
			if !p.Matches(Identity{Pod: uid}, Names{uid: n}) {
				t.Fatalf("%q: %+v does not match itself", text, n)
			}
		}
	})
}
