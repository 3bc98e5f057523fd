package cgroup

import (
	"errors"
	"math/rand/v2"
	"testing"

	"golang.org/x/sys/unix"
)

// TestKernelV1TakesEveryPlan drives a nested tree on the kernel and in the model through
// the same random limits. What the model calls legal, WriteCPUMax must achieve; what it
// calls illegal, the kernel must refuse; single writes of any kind must agree.
func TestKernelV1TakesEveryPlan(t *testing.T) {
	d := liveV1(t)
	top := ownGroup(t, d, "plan")
	paths := []string{top, top + "/b", top + "/b/c", top + "/d"}
	for _, p := range paths[1:] {
		makeGroup(t, d, p)
	}
	if _, err := d.readInt(CPU, top, burstFile); errors.Is(err, ErrUnsupported) {
		t.Skip("this kernel has no cpu.cfs_burst_us")
	}
	const seed = 6180
	rng := rand.New(rand.NewPCG(seed, 2))
	model := chain()
	legal, illegal, lifts := 0, 0, 0
	for round := range 4000 {
		i := rng.IntN(len(paths))
		to := randomLimit(rng)
		if rng.IntN(4) == 0 {
			oneWrite(t, d, paths[i], model[i], rng, to)
			continue
		}
		err := d.WriteCPUMax(paths[i], to)
		if !model[i].legal(to) {
			illegal++
			if !errors.Is(err, unix.EINVAL) {
				t.Fatalf("seed %d, round %d: %s to %s is illegal, and: %v", seed, round, paths[i], to, err)
			}
		} else {
			legal++
			if err != nil {
				t.Fatalf("seed %d, round %d: %s from %s to %s: %v", seed, round, paths[i], model[i].limit, to, err)
			}
			if len(planRatio(model[i].limit, to, model[i].room())) == 3 {
				lifts++
			}
			model[i].limit = to
		}
		if got, err := d.ReadCPUMax(paths[i]); err != nil || got != model[i].limit {
			t.Fatalf("seed %d, round %d: %s reads %s, %v; want %s", seed, round, paths[i], got, err, model[i].limit)
		}
	}
	t.Logf("%d legal changes (%d by lifting the quota), %d refused", legal, lifts, illegal)
	if legal < 500 || illegal < 100 {
		t.Errorf("%d legal and %d illegal changes: the walk did not get around", legal, illegal)
	}
}

// oneWrite writes one file of the three, planned by nobody, on both sides.
func oneWrite(t *testing.T, d *V1, path string, model *modelGroup, rng *rand.Rand, to CPUMax) {
	t.Helper()
	s := []step{{quotaFile, to.QuotaUsec}, {periodFile, to.PeriodUsec}, {burstFile, to.BurstUsec}}[rng.IntN(3)]
	from := model.limit
	modelErr, kernelErr := model.write(s), d.writeInt(CPU, path, s.file, s.value)
	if (modelErr == nil) != (kernelErr == nil) {
		t.Fatalf("%s %s, %s = %d: kernel %v, model %v", path, from, s.file, s.value, kernelErr, modelErr)
	}
	if kernelErr != nil && !errors.Is(kernelErr, unix.EINVAL) {
		t.Fatal(kernelErr)
	}
}
