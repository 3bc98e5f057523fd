package scenario

import (
	"math"
	"strings"
	"testing"
)

const crowd = `version: 1
name: crowd
duration: 30s
machine: {sockets: 1, memory: 4GiB, swap: 1GiB, fault_time: 1ms}
tasks:
  - {name: old, class: BE, cpi: 1, memory: [{bytes: 1GiB, every: 10s}, {bytes: 1GiB, every: 1m, file: true}]}
  - {name: new, class: BE, cpi: 1, start: 10s, memory: [{bytes: 3584MiB}]}
measure:
  - {name: before, from: 1s, to: 10s}
  - {name: crowded, from: 12s}
`

func playText(t *testing.T, text string) *Run {
	t.Helper()
	f, err := Parse("crowd.yaml", []byte(text), Options{})
	if err != nil {
		t.Fatal(err)
	}
	run, err := f.Plans[0].Play(Typed)
	if err != nil {
		t.Fatal(err)
	}
	return run
}

// Memory is where it has to be, what is not there comes back with faults, and who waits for
// it shows memory pressure.
func TestMemory(t *testing.T) {
	run := playText(t, crowd)
	before, after := &run.Windows[0], &run.Windows[1]
	old := before.Tasks[0]
	if old.Memory == nil || math.Abs(float64(old.Memory.ResidentBytes)-2<<30) > 1 || old.Memory.SwappedBytes != 0 || old.Memory.Faults != 0 || old.Pressure.MemorySome != 0 {
		t.Errorf("before: %+v %+v", old.Memory, old.Pressure)
	}
	if m := before.Tasks[1].Memory; m == nil || m.ResidentBytes.Known() {
		t.Errorf("what does not run has %+v", m)
	}
	old = after.Tasks[0]
	all := float64(old.Memory.ResidentBytes + after.Tasks[1].Memory.ResidentBytes)
	if all > 4<<30+1<<20 || all < 3.9*(1<<30) {
		t.Errorf("%g bytes are resident of 4 GiB", all)
	}
	if !(old.Memory.SwappedBytes > 1<<20) || !(old.Memory.Faults > 100) {
		t.Errorf("crowded: %+v", old.Memory)
	}
	p := old.Pressure
	if !(p.MemorySome > 0.01 && p.MemorySome <= 1 && p.MemoryFull <= p.MemorySome) || !(after.Node.Pressure.MemorySome >= p.MemoryFull) {
		t.Errorf("pressure %+v, of the machine %+v", p, after.Node.Pressure)
	}
	if !(old.CPU < 0.95) {
		t.Errorf("it waits for memory and uses %g CPUs", float64(old.CPU))
	}
}

// What does not fit at all is ended, and said.
func TestOutOfMemory(t *testing.T) {
	text := strings.Replace(strings.Replace(crowd, "bytes: 3584MiB", "bytes: 4GiB", 1), "swap: 1GiB", "swap: 512MiB", 1)
	run := playText(t, text)
	if len(run.Events) != 1 || !strings.HasSuffix(run.Events[0].What, "is killed: out of memory") {
		t.Errorf("events: %+v", run.Events)
	}
}

// CPU pressure of a task that its limit holds is full, of one that queues some.
func TestCPUPressure(t *testing.T) {
	run := playText(t, `version: 1
name: cpu
duration: 10s
machine: {sockets: 1, cores_per_socket: 2, threads_per_core: 1}
tasks:
  - {name: held, class: BE, cpi: 1, cpus: "0", cpu_max: {cpus: 0.5}}
  - {name: a, class: BE, cpi: 1, cpus: "1"}
  - {name: b, class: BE, cpi: 1, cpus: "1"}
`)
	w := &run.Windows[0]
	if p := w.Tasks[0].Pressure; !(p.CPUFull > 0.45 && p.CPUFull < 0.55 && p.CPUSome >= p.CPUFull) {
		t.Errorf("held: %+v", p)
	}
	if p := w.Tasks[1].Pressure; !(p.CPUSome > 0.45 && p.CPUFull == 0 && p.MemorySome == 0) {
		t.Errorf("a queues: %+v", p)
	}
	if p := w.Node.Pressure; !(p.CPUSome > 0.5 && p.CPUFull == 0) {
		t.Errorf("the machine: %+v", p)
	}
}

func TestMemoryRefused(t *testing.T) {
	for from, want := range map[string]string{
		"{bytes: 3584MiB}":              "",
		"{bytes: 6GiB}":                 "crowd.yaml:7: tasks[1].memory[0].bytes: makes it 6.442e+09 bytes of one task, and memory and swap have 5.369e+09",
		"{every: 1s}":                   "crowd.yaml:7: tasks[1].memory[0].bytes: is 0; expected at least a page",
		"{bytes: 1GiB, every: 1us}":     "crowd.yaml:7: tasks[1].memory[0].every: is 1µs; expected at least 1ms",
		"{bytes: 1GiB, every: -1s}":     "crowd.yaml:7: tasks[1].memory[0].every: is -1s",
		"{bytes: 1GiB, each: 1s}":       `crowd.yaml:7: unknown key "each"; known here: bytes, every, file`,
		"{bytes: 3GiB}, {bytes: 3GiB}":  "crowd.yaml:7: tasks[1].memory[1].bytes: makes it",
		"{bytes: 1GiB, file: 'no way'}": "crowd.yaml:7: tasks[1].memory[0].file",
	} {
		_, err := Parse("crowd.yaml", []byte(strings.Replace(crowd, "{bytes: 3584MiB}", from, 1)), Options{})
		if want == "" && err != nil || want != "" && (err == nil || !strings.HasPrefix(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", from, err, want)
		}
	}
	_, err := Parse("crowd.yaml", []byte(strings.Replace(crowd, "fault_time: 1ms", "fault_time: 2s", 1)), Options{})
	if err == nil || !strings.HasPrefix(err.Error(), "crowd.yaml:4: machine.fault_time: is ") {
		t.Errorf("a fault of 2 s: %v", err)
	}
}
