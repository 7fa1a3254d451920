package ops

import (
	"errors"
	"fmt"
	"io"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/contract"
)

// WriteAsyncAPI writes an AsyncAPI 3.0 document of a registry, in JSON: its payloads as JSON Schema,
// a receive operation for each consumer and receiver, and a send operation for each destination of a
// forwarder. title and version are those of the program. Log forwarders are not in a registry; the
// command asyncmonolith asyncapi has them, too.
func WriteAsyncAPI(w io.Writer, registry *bus.Registry, title, version string) error {
	if registry == nil {
		return errors.New("ops: WriteAsyncAPI: the registry is nil")
	}
	text, err := contract.AsyncAPI(title, version, contract.Of(registry))
	if err == nil {
		_, err = w.Write(text)
	}
	if err != nil {
		return fmt.Errorf("ops: write AsyncAPI: %w", err)
	}
	return nil
}
