package survey

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestWorkloads(t *testing.T) {
	for _, c := range []struct {
		pod, stem, tail, fixed string
		cron                   bool
	}{
		{"web-6d4cf56db6-x2x9z", "web", "-*-?????", "-??????????-?????", false},
		{"web-api-79bd47f8c5-q8w2z", "web-api", "-*-?????", "-??????????-?????", false},
		{"report-28412340-7zdkc", "report", "-*-?????", "-????????-?????", true},
		{"kube-proxy-6xsx9", "kube-proxy", "-?????", "-?????", false},
		{"db-0", "db", "-*", "-?", false},
		{"etcd-node1", "etcd-node1", "", "", false},
		{"pause", "pause", "", "", false},
	} {
		w := workloadOf(c.pod)
		if w.stem != c.stem || w.tail != c.tail || w.fixed != c.fixed || w.cron != c.cron {
			t.Errorf("%s: %+v", c.pod, w)
		}
	}
	if got := workloadOf("web-6d4cf56db6-x2x9z").glob([]string{"web", "website"}); got != "web-*-?????" {
		t.Errorf("website is not near web: %s", got)
	}
}

// TestGroups: groups never lie in each other, whatever the order of bytes makes of siblings.
func TestGroups(t *testing.T) {
	var got []string
	for _, g := range Groups([]string{
		"/a", "/a-b", "/a-b/c", "/a/x", "/a/y", "/system.slice", "/system.slice/n.service", "/system.slice/n.service/sub", "/system.slice/n.service-x",
		"/commensal-demo-1/x", "/docker/none", "bad", "/with\nline", "/bad\xff",
	}, nil) {
		got = append(got, g.Path)
	}
	want := []string{"/a-b/c", "/a/x", "/a/y", "/system.slice/n.service"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}
