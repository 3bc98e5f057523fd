// Package jsonreply answers HTTP requests in JSON: of the agent's API and of the hub's.
package jsonreply

import (
	"bytes"
	"encoding/json"
	"net/http"
)

// Write answers with a code and a document. One that cannot be written in JSON (it has an infinite number) is an error that says so,
// {"error": "..."}, and no answer without a body.
func Write(w http.ResponseWriter, code int, v any) {
	var b bytes.Buffer
	if err := json.NewEncoder(&b).Encode(v); err != nil {
		code = http.StatusInternalServerError
		b.Reset()
		_ = json.NewEncoder(&b).Encode(map[string]string{"error": "the answer cannot be written: " + err.Error()}) // a string can
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(b.Bytes()) // who asked went away
}
