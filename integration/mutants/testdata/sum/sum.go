// Package sum is what the runner of mutants is tried on.
package sum

func Add(a, b int) int {
	if a == 0 {
		return b
	}
	return a + b
}

// Double has no test.
func Double(a int) int { return a + a }
