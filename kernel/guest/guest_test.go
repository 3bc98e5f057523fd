package guest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/hostfs"
)

// guestOf answers on one end of a pipe, of which the host has the other.
func guestOf(t *testing.T, answer func(r Request, w io.Writer)) net.Conn {
	host, inside := net.Pipe()
	t.Cleanup(func() { _, _ = host.Close(), inside.Close() })
	go func() {
		in, budget := bufio.NewReader(inside), 1<<30
		for {
			line, err := readLine(in, &budget)
			if err != nil {
				return
			}
			var r Request
			if json.Unmarshal(line, &r) == nil {
				answer(r, inside)
			}
		}
	}()
	return host
}

// What a guest may answer to a question of two ages, and what the host makes of it.
func TestAnswers(t *testing.T) {
	const flood = 1 << 20
	for name, c := range map[string]struct {
		answer func(id uint32) string
		want   error
	}{
		"a good one":        {func(id uint32) string { return answerOf(id, `"anon":[4,2],"file":[3,3]`) }, nil},
		"one more field":    {func(id uint32) string { return answerOf(id, `"anon":[4,2],"file":[3,3],"news":1`) }, nil},
		"late ones first":   {func(id uint32) string { return answerOf(id-1, `"anon":[]`) + answerOf(id, `"anon":[4,2],"file":[3,3]`) }, nil},
		"too few ages":      {func(id uint32) string { return answerOf(id, `"anon":[4],"file":[3,3]`) }, ErrMalformed},
		"no ages":           {func(id uint32) string { return answerOf(id, `"source":"x"`) }, ErrMalformed},
		"older is more":     {func(id uint32) string { return answerOf(id, `"anon":[2,4],"file":[3,3]`) }, ErrMalformed},
		"less than nothing": {func(id uint32) string { return answerOf(id, `"anon":[4,-2],"file":[3,3]`) }, ErrMalformed},
		"room for all": {func(id uint32) string {
			return answerOf(id, `"anon":[4,2],"file":[3,3],"room_bytes":18446744073709551615`)
		}, ErrMalformed},
		"another version": {func(id uint32) string { return fmt.Sprintf("{\"v\":2,\"id\":%d}\n", id) }, ErrMalformed},
		"no JSON":         {func(uint32) string { return "Login: \n" }, ErrMalformed},
		"a refusal":       {func(id uint32) string { return answerOf(id, `"error":"no \u001b[31mmemory.reclaim\nhere"`) }, ErrRefused},
		"a line of a MiB": {func(uint32) string { return strings.Repeat("x", flood) }, ErrFlood},
		"lines of a MiB":  {func(uint32) string { return strings.Repeat("{\"v\":1}\n", flood/8) }, ErrFlood},
		"newlines":        {func(uint32) string { return strings.Repeat("\n", flood) }, ErrFlood},
		"nothing":         {func(uint32) string { return "" }, os.ErrDeadlineExceeded},
		"half of one":     {func(uint32) string { return `{"v":1,` }, os.ErrDeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			conn := guestOf(t, func(r Request, w io.Writer) { _, _ = io.WriteString(w, c.answer(r.ID)) })
			within := time.Minute
			if errors.Is(c.want, os.ErrDeadlineExceeded) {
				within = 300 * time.Millisecond
			}
			ctx, cancel := context.WithTimeout(t.Context(), within)
			defer cancel()
			a, err := Ask(ctx, conn, Request{Do: DoAges, EdgesNsec: []int64{1, 2}})
			if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
				t.Fatalf("got %v, want %v", err, c.want)
			}
			if err == nil && (a.Anon[1] != 2 || a.File[0] != 3) {
				t.Errorf("%+v", a)
			}
			if err != nil && strings.ContainsAny(err.Error(), "\x1b\n") {
				t.Errorf("a guest's text is not for a terminal: %q", err)
			}
		})
	}
}

func answerOf(id uint32, rest string) string {
	return fmt.Sprintf("\n{\"v\":1,\"id\":%d,%s}\n", id, rest)
}

