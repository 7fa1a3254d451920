package dberr_test

import (
	"fmt"
	"testing"

	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
)

// statusError is an error of an application, such as that of a gRPC or HTTP client.
type statusError int

func (e statusError) Error() string { return fmt.Sprint("status ", int(e)) }
func (e statusError) Code() int     { return int(e) }

// TestACodeOfAnotherPackageIsNotSQLites: 14 would be an outage, 19 a refused value, 517 a conflict.
func TestACodeOfAnotherPackageIsNotSQLites(t *testing.T) {
	t.Parallel()
	for _, code := range []int{5, 14, 19, 517} {
		status := statusError(code)
		for _, err := range []error{status, &status, fmt.Errorf("a layer: %w", status)} {
			if class := dberr.ClassOf(err); class != dberr.Other {
				t.Errorf("class of %T with code %d: got %v, want Other", err, code, class)
			}
		}
	}
}
