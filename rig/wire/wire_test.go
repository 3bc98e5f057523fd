package wire

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// What goes over the port is one line a message, whatever is in it.
func TestMessageIsOneLine(t *testing.T) {
	for _, m := range []Message{
		{Kind: Beat},
		{Kind: Start, Step: "kernel/psi"},
		{Kind: Line, Step: "kernel/psi", Text: "\x16--- PASS: TestX (0.00s)"},
		{Kind: Line, Step: "kernel/psi", Text: "a\nb\r\x00\u2028\"\\"},
		{Kind: End, Step: "kernel/psi", Exit: -1, TimedOut: true, Text: "left process 7\nleft cgroup /x", Sec: 0.25},
		{Kind: File, Name: "tree/a", Data: []byte{0, '\n', 255}},
		{Kind: Fault, Text: "mount /dev/vda: no such device"},
		{Kind: Done, Text: "BUG: a\nWARNING: b"},
	} {
		data, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.ContainsAny(data, "\n\r\x00\x16") {
			t.Errorf("%q is more than a line of text", data)
		}
		var got Message
		if err := json.Unmarshal(data, &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(m, got); diff != "" {
			t.Errorf("-sent +got:\n%s", diff)
		}
	}
}

func TestPlan(t *testing.T) {
	want := Plan{
		Modules: []string{"/rig/modules/jbd2.ko", "/rig/modules/ext4.ko"},
		Disk:    "/dev/vda",
		Env:     []string{"A=b c"},
		Steps:   []Step{{Name: "one", Dir: "/src", Argv: []string{"/bin/sh", "-c", "echo \"$A\"\n"}, TimeoutSec: 3}},
	}
	data, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got Plan
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// What is understood at all goes out again as it came.
func FuzzMessage(f *testing.F) {
	for _, seed := range []string{
		`{"Kind":"beat"}`, `{"Kind":"end","Step":"a","Exit":-1,"TimedOut":true,"Sec":1e-9,"Text":"left\nit"}`,
		`{"Kind":"file","Name":"a","Data":"AAr/"}`, `{"kind":"LINE","text":"\ud800"}`, `null`, `[]`, `{"Sec":"1"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var m, again Message
		if json.Unmarshal(data, &m) != nil {
			return
		}
		out, err := json.Marshal(m)
		if err != nil {
			t.Fatalf("%+v: %v", m, err)
		}
		if bytes.Contains(out, []byte("\n")) {
			t.Errorf("%q is more than a line", out)
		}
		if err := json.Unmarshal(out, &again); err != nil {
			t.Fatalf("%q: %v", out, err)
		}
		// No data and none of it are the same file.
		if diff := cmp.Diff(m, again, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("-first +again:\n%s", diff)
		}
	})
}
