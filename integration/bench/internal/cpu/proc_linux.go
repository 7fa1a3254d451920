package cpu

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of the kernel's accounts, the same on all architectures that Go knows.
const tick = 10 * time.Millisecond

// Family returns the processor time of a process and of all children that it ever had.
func Family(pid int) (total time.Duration) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		fields := statOf(path)
		switch {
		case fields == nil:
		case filepath.Base(filepath.Dir(path)) == strconv.Itoa(pid):
			total += sum(fields[11:15]) // with children that have ended
		case fields[1] == strconv.Itoa(pid):
			total += sum(fields[11:13])
		}
	}
	return total
}

// Group returns the processor time of the processes of a group.
func Group(leader int) (total time.Duration) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		if fields := statOf(path); fields != nil && fields[2] == strconv.Itoa(leader) {
			total += sum(fields[11:13])
		}
	}
	return total
}

// Parent returns the process that started another, 0 when it is not on this machine.
func Parent(pid int) int {
	fields := statOf(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if fields == nil {
		return 0
	}
	parent, _ := strconv.Atoi(fields[1])
	return parent
}

// Machine returns what all processes have used, and what the machine was not given.
func Machine() time.Duration {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	line, _, _ := strings.Cut(string(text), "\n")
	fields := strings.Fields(line) // cpu, user, nice, system, idle, iowait, irq, softirq, steal
	if len(fields) < 9 {
		return 0
	}
	return sum(fields[1:4]) + sum(fields[6:9])
}

// statOf returns the fields of a process behind its name, which may have spaces.
func statOf(path string) []string {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil // it has ended
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	if fields := strings.Fields(rest); len(fields) > 15 {
		return fields
	}
	return nil
}

func sum(ticks []string) (total time.Duration) {
	for _, text := range ticks {
		n, _ := strconv.ParseInt(text, 10, 64)
		total += time.Duration(n) * tick
	}
	return total
}
