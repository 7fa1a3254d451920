package storetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

func groupCases() []testCase {
	return []testCase{
		{"a group is done when no message of it is pending", groupDone},
		{"a name waits once at a time", groupOnce},
		{"what waits is inserted as it was given", groupInserts},
		{"a poisoned member keeps a group from its end", groupPoisoned},
		{"a poisoned member ends a group that has messages for that", groupIfPoisoned},
		{"the group stays with messages that crash and are requeued", groupKept},
		{"a member that is being inserted delays the end", groupShared},
		{"two that end a group insert its messages once", groupAtOnce},
		{"a group that is ending is left alone", groupEnding},
		{"groups are looked at in parts", groupParts},
		{"a group of a newer version is left to its processes", groupNewer},
	}
}

// member makes a message of a group.
func (k *kit) member(consumer, group string) store.NewMessage {
	m := k.message(consumer)
	m.GroupKey = group
	return m
}

func (k *kit) wait(g store.MessageGroup) bool {
	k.Helper()
	var stored bool
	k.must("wait", k.inTx(func(ctx context.Context, tx bun.Tx) (err error) {
		stored, err = k.store.Groups.Wait(k.ctx, tx, g)
		return err
	}))
	return stored
}

// waits stores a group whose end is a message of consumer "end".
func (k *kit) waits(name string) {
	k.Helper()
	equal(k, "group "+name+" waits", k.wait(store.MessageGroup{Name: name, Messages: []store.NewMessage{k.message("end")}}), true)
}

func (k *kit) fire(name string) bool {
	k.Helper()
	var fired bool
	k.must("fire", k.inTx(func(ctx context.Context, tx bun.Tx) (err error) {
		_, fired, err = k.store.Groups.Fire(k.ctx, tx, name)
		return err
	}))
	return fired
}

// done checks which groups are done, in both ways to look.
func (k *kit) done(what string, among []string, want ...string) {
	k.Helper()
	got, err := k.store.Groups.DoneAmong(k.ctx, k.db, among)
	k.must("done among", err)
	equal(k, what, got, want)
	got, next, err := k.store.Groups.DoneBehind(k.ctx, k.db, "")
	k.must("done behind", err)
	equal(k, what+", of all", got, want)
	equal(k, "the next part", next, "")
}

// consumers counts the pending messages of each consumer.
func (k *kit) consumers() map[string]int {
	k.Helper()
	n := make(map[string]int)
	for _, m := range k.messages() {
		n[m.Consumer]++
	}
	return n
}

func groupDone(k *kit) {
	k.insert(k.member("c", "g"), k.member("c", "g"), k.member("c", "h"), k.message("c"))
	k.waits("g")
	k.done("with members", []string{"g", "h"})
	equal(k, "fired with members", k.fire("g"), false)
	c := k.claim(request("a", want("c", 9)))
	equal(k, "the group of a claimed message", c.Messages[0].GroupKey, "g")
	equal(k, "the group of one without", c.Messages[3].GroupKey, "")
	k.settle("a", results(c, store.Done, c.Messages[0].ID)...)
	k.done("with one member", []string{"g", "h"})
	k.settle("a", results(c, store.Done, c.Messages[1].ID)...)
	k.done("without members", []string{"g", "h"}, "g")
	equal(k, "fired", k.fire("g"), true)
	equal(k, "fired again", k.fire("g"), false)
	equal(k, "pending", k.consumers(), map[string]int{"c": 2, "end": 1})
	k.done("after the end", []string{"g", "h"})
}

func groupOnce(k *kit) {
	k.waits("g")
	equal(k, "a second group of that name", k.wait(store.MessageGroup{Name: "g", Messages: []store.NewMessage{k.message("other")}}), false)
	k.waits("G")
	equal(k, "fired", k.fire("g"), true)
	equal(k, "pending", k.consumers(), map[string]int{"end": 1})
	k.waits("g")
}

