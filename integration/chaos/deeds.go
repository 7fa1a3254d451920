//go:build unix

package chaos

import (
	"errors"
	"os"
	"runtime"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
)

// act does the job's deed.
func (j Job) act(attempt int) error {
	switch j.Do {
	case Exit:
		os.Exit(3)
	case Race:
		race()
	case Hog:
		hog()
	case Fail:
		return errors.New("failed, as told")
	case Once:
		if attempt == 1 {
			return errors.New("failed once, as told")
		}
	case Doom, Halt:
		return bus.Permanent(errors.New("failed for good, as told"))
	}
	return nil
}

// race writes to a map from many goroutines until the runtime notices, which no
// recover can stop. Built with the race detector it is reported before that.
func race() {
	m := make(map[int]int)
	for range 8 {
		go func() {
			for i := 0; ; i++ {
				m[i%8] = i
			}
		}()
	}
	select {}
}

// hog takes memory until there is none.
func hog() {
	var all [][]byte
	for {
		block := make([]byte, 64<<20)
		for i := 0; i < len(block); i += 4096 {
			block[i] = 1
		}
		all = append(all, block)
		runtime.KeepAlive(all)
	}
}
