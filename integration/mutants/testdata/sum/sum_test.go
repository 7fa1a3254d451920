package sum_test

import (
	"testing"

	"github.com/asyncmonolith/asyncmonolith-go/integration/mutants/testdata/sum"
)

func TestAdd(t *testing.T) {
	if got := sum.Add(2, 3); got != 5 {
		t.Errorf("Add(2, 3): got %d, want 5", got)
	}
}

func TestFails(t *testing.T) { t.Error("it fails anyway") }
