package client

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A token goes to this machine in any way, and to others by TLS, or where somebody says that the way is guarded.
func TestTokensAreGuarded(t *testing.T) {
	asked := 0
	hub := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		if r.Header.Get("Authorization") != "Bearer secret" {
			t.Errorf("%v", r.Header)
		}
		_, _ = w.Write([]byte("{}"))
	}))
	defer hub.Close()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for url, want := range map[string]string{
		hub.URL: "",
		strings.Replace(hub.URL, "127.0.0.1", "localhost", 1): "",
		"http://hub.invalid:8469":                             "hub.invalid:8469 is another machine",
		"http://127.0.0.1.invalid":                            "is another machine",
		"https://hub.invalid":                                 "the hub does not answer",
		"hub:8469":                                            "expected https://host:port",
		"":                                                    "expected https://host:port",
	} {
		c := Client{URL: url, TokenFile: token}
		err := c.Do(t.Context(), "/v1/status", nil, &struct{}{})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, expected %q", url, err, want)
		}
	}
	c := Client{URL: "http://hub.invalid", TokenFile: token, Unguarded: true}
	if err := c.Do(t.Context(), "/v1/status", nil, &struct{}{}); err == nil || !strings.Contains(err.Error(), "does not answer") {
		t.Error(err)
	}
	if asked != 2 {
		t.Errorf("asked %d times", asked)
	}
}
