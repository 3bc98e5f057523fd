package throttle

import (
	"fmt"
	"os"
	"testing"

	"github.com/commensal-io/commensal/lab/stage"
)

// TestMain lets this binary stand in for the lab's own: the stage runs it to enter a group
// and to be an instance.
func TestMain(m *testing.M) {
	var err error
	switch {
	case len(os.Args) > 4 && os.Args[1] == stage.ExecCommand:
		err = stage.Exec(os.Args[2], os.Args[4:])
	case len(os.Args) > 2 && os.Args[1] == ServiceCommand:
		if err = Serve(os.Stdout, []byte(os.Args[2])); err == nil {
			os.Exit(0)
		}
	default:
		os.Exit(m.Run())
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
