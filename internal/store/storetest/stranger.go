package storetest

import (
	"fmt"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

func strangerCases() []testCase {
	return []testCase{
		{"no messages are no strangers", strangersNone},
		{"unknown consumers are told", strangersConsumer},
		{"unknown payload types of known consumers are told", strangersPayload},
		{"claimed and delayed strangers are told", strangersWaiting},
		{"the list is sorted and at most twenty long", strangersLimit},
	}
}

func (k *kit) strangers(what string, wants []store.Want, want ...store.Stranger) {
	k.Helper()
	got, err := k.store.Strangers(k.ctx, k.db, wants)
	k.must("strangers", err)
	equal(k, "strangers, "+what, got, want)
}

func strangersNone(k *kit) {
	k.strangers("empty tables", nil)
	k.strangers("empty tables and a want", []store.Want{want("c", 1)})
	k.add("c", 3)
	k.add("d", 1)
	k.strangers("only known messages", []store.Want{want("d", 1), want("c", 1)})
}

func strangersConsumer(k *kit) {
	k.add("c", 2)
	k.add("b", 2)
	k.add("d", 1)
	k.strangers("two unknown", []store.Want{want("c", 1)}, store.Stranger{ConsumerType: "b", PayloadType: payload}, store.Stranger{ConsumerType: "d", PayloadType: payload})
	k.strangers("all unknown", nil, store.Stranger{ConsumerType: "b", PayloadType: payload},
		store.Stranger{ConsumerType: "c", PayloadType: payload}, store.Stranger{ConsumerType: "d", PayloadType: payload})
}

func strangersPayload(k *kit) {
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
	k.strangers("known only for another consumer", wants, store.Stranger{ConsumerType: "c", PayloadType: "new"}, store.Stranger{ConsumerType: "c", PayloadType: "old"})
}

func strangersWaiting(k *kit) {
	m := k.message("c")
	m.Delay = lease
	k.insert(m)
	k.take("a", "d", k.add("d", 1)...)
	k.strangers("delayed and claimed", []store.Want{want("e", 1)},
		store.Stranger{ConsumerType: "c", PayloadType: payload}, store.Stranger{ConsumerType: "d", PayloadType: payload})
}

func strangersLimit(k *kit) {
	var all []store.Stranger
	for i := range 25 {
		name := fmt.Sprintf("consumer %02d", 24-i)
		k.insert(k.message(name))
		all = append([]store.Stranger{{ConsumerType: name, PayloadType: payload}}, all...)
	}
	k.strangers("25 unknown", nil, all[:20]...)
}
