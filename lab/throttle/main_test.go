package throttle

import (
	"os"
	"testing"

	"github.com/commensal-io/commensal/lab/openloop"
)

// TestMain lets this binary stand in for the lab's own.
func TestMain(m *testing.M) {
	openloop.Play(os.Args[1:])
	os.Exit(m.Run())
}
