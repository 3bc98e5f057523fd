package spec

import (
	"cmp"
	"fmt"

	"github.com/commensal-io/commensal/fleet/wire"
)

// Key says of what a spec is. Size is that of the tasks (model.Task.Size); "": of all tasks of the job on the platform.
type Key struct{ Job, Platform, Size string }

// Compare orders keys.
func (k Key) Compare(o Key) int {
	return cmp.Or(cmp.Compare(k.Job, o.Job), cmp.Compare(k.Platform, o.Platform), cmp.Compare(k.Size, o.Size))
}

// KeyOf is what a sheet is of.
func KeyOf(sh *wire.SpecSheet) Key { return Key{sh.Job, sh.Platform, sh.Size} }

// String is for people.
func (k Key) String() string {
	text := fmt.Sprintf("job %q on %q", k.Job, k.Platform)
	if k.Size != "" {
		text += ", size " + k.Size
	}
	return text
}
