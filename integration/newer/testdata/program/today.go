//go:build !newer

package main

import (
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

const release = "today"

type order struct {
	ID string `json:"id"`
}

type opened struct {
	ID string `json:"id"`
}

func additions(*program) (none added) { return none }

func made(id string) (messages, events []bus.Payload) {
	return []bus.Payload{order{id}}, []bus.Payload{opened{id}}
}

func targets() map[ops.Action]ops.Target { return nil }
