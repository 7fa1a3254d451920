//go:build unix

package txn_test

import (
	"os"
	"syscall"
)

const canStop = true

// stopMyself has all of the process stand still until somebody lets it go on, or kills it.
func stopMyself() error { return syscall.Kill(os.Getpid(), syscall.SIGSTOP) }