func groupInserts(k *kit) {
	one, two, late := k.message("one"), k.message("two"), k.message("late")
	two.MessageID, two.Payload = one.MessageID, `{"text":"a\"b\\c <ü> '?"}`
	one.Payload, one.Headers, one.InsertID = two.Payload, `{"a":"b"}`, "id"
	late.Delay = time.Minute
	k.wait(store.MessageGroup{Name: "g", Messages: []store.NewMessage{one, two, late}})
	k.pass(time.Hour)
	equal(k, "fired", k.fire("g"), true)
	rows := make(map[string]row)
	for _, m := range k.messages() {
		rows[m.Consumer] = m
	}
	for _, want := range []store.NewMessage{one, two, late} {
		got := rows[want.ConsumerType]
		orNull := func(text string) string { return cmp.Or(text, "<null>") }
		equal(k, want.ConsumerType, []string{got.Payload, got.Headers, got.InsertID},
			[]string{want.Payload, orNull(want.Headers), orNull(want.InsertID)})
	}
	equal(k, "due", []string{rows["one"].Available, rows["late"].Available}, []string{k.now(), k.in(time.Minute)})
}

// poison settles all messages of a consumer so.
func (k *kit) poison(consumer string) {
	k.Helper()
	c := k.claim(request("a", want(consumer, 9)))
	k.settle("a", results(c, store.Poison, idsOf(c)...)...)
}

func (k *kit) requeue() {
	k.Helper()
	k.must("requeue", k.inTx(func(_ context.Context, tx bun.Tx) error {
		rows, err := k.store.Poison.Lock(k.ctx, tx, store.PoisonFilter{}, 9)
		if err == nil {
			_, err = k.store.Poison.Requeue(k.ctx, tx, rows, store.Requeuing{})
		}
		return err
	}))
}

func groupPoisoned(k *kit) {
	k.insert(k.member("c", "g"))
	k.waits("g")
	k.poison("c")
	k.done("poisoned", []string{"g"})
	equal(k, "fired while poisoned", k.fire("g"), false)
	k.requeue()
	k.done("requeued", []string{"g"})
	k.poison("c")
	ids, err := k.store.Poison.IDs(k.ctx, k.db, store.PoisonFilter{}, 9)
	k.must("ids", err)
	if _, err := k.store.Poison.Delete(k.ctx, k.db, ids); err != nil {
		k.Fatalf("discard: %v", err)
	}
	k.done("discarded", []string{"g"}, "g")
	equal(k, "fired", k.fire("g"), true)
}

func groupIfPoisoned(k *kit) {
	k.insert(k.member("c", "g"), k.member("d", "g"))
	k.wait(store.MessageGroup{Name: "g", Messages: []store.NewMessage{k.message("end")}, Poisoned: []store.NewMessage{k.message("hurt")}})
	k.poison("c")
	k.done("with a pending member", []string{"g"})
	equal(k, "fired with a pending member", k.fire("g"), false)
	c := k.claim(request("a", want("d", 9)))
	k.settle("a", results(c, store.Done, idsOf(c)...)...)
	k.done("with a poisoned one", []string{"g"}, "g")
	equal(k, "fired", k.fire("g"), true)
	equal(k, "pending", k.consumers(), map[string]int{"hurt": 1})
}

func groupKept(k *kit) {
	k.insert(k.member("c", "g"))
	k.waits("g")
	k.crash("c", 2)
	r := crashed("vanishing", store.Killers, 9, want("c", 9))
	r.Solo = true
	k.claim(r)
	k.pass(lease + time.Second)
	equal(k, "recovered", k.recover(3), store.Recovered{Claims: 1, Crashed: 1, Poisoned: 1})
	k.done("poisoned by crashes", []string{"g"})
	k.requeue()
	k.done("requeued", []string{"g"})
	poisoned := k.claim(request("a", want("c", 9)))
	equal(k, "group of the requeued message", poisoned.Messages[0].GroupKey, "g")
}

