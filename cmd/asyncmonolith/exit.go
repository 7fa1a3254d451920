package main

import (
	"errors"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/cmd/asyncmonolith/internal/connect"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

// The exit codes are part of the program's interface.
const (
	exitDone         = 0
	exitError        = 1
	exitUsage        = 2
	exitNotFound     = 3
	exitNotConfirmed = 4
	exitPartly       = 5
	exitCheckFailed  = 6
	exitSchema       = 7
)

var (
	errUsage        = errors.New("usage")
	errNotConfirmed = errors.New("nothing was changed: add --yes --reason TEXT")
	errNotFound     = errors.New("not found")
	errPartly       = errors.New("only a part is done")
	errCheckFailed  = errors.New("the check failed")
)

func exitOf(err error) int {
	for _, known := range []struct {
		err  error
		code int
	}{
		{nil, exitDone}, {errUsage, exitUsage}, {connect.ErrDSN, exitUsage}, {errNotConfirmed, exitNotConfirmed},
		{errNotFound, exitNotFound}, {errPartly, exitPartly}, {errCheckFailed, exitCheckFailed}, {outbox.ErrSchemaOutdated, exitSchema},
		{admin.ErrNotFound, exitNotFound}, {admin.ErrNotOpen, exitNotFound}, {admin.ErrNotPaused, exitNotFound},
		{poison.ErrNotFound, exitNotFound}, {schedule.ErrNotFound, exitNotFound}, {ops.ErrNotFound, exitNotFound},
		{ops.ErrNoMatch, exitNotFound}, {bus.ErrInvalidOption, exitUsage}, {bus.ErrInvalidText, exitUsage},
	} {
		if known.err == nil && err == nil || known.err != nil && errors.Is(err, known.err) {
			return known.code
		}
	}
	if connect.NoTables(err) {
		return exitSchema
	}
	return exitError
}
