package hooks_test

import (
	"reflect"
	"testing"

	_ "github.com/asyncmonolith/asyncmonolith-go/admin"
	_ "github.com/asyncmonolith/asyncmonolith-go/eventlog"
	_ "github.com/asyncmonolith/asyncmonolith-go/eventlog/projection"
	"github.com/asyncmonolith/asyncmonolith-go/internal/hooks"
	_ "github.com/asyncmonolith/asyncmonolith-go/poison"
)

func TestEachPackageProvidesItsFunctions(t *testing.T) {
	packages := reflect.ValueOf(hooks.Of)
	for i := range packages.NumField() {
		functions := packages.Field(i)
		for n := range functions.NumField() {
			if functions.Field(n).IsNil() {
				t.Errorf("%s.%s is nil", functions.Type(), functions.Type().Field(n).Name)
			}
		}
	}
}
