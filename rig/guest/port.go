package main

import (
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/commensal-io/commensal/rig/wire"
	"golang.org/x/sys/unix"
)

// port sends messages to the host.
type port struct {
	mu   sync.Mutex
	file *os.File
}

// openPort opens a serial port as a plain pipe: no echo, no editing, no added returns.
func openPort(path string) (*port, error) {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	t, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	t.Iflag, t.Oflag, t.Lflag = 0, 0, 0
	if err := unix.IoctlSetTermios(int(f.Fd()), unix.TCSETS, t); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &port{file: f}, nil
}

func (p *port) send(m wire.Message) {
	data, err := json.Marshal(m)
	if err != nil {
		panic("a message of plain fields does not marshal: " + err.Error())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, err := p.file.Write(append(data, '\n')); err != nil {
		fmt.Println("guest: send:", err) // the host will miss it and say so
	}
}

// beat tells the host that the guest lives, until the machine ends.
func (p *port) beat() {
	for range time.Tick(wire.BeatEvery * time.Second) {
		p.send(wire.Message{Kind: wire.Beat})
	}
}

// close waits until everything has left for the host.
func (p *port) close() {
	// TCSBRK with 1 is tcdrain(3).
	if err := unix.IoctlSetInt(int(p.file.Fd()), unix.TCSBRK, 1); err != nil {
		fmt.Println("guest: drain:", err)
	}
}
