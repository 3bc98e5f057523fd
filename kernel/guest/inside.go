package guest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"time"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/psi"
	"github.com/commensal-io/commensal/kernel/reclaim"
)

// MaxAskBytes bounds one reclaim.
const MaxAskBytes = reclaim.MaxAskBytes

const (
	vmstatPath  = "/proc/vmstat"
	compactPath = "/proc/sys/vm/compact_memory"
	// compactBytes: after less nobody compacts.
	compactBytes = 1 << 20
)

// Inside answers for the kernel that it runs on. It keeps nothing open. It is not safe for concurrent use.
type Inside struct {
	fs  hostfs.FS
	lru *reclaim.LRUGen
}

// NewInside answers for a host's kernel, which is the guest's.
func NewInside(fsys hostfs.FS) *Inside {
	return &Inside{fs: fsys, lru: reclaim.NewLRUGen(fsys)}
}

// Serve answers what comes over a connection until that fails or ends, and returns why. A question that is none is refused, and no
// reason to end.
func (in *Inside) Serve(ctx context.Context, conn io.ReadWriter) error {
	r := bufio.NewReader(conn)
	for {
		budget := math.MaxInt // whoever asks owns this machine
		line, err := readLine(r, &budget)
		var a Answer
		switch {
		case errors.Is(err, errLong):
			a = Answer{V: Version, Error: err.Error()}
		case err != nil:
			return err
		default:
			a = in.answer(ctx, line)
		}
		if err := writeLine(conn, &a); err != nil {
			return err
		}
	}
}

func (in *Inside) answer(ctx context.Context, line []byte) Answer {
	var r Request
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	a := Answer{V: Version}
	err := d.Decode(&r)
	if a.ID = r.ID; err == nil {
		err = r.check()
	}
	if err == nil {
		err = in.do(ctx, &r, &a)
	}
	if err != nil {
		a.Error = printable(err.Error())
	}
	return a
}

func (in *Inside) do(ctx context.Context, r *Request, a *Answer) error {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(r.WithinMsec)*time.Millisecond)
	defer cancel()
	var err error
	switch r.Do {
	case DoAges:
		err = in.ages(ctx, r, a)
	case DoReclaim:
		err = in.reclaim(ctx, r, a)
	}
	return errors.Join(err, in.stat(a))
}

// stat tells what came back, and for how long programs waited; a kernel without PSI tells only the first.
func (in *Inside) stat(a *Answer) error {
	data, err := in.fs.ReadFile(vmstatPath, nil)
	if err != nil {
		return err
	}
	for line := range bytes.Lines(data) {
		name, value, _ := bytes.Cut(bytes.TrimSpace(line), []byte(" "))
		switch string(name) {
		case "workingset_refault_anon", "workingset_refault_file", "workingset_refault":
			n, err := strconv.ParseUint(string(value), 10, 64)
			if err != nil {
				return fmt.Errorf("read %s: %w", vmstatPath, err)
			}
			a.Refaults += n
		}
	}
	if p, err := psi.Read(in.fs, psi.Memory.Path()); err == nil {
		a.StallUsec = p.Some.TotalUsec
	}
	return nil
}

// groups are the memory controller and its top groups that can be reclaimed from, which between them have all programs' memory but that of the root group.
func (in *Inside) groups() (*reclaim.Memory, []string, error) {
	m, err := cgroup.Discover(in.fs)
	if err != nil {
		return nil, nil, err
	}
	mem, err := reclaim.Open(in.fs, m)
	if err != nil {
		return nil, nil, err
	}
	if !mem.V2() {
		return nil, nil, fmt.Errorf("%w: the memory controller is on cgroup v1", reclaim.ErrNoReclaim)
	}
	list, err := in.fs.ReadDir(m.Unified)
	if err != nil {
		return nil, nil, err
	}
	var paths []string
	for _, d := range list {
		if _, err := in.fs.Inode(m.Unified + "/" + d.Name + "/memory.reclaim"); d.IsDir && err == nil {
			paths = append(paths, "/"+d.Name)
		}
	}
	if len(paths) == 0 {
		return nil, nil, fmt.Errorf("%w: no group below %s has it", reclaim.ErrNoReclaim, m.Unified)
	}
	return mem, paths, nil
}

// ages walks the page tables of all groups and adds up how long pages lay idle. A group that goes meanwhile has none.
func (in *Inside) ages(ctx context.Context, r *Request, a *Answer) error {
	mem, groups, err := in.groups()
	if err != nil {
		return err
	}
	edges := make([]time.Duration, len(r.EdgesNsec))
	for i, e := range r.EdgesNsec {
		edges[i] = time.Duration(e)
	}
	a.Anon, a.File = make([]uint64, len(edges)), make([]uint64, len(edges))
	var asks []reclaim.AgeAsk
	var rooms []uint64
	for _, path := range groups {
		room, err := mem.Room(path)
		if vanished(err) {
			continue
		}
		if err != nil {
			return err
		}
		asks, rooms = append(asks, reclaim.AgeAsk{Path: path, Anon: room.AnonBytes > 0}), append(rooms, room.AnonBytes)
	}
	for n, one := range in.lru.AgeAll(ctx, asks, edges) {
		if vanished(one.Err) {
			continue
		}
		if one.Err != nil {
			return one.Err
		}
		found := &one.Ages
		a.Source, a.RoomBytes = found.Source, max(a.RoomBytes, rooms[n])
		for i := range edges {
			a.Anon[i] += found.Anon[i].AtLeastBytes
			a.File[i] += found.FileSorted[i]
		}
	}
	return nil
}

func vanished(err error) bool {
	return errors.Is(err, cgroup.ErrVanished) || errors.Is(err, reclaim.ErrNotListed)
}

// reclaim takes memory back from one group after another, and has the kernel put what is free together: it reports free memory in blocks of 2 MiB.
func (in *Inside) reclaim(ctx context.Context, r *Request, a *Answer) error {
	mem, groups, err := in.groups()
	if err != nil {
		return err
	}
	var errs []error
	for _, path := range groups {
		if a.TakenBytes >= r.Bytes {
			break
		}
		out, err := in.take(ctx, mem, path, r, r.Bytes-a.TakenBytes)
		a.TakenBytes += out.TakenBytes
		a.FreedBytes += min(uint64(max(0, out.FellBytes)), out.TakenBytes-out.KeptBytes)
		if err != nil && !vanished(err) && !errors.Is(err, reclaim.ErrShort) {
			errs = append(errs, err)
		}
	}
	if a.FreedBytes >= compactBytes {
		_ = in.fs.WriteFile(compactPath, []byte("1")) // a kernel without compaction has no such file
	}
	if a.TakenBytes > 0 || len(errs) == 0 {
		return nil
	}
	return errors.Join(errs...)
}

func (in *Inside) take(ctx context.Context, mem *reclaim.Memory, path string, r *Request, bytes uint64) (reclaim.Outcome, error) {
	from, err := mem.OpenReclaimer(path)
	if err != nil {
		return reclaim.Outcome{}, err
	}
	defer from.Close() //nolint:errcheck // reading is over
	kind := reclaim.KernelsChoice
	switch r.Pages {
	case AnonPages:
		kind = reclaim.FavourAnon
	case FilePages:
		kind = reclaim.FileOnly
	}
	if r.OlderNsec > 0 {
		return from.Evict(ctx, in.lru, reclaim.EvictAsk{Bytes: bytes, Idle: time.Duration(r.OlderNsec), Kind: kind})
	}
	return from.Reclaim(ctx, reclaim.Ask{Bytes: bytes, Swappiness: kind})
}
