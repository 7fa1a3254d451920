package testapp

import (
	"os"
	"strconv"
	"testing"
)

// BenchRowsVariable names the environment variable with the number of rows that benchmarks prepare.
const BenchRowsVariable = "ASYNCMONOLITH_BENCH_ROWS"

// BenchRows returns that number, or usual if the variable is not set.
func BenchRows(b *testing.B, usual int) int {
	b.Helper()
	text := os.Getenv(BenchRowsVariable)
	if text == "" {
		return usual
	}
	rows, err := strconv.Atoi(text)
	if err != nil || rows < 1000 {
		b.Fatalf("%s=%q: must be a number from 1000", BenchRowsVariable, text)
	}
	return rows
}
