package linux

// keeper holds files of held tasks open from one change to the next: a hand-back reads a
// hundred lists three times each, a token bucket twenty limits at each tick, and by path
// that costs ten times as much. An open file is bound to its directory, so that it also
// tells the task from one that is made anew.
type keeper[F kept] struct{ files map[string]F }

// kept is an open file.
type kept interface {
	Inode() uint64
	Close() error
}

// maxKept bounds how many tasks' files are held open: of two kinds, with up to three
// descriptors each, a few thousand. The knobs of other tasks cost some microseconds more a
// change.
const maxKept = 1000

func (k *keeper[F]) keep(path string, open func(path string) (F, error)) {
	if _, ok := k.files[path]; ok || len(k.files) >= maxKept {
		return
	}
	f, err := open(path)
	if err != nil {
		return // it is read by path, and that says why
	}
	if k.files == nil {
		k.files = map[string]F{}
	}
	k.files[path] = f
}

func (k *keeper[F]) drop(path string) {
	if f, ok := k.files[path]; ok {
		delete(k.files, path)
		_ = f.Close() // it was only read
	}
}

// readKept reads a file that is held open; not when there is none, or its group is gone.
func readKept[F kept, V any](k *keeper[F], path string, read func(F) (V, error)) (v V, inode uint64, ok bool) {
	f, ok := k.files[path]
	if !ok {
		return v, 0, false
	}
	v, err := read(f)
	if err != nil {
		k.drop(path)
		return v, 0, false
	}
	return v, f.Inode(), true
}
