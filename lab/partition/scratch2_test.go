package partition

import (
	"context"
	"fmt"
	"os"
	"testing"
)

func TestScratchTwin(t *testing.T) {
	r, err := Run(context.Background(), Options{Seed: 1, TwinOnly: true, Log: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	_ = r.WriteText(os.Stdout)
	f, _ := os.Create("/work/main/docs/policies/cpuset.svg")
	_ = r.Twin[0].Chart().WriteSVG(f)
	_ = f.Close()
}

func TestScratchHost(t *testing.T) {
	r, err := Run(context.Background(), Options{Seed: 1, Quick: true, HostOnly: true, Agent: "/tmp/h6/bin/commensal", Log: os.Stderr, Keep: "/tmp/h6/keep2"})
	if err != nil {
		t.Fatal(err)
	}
	_ = r.WriteText(os.Stdout)
	for _, b := range r.Host.Backs {
		fmt.Printf("%+v\n", b)
	}
}
