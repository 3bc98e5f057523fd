package partition

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"
)

func TestScratchShort(t *testing.T) {
	size := hostSize{rounds: 1, arms: []Arm{ArmAlone, ArmNone, ArmOurs}, steps: 2, ourSteps: 12, leadIn: time.Second, low: 2500 * time.Millisecond, high: 5 * time.Second}
	blocks, err := playHost(context.Background(), Options{Seed: 2, Agent: "/tmp/h6/bin/commensal", Log: os.Stderr}, size)
	if err != nil {
		t.Fatal(err)
	}
	r := Result{Host: summarise(blocks, 2)}
	r.judge()
	_ = r.WriteText(os.Stdout)
	fmt.Println("steal", r.Host.Steal)
	for _, b := range r.Host.Backs {
		fmt.Printf("%+v\n", b)
	}
}
