package partition

import (
	"context"
	"os"
	"testing"
	"time"
)

func TestScratchChart(t *testing.T) {
	table := twinTables()[0]
	table.shape = newShape(1, 10*time.Minute, 10*time.Minute)
	table.CPUs, table.day = 64, 600
	table.Rows, table.sizes = make([]TwinRow, len(table.arms)), make([][]write, len(table.arms))
	for a, arm := range table.arms {
		if err := table.play(context.Background(), Options{Seed: 1}, a, arm); err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.Create("/work/main/docs/policies/cpuset.svg")
	if err != nil {
		t.Fatal(err)
	}
	_ = table.Chart().WriteSVG(f)
	_ = f.Close()
}
