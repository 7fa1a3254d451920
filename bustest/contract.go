package bustest

import (
	"bytes"
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/contract"
)

// Contract compares what a registry stores with a file that is committed beside the test: the fields
// of every payload and event as JSON Schema, and the names and aliases of payloads and consumers. It
// fails the test for each difference.
//
// A difference that would break a deployment stays a failure: a payload, a consumer or an alias was
// removed, a field was removed or has another type, or a consumer now needs a key. Stored messages
// and processes of the previous release still depend on the former state. The failure explains what
// to do. A higher schema (bus.Upcaster) allows any change of a payload's fields. If nothing stored
// needs a removed entry any more, delete it from the file by hand.
//
// A difference that only adds is accepted with the flag -update, which the test's package declares
// itself; that also writes the first file:
//
//	var _ = flag.Bool("update", false, "accept compatible changes")
//
// Fields are those that encoding/json writes. A type with a MarshalJSON of its own may have any
// value. With a codec other than bus.JSON, they are the fields of the Go type.
func Contract(t testing.TB, registry *bus.Registry, file string) {
	t.Helper()
	if registry == nil {
		t.Fatalf("bustest: Contract: the registry is nil")
	}
	now := contract.Of(registry)
	now.Relays = nil // destinations are not stored
	text, err := now.Text()
	if err != nil {
		t.Fatalf("bustest: Contract: %v", err)
	}
	before, err := os.ReadFile(file)
	switch {
	case errors.Is(err, fs.ErrNotExist) && updates():
	case errors.Is(err, fs.ErrNotExist):
		t.Fatalf("bustest: Contract: there is no %s: write it with %s", file, updateFlag())
	case err != nil:
		t.Fatalf("bustest: Contract: %v", err)
	case !agrees(t, file, before, now):
		return
	}
	if updates() && !bytes.Equal(before, text) {
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, text, 0o600)); err != nil {
			t.Fatalf("bustest: Contract: %v", err)
		}
	}
}

// agrees reports each difference, and whether there is none that has not been accepted.
func agrees(t testing.TB, file string, text []byte, now contract.Document) bool {
	t.Helper()
	before, err := contract.Parse(text)
	if err != nil {
		t.Fatalf("bustest: Contract: %s: %v", file, err)
	}
	agree := true
	for _, d := range contract.Compare(before, now) {
		switch {
		case d.Breaks:
			agree = false
			t.Errorf("bustest: Contract: %s. To fix this, %s. If no stored data needs the entry, delete it from %s by hand", d.Text, d.Advice, file)
		case !updates():
			agree = false
			t.Errorf("bustest: Contract: %s. The change is compatible: accept it with %s", d.Text, updateFlag())
		}
	}
	return agree
}

// updates reports whether the test runs with -update.
func updates() bool {
	f := flag.Lookup("update")
	return f != nil && f.Value.String() == "true"
}

// updateFlag names the flag, and how to declare it if the test's package has not.
func updateFlag() string {
	if flag.Lookup("update") == nil {
		return `-update, which this package declares with: var _ = flag.Bool("update", false, "accept compatible changes")`
	}
	return "-update"
}