// What is no question is refused by name, and the next one is answered.
func TestQuestions(t *testing.T) {
	root := t.TempDir()
	if err := errors.Join(os.MkdirAll(filepath.Join(root, "proc"), 0o755), os.WriteFile(filepath.Join(root, vmstatPath), []byte("nr_free_pages 7\nworkingset_refault_anon 5\nworkingset_refault_file 6\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	in := NewInside(hostfs.NewRoot(root))
	for line, want := range map[string]string{
		`{"v":1,"id":3,"do":"stat","within_msec":1000}`:                                            "",
		`{"v":2,"id":3,"do":"stat","within_msec":1000}`:                                            "version 2; this agent speaks 1",
		`{"v":1,"id":3,"do":"stat"}`:                                                               "within_msec is 0",
		`{"v":1,"id":3,"do":"format","within_msec":1}`:                                             `do is "format"`,
		`{"v":1,"id":3,"do":"stat","within_msec":1000,"path":"/etc"}`:                              "unknown field",
		`{"v":1,"id":3,"do":"ages","within_msec":1000}`:                                            "0 edges_nsec",
		`{"v":1,"id":3,"do":"ages","within_msec":1000,"edges_nsec":[5,5]}`:                         "have to rise",
		`{"v":1,"id":3,"do":"reclaim","within_msec":1000}`:                                         "bytes is 0",
		`{"v":1,"id":3,"do":"reclaim","within_msec":1000,"bytes":99999999999999}`:                  "bytes is 99999999999999",
		`{"v":1,"id":3,"do":"reclaim","within_msec":1000,"bytes":1,"pages":"all"}`:                 `pages is "all"`,
		`{"v":1,"id":3,"do":"reclaim","within_msec":1000,"bytes":1,"older_nsec":5}`:                "pages of one kind",
		`{"v":1,"id":3,"do":"reclaim","within_msec":1000,"bytes":1,"older_nsec":-5}`:               "older_nsec is -5",
		`{"v":1,"id":3,"do":"reclaim","within_msec":1000,"bytes":1,"older_nsec":5,"pages":"file"}`: "discover cgroups",
		`GET / HTTP/1.1`:             "invalid character",
		strings.Repeat("y", maxLine): "line too long",
	} {
		var out bytes.Buffer
		err := in.Serve(t.Context(), struct {
			io.Reader
			io.Writer
		}{strings.NewReader(line + "\n\n{\"v\":1,\"id\":4,\"do\":\"stat\",\"within_msec\":1000}\n"), &out})
		if !errors.Is(err, io.EOF) {
			t.Error(err)
		}
		var answers []Answer
		for text := range strings.FieldsSeq(strings.ReplaceAll(out.String(), " ", "_")) {
			var a Answer
			if err := json.Unmarshal([]byte(text), &a); err != nil {
				t.Fatal(err, text)
			}
			answers = append(answers, a)
		}
		if len(answers) != 2 || (answers[0].Error == "") != (want == "") || !strings.Contains(answers[0].Error, strings.ReplaceAll(want, " ", "_")) {
			t.Errorf("%.60s: got %+v, want %q", line, answers, want)
		}
		if last := answers[len(answers)-1]; last.ID != 4 || last.Error != "" || last.Refaults != 11 {
			t.Errorf("the next question: %+v", last)
		}
	}
}

// FuzzInside: whatever comes over the port the guest's agent answers with lines of an answer, and touches nothing.
func FuzzInside(f *testing.F) {
	f.Add([]byte("{\"v\":1,\"id\":3,\"do\":\"reclaim\",\"within_msec\":1000,\"bytes\":1,\"older_nsec\":5,\"pages\":\"file\"}\n"))
	f.Add([]byte("\n\n{\"v\":1}\n\xff\xfe\n{\"v\":\n"))
	in := NewInside(hostfs.NewRoot(f.TempDir()))
	f.Fuzz(func(t *testing.T, data []byte) {
		var out bytes.Buffer
		if err := in.Serve(t.Context(), struct {
			io.Reader
			io.Writer
		}{bytes.NewReader(data), &out}); !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		if lines := bytes.Count(out.Bytes(), []byte("\n")); lines > 2*(bytes.Count(data, []byte("\n"))+1) {
			t.Errorf("%d lines for %d", lines, bytes.Count(data, []byte("\n")))
		}
		for line := range bytes.Lines(out.Bytes()) {
			var a Answer
			if len(line) > 1 && (json.Unmarshal(line, &a) != nil || a.V != Version || a.Error == "") {
				t.Errorf("answer %q", line)
			}
		}
	})
}

// FuzzAnswer: whatever a guest answers is refused, or is within what was asked.
func FuzzAnswer(f *testing.F) {
	f.Add([]byte(`{"v":1,"id":1,"anon":[4,2],"file":[3,3],"source":"mglru"}`))
	f.Add([]byte(`{"v":1,"id":1,"anon":[4,-2],"file":null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var a Answer
		if json.Unmarshal(data, &a) != nil {
			return
		}
		r := Request{V: Version, ID: 1, Do: DoAges, EdgesNsec: []int64{1, 2}}
		err := a.check(&r)
		if err == nil && (len(a.Anon) != 2 || len(a.File) != 2 || a.Anon[1] > a.Anon[0] || a.RoomBytes > 1<<50) {
			t.Errorf("%+v was taken", a)
		}
		if text := fmt.Sprint(a.Source, err); strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) {
			t.Errorf("%q is not for a terminal", text)
		}
	})
}

// Of several sockets the one is taken on which a process of the task listens; the monitor's own word goes before the guest's.
func TestDial(t *testing.T) {
	dir := t.TempDir()
	listen := func(name string, say string) {
		l, err := net.Listen("unix", filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				line, _ := bufio.NewReader(conn).ReadString('\n')
				_, _ = fmt.Fprintf(conn, say, strings.TrimSpace(line))
				_ = conn.Close()
			}
		}()
	}
	listen("good.sock", "OK 1 after %s\nhello\n")
	listen("bad.sock", "nobody at %s\n")
	mine, other := []int32{int32(os.Getpid())}, []int32{1}
	fsys := hostfs.NewRoot("/")
	dial := func(address string, pids []int32) (io.ReadWriteCloser, error) {
		a, err := ParseAddress(address)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		return a.Dial(ctx, fsys, pids)
	}
	if _, err := dial("unix:"+dir+"/*.sock", other); !errors.Is(err, ErrNotFound) {
		t.Errorf("sockets of others: %v", err)
	}
	if _, err := dial("unix:"+dir+"/none*", mine); !errors.Is(err, ErrNotFound) {
		t.Errorf("no socket: %v", err)
	}
	if _, err := dial("vsock", mine); !errors.Is(err, ErrNotFound) {
		t.Errorf("no guest-cid: %v", err)
	}
	if _, err := dial("hybrid:"+dir+"/bad.sock", mine); !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), "nobody at CONNECT 9311") {
		t.Errorf("a monitor that refuses: %v", err)
	}
	conn, err := dial("hybrid:"+dir+"/good.sock", mine)
	if err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(conn); err != nil || string(rest) != "hello\n" {
		t.Errorf("after the greeting: %q, %v", rest, err)
	}
	_ = conn.Close()
}

func TestAddress(t *testing.T) {
	for _, bad := range []string{"", "vsock:3", "unix:relative", "hybrid:", "tcp:/a", "unix:/a[", "/run/x"} {
		if _, err := ParseAddress(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
	for line, want := range map[string]uint32{
		"qemu\x00-device\x00vhost-vsock-pci,disable-modern=false,vhostfd=3,id=vsock-1,guest-cid=3412,romfile=\x00": 3412,
		"guest-cid=7": 7, "guest-cid=2": 0, "guest-cid=4294967295": 0, "guest-cid=99999999999": 0, "guest-cid=x": 0, "": 0,
	} {
		if cid, ok := guestCID([]byte(line)); ok != (want != 0) || ok && cid != want {
			t.Errorf("%q: %d, %v", line, cid, ok)
		}
	}
}

// A monitor that takes nobody keeps who looks for another's socket for a moment only, and is none.
func TestBusySocketOfAnother(t *testing.T) {
	dir := t.TempDir()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	full := filepath.Join(dir, "a.sock")
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrUnix{Name: full}), unix.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	for range 8 { // until its queue is full
		if c, err := net.Dial("unix", full); err == nil {
			t.Cleanup(func() { _ = c.Close() })
		}
	}
	l, err := net.Listen("unix", filepath.Join(dir, "b.sock"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	a, err := ParseAddress("unix:" + dir + "/*.sock")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	began := time.Now()
	conn, err := a.Dial(ctx, hostfs.NewRoot("/"), []int32{int32(os.Getpid())})
	if err != nil || time.Since(began) > 5*time.Second {
		t.Fatalf("after %s: %v", time.Since(began), err)
	}
	_ = conn.Close()
	if filepath.Base(a.last) != "b.sock" {
		t.Errorf("it took %s", a.last)
	}
}
