// Package bucket keeps a hub's store in an S3-compatible bucket as well, for longer than the hub's disk does.
//
// Batches are committed in the folder (package store): rename and fsync are what makes each be there once, and a bucket has
// neither. What goes to the bucket are files of hours that ended and are merged, under the names that they have in the folder.
// Which of them count is said, for each table and day, by a manifest: an object that is never written twice. A newer one has a
// greater number and holds from when it is there; until then its predecessor does, whose files are deleted after it. So whoever
// reads by manifest sees each row once, whatever of it was done when a hub ended or a bucket went away, and a request that takes
// effect late harms nobody. Whoever reads all *.parquet sees rows twice from when a merged file is there until those that it replaces are deleted.
//
// Rejected: a list in the folder of what was copied, which would be a second truth beside the manifests; one manifest that is
// overwritten, since a write that timed out may take effect after its successor, and not every such server knows If-Match.
package bucket

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/commensal-io/commensal/fleet/store"
)

// ErrNone is of an object that is not there.
var ErrNone = errors.New("there is no such object")

// Object is what a bucket says of an object.
type Object struct {
	Name  string
	Bytes int64
	Sum   []byte // SHA-256 as the server calculated it; nil: it did not say
}

// Objects is what is needed of a bucket. Names are below a prefix of ours. After an error of a Put or a Delete it may have been done, or
// be done later.
type Objects interface {
	// String says which bucket it is, for people.
	String() string
	// Put writes an object, whole or not at all.
	Put(ctx context.Context, name string, r io.ReadSeeker, size int64, sum [sha256.Size]byte) error
	// Get opens an object; ErrNone where there is none.
	Get(ctx context.Context, name string) (io.ReadCloser, error)
	// Stat looks at an object; ErrNone where there is none.
	Stat(ctx context.Context, name string) (Object, error)
	// List lists the objects whose names begin so, without their sums.
	List(ctx context.Context, prefix string) ([]Object, error)
	// Delete deletes an object; that there is none is no error.
	Delete(ctx context.Context, name string) error
}

// Entry is a file that counts.
type Entry struct {
	Name   string `json:"name"` // below the prefix, as in the store's folder
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"` // hexadecimal
}

// Manifest says which files of a table and day count.
type Manifest struct {
	Version int     `json:"version"`
	Files   []Entry `json:"files"` // by name
}

const manifestVersion = 1

// is reports whether so many bytes with this SHA-256 are the file.
func (e Entry) is(size int64, sum []byte) bool {
	return size == e.Bytes && hex.EncodeToString(sum) == e.SHA256
}

// number is of a manifest, by its name: DAY/_manifest-NUMBER.json; engines that read a whole folder pass over what begins with an underscore.
func number(name string) (uint64, bool) {
	base, manifest := strings.CutPrefix(path.Base(name), "_manifest-")
	base, document := strings.CutSuffix(base, ".json")
	if !manifest || !document {
		return 0, false
	}
	n, err := strconv.ParseUint(base, 10, 64)
	return n, err == nil
}

func manifestName(day string, n uint64) string { return fmt.Sprintf("%s/_manifest-%020d.json", day, n) }

// Read returns the manifest of a day in force, with its number, and the greatest number that is there, which may be that of one of which only half
// is; an empty one of number 0 where the bucket has none. An error with ErrNone is of one that was replaced just now.
func Read(ctx context.Context, from Objects, day string) (m Manifest, in, greatest uint64, err error) {
	list, err := from.List(ctx, day+"/_manifest-")
	if err != nil {
		return m, 0, 0, fmt.Errorf("%s: %w", from, err)
	}
	slices.SortFunc(list, func(a, b Object) int { return cmp.Compare(b.Name, a.Name) }) // numbers have leading zeros
	for _, o := range list {
		n, ok := number(o.Name)
		if !ok {
			continue // somebody else's
		}
		greatest = max(greatest, n)
		b, err := get(ctx, from, o)
		if err != nil {
			return m, 0, 0, err
		}
		m = Manifest{}
		if json.Unmarshal(b, &m) != nil {
			continue // the one before holds
		}
		if m.Version != manifestVersion {
			return m, 0, 0, fmt.Errorf("%s: %s is of version %d; known here: %d", from, o.Name, m.Version, manifestVersion)
		}
		for _, e := range m.Files {
			if f, ok := store.ParseName(e.Name); !ok || f.Day() != day || path.Clean(e.Name) != e.Name {
				return m, 0, 0, fmt.Errorf("%s: %s names %q; expected a file of that day", from, o.Name, e.Name)
			}
		}
		return m, n, greatest, nil
	}
	return Manifest{}, 0, greatest, nil
}

// maxRead bounds a manifest: 24 hours have some files each.
const maxRead = 16 << 20

// get reads a small object that was listed.
func get(ctx context.Context, from Objects, o Object) ([]byte, error) {
	r, err := from.Get(ctx, o.Name)
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %w", from, o.Name, err)
	}
	b, err := io.ReadAll(io.LimitReader(r, maxRead))
	if err = errors.Join(err, r.Close()); err == nil && int64(len(b)) != o.Bytes {
		err = fmt.Errorf("%d bytes came; expected %d", len(b), o.Bytes)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %w", from, o.Name, err)
	}
	return b, nil
}

// verify compares what the bucket has with what was meant. Where the server does not say a sum, the object is read.
func verify(ctx context.Context, in Objects, e Entry) error {
	o, err := in.Stat(ctx, e.Name)
	if err != nil {
		return fmt.Errorf("%s: %s: %w", in, e.Name, err)
	}
	sum, size := o.Sum, o.Bytes
	if sum == nil && size == e.Bytes {
		r, err := in.Get(ctx, e.Name)
		if err != nil {
			return fmt.Errorf("%s: %s: %w", in, e.Name, err)
		}
		h := sha256.New()
		size, err = io.Copy(h, r)
		if err = errors.Join(err, r.Close()); err != nil {
			return fmt.Errorf("%s: %s: %w", in, e.Name, err)
		}
		sum = h.Sum(nil)
	}
	if !e.is(size, sum) {
		return fmt.Errorf("%s: %s: %w: %d bytes with SHA-256 %x; expected %d with %s", in, e.Name, errOther, size, sum, e.Bytes, e.SHA256)
	}
	return nil
}

// errOther is of an object that is not what was written.
var errOther = errors.New("another object is there")