func groupShared(k *kit) {
	if !k.store.RowLocks() {
		return // who inserts keeps others from writing
	}
	k.waits("g")
	k.must("insert", k.inTx(func(_ context.Context, tx bun.Tx) error {
		if _, err := k.store.Outbox.Insert(k.ctx, tx, []store.NewMessage{k.member("c", "g")}); err != nil {
			return err
		}
		k.done("before the member is committed", []string{"g"}, "g")
		equal(k, "fired before the member is committed", k.fire("g"), false)
		return nil
	}))
	equal(k, "fired with the member", k.fire("g"), false)
	equal(k, "pending", k.consumers(), map[string]int{"c": 1})
}

func groupAtOnce(k *kit) {
	const groups = 5
	for i := range groups {
		k.waits(fmt.Sprint(i))
	}
	errs := together(4, func(int) error {
		for i := range groups {
			err := k.inTx(func(_ context.Context, tx bun.Tx) error {
				_, _, err := k.store.Groups.Fire(k.ctx, tx, fmt.Sprint(i))
				return err
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	equal(k, "errors", len(errs), 0)
	equal(k, "pending", k.consumers(), map[string]int{"end": groups})
}

func groupEnding(k *kit) {
	if !k.store.RowLocks() {
		return // it would wait for the other transaction
	}
	k.waits("g")
	k.must("fire", k.inTx(func(_ context.Context, tx bun.Tx) error {
		_, fired, err := k.store.Groups.Fire(k.ctx, tx, "g")
		equal(k, "fired", fired, true)
		if err != nil {
			return err
		}
		soon, cancel := context.WithTimeout(k.ctx, 10*time.Second)
		defer cancel()
		err = k.db.RunInTx(soon, readCommitted(k), func(_ context.Context, tx bun.Tx) error {
			_, fired, err := k.store.Groups.Fire(soon, tx, "g")
			equal(k, "fired by another", fired, false)
			return err
		})
		if err != nil {
			k.Errorf("a second end: got %v, want it to leave the group alone", err)
		}
		return nil
	}))
	equal(k, "pending", k.consumers(), map[string]int{"end": 1})
}

func groupParts(k *kit) {
	const groups, part = 501, 500
	k.insert(k.member("c", "0000"))
	for i := range groups {
		k.waits(fmt.Sprintf("%04d", i))
	}
	done, next, err := k.store.Groups.DoneBehind(k.ctx, k.db, "")
	k.must("the first part", err)
	equal(k, "the first part", []any{len(done), done[0], next}, []any{part - 1, "0001", "0499"})
	done, next, err = k.store.Groups.DoneBehind(k.ctx, k.db, next)
	k.must("the second part", err)
	equal(k, "the second part", []any{done, next}, []any{[]string{"0500"}, ""})
}

// groupNewer: to insert messages without what this version does not know would lose that.
func groupNewer(k *kit) {
	k.waits("g")
	rewrite := func(from, to string) {
		k.Helper()
		k.exec("UPDATE ? SET messages = REPLACE(messages, '"+from+"', '"+to+"')", k.table("message_groups"))
	}
	rewrite(`"consumer":`, `"added":{"n":1},"consumer":`)
	err := k.inTx(func(_ context.Context, tx bun.Tx) error {
		_, _, err := k.store.Groups.Fire(k.ctx, tx, "g")
		return err
	})
	if !errors.Is(err, store.ErrNewer) {
		k.Errorf("fire what has an unknown field: got %v, want %v", err, store.ErrNewer)
	}
	equal(k, "pending", k.consumers(), map[string]int{})
	k.done("it waits for a newer process", []string{"g"}, "g")
	rewrite(`"added":{"n":1},`, ``)
	equal(k, "fired", k.fire("g"), true)
	equal(k, "pending at the end", k.consumers(), map[string]int{"end": 1})
}
