package guide

import (
	"errors"
	"net/http"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
)

// snippet: status

// Status returns the HTTP status for an error of Produce.
func Status(err error) int {
	switch {
	case err == nil:
		return http.StatusAccepted
	case errors.Is(err, bus.ErrTooLarge):
		return http.StatusRequestEntityTooLarge
	case errors.Is(err, bus.ErrInvalidText), errors.Is(err, bus.ErrInvalidPayload):
		return http.StatusBadRequest
	case errors.Is(err, bus.ErrNoConsumer):
		return http.StatusNotImplemented // register or declare a consumer
	}
	return http.StatusServiceUnavailable // err wraps the error of the database
}

// end
