//go:build !linux

package cpu

import "time"

// Family is not known here.
func Family(int) time.Duration { return 0 }

// Parent is not known here.
func Parent(int) int { return 0 }

// Machine is not known here.
func Machine() time.Duration { return 0 }

// Group returns 0: it is not known here.
func Group(int) time.Duration { return 0 }
