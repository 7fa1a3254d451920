package storetest

import (
	"fmt"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

func unregisteredCases() []testCase {
	return []testCase{
		{"no messages, none unregistered", unregisteredNone},
		{"unknown consumers are told", unregisteredConsumer},
		{"unknown payload types of known consumers are told", unregisteredPayload},
		{"claimed and delayed ones are told", unregisteredWaiting},
		{"the list is sorted and at most twenty long", unregisteredLimit},
	}
}

func (k *kit) unregistered(what string, wants []store.Want, want ...store.Unhandled) {
	k.Helper()
	got, err := k.store.Claims.Unhandled(k.ctx, k.db, wants)
	k.must("unregistered", err)
	equal(k, "unregistered, "+what, got, want)
}

func unregisteredNone(k *kit) {
	k.unregistered("empty tables", nil)
	k.unregistered("empty tables and a want", []store.Want{want("c", 1)})
	k.add("c", 3)
	k.add("d", 1)
	k.unregistered("only known messages", []store.Want{want("d", 1), want("c", 1)})
}

func unregisteredConsumer(k *kit) {
	k.add("c", 2)
	k.add("b", 2)
	k.add("d", 1)
	k.unregistered(
		"two unknown", []store.Want{want("c", 1)}, store.Unhandled{ConsumerType: "b", PayloadType: payload},
		store.Unhandled{ConsumerType: "d", PayloadType: payload},
	)
	k.unregistered("all unknown", nil, store.Unhandled{ConsumerType: "b", PayloadType: payload},
		store.Unhandled{ConsumerType: "c", PayloadType: payload}, store.Unhandled{ConsumerType: "d", PayloadType: payload})
}

func unregisteredPayload(k *kit) {
	for _, name := range []string{"old", "new", payload} {
		m := k.message("c")
		m.PayloadType = name
		k.insert(m)
	}
	former := k.message("c")
	former.PayloadType = "older"
	k.insert(former)
	k.add("d", 1)
	wants := append(renamed("c", 1), store.Want{Consumer: "d", Payload: "old"}, want("d", 1))
	k.unregistered(
		"known only for another consumer", wants, store.Unhandled{ConsumerType: "c", PayloadType: "new"},
		store.Unhandled{ConsumerType: "c", PayloadType: "old"},
	)
}

func unregisteredWaiting(k *kit) {
	m := k.message("c")
	m.Delay = lease
	k.insert(m)
	k.take("a", "d", k.add("d", 1)...)
	k.unregistered("delayed and claimed", []store.Want{want("e", 1)},
		store.Unhandled{ConsumerType: "c", PayloadType: payload}, store.Unhandled{ConsumerType: "d", PayloadType: payload})
}

func unregisteredLimit(k *kit) {
	var all []store.Unhandled
	for i := range 25 {
		name := fmt.Sprintf("consumer %02d", 24-i)
		k.insert(k.message(name))
		all = append([]store.Unhandled{{ConsumerType: name, PayloadType: payload}}, all...)
	}
	k.unregistered("25 unknown", nil, all[:20]...)
}
