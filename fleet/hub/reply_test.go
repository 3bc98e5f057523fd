package hub

import (
	"encoding/json"
	"math"
	"net/http"
	"net/http/httptest"
	"testing"
)

// An answer that cannot be written is told as that.
func TestReplyThatCannotBeWritten(t *testing.T) {
	w := httptest.NewRecorder()
	reply(w, http.StatusOK, math.Inf(1))
	var ans failure
	if err := json.Unmarshal(w.Body.Bytes(), &ans); err != nil || w.Code != http.StatusInternalServerError || ans.Error == "" {
		t.Errorf("code %d, %q: %v", w.Code, w.Body, err)
	}
}
