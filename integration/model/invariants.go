package model

import (
	"errors"
	"fmt"
	"slices"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// Check reports every invariant that a step broke, from what was visible before
// and after it. I7 and O4, which are about what will happen, and O6, which is about what has, are
// the history's, and so is what O5 says of slots.
func Check(before, after View, step Step) error {
	return errors.Join(
		produced(before, after, step), left(before, after, step), heldOnce(after), fenced(before, after, step),
		changed(before, after, step), effects(before, after, step), flow(before, after, step))
}

// fenced checks I6: a transactional consumer runs only under a claim that holds
// its message.
func fenced(before, after View, step Step) error {
	ran := step.Kind == "fence" || step.Kind == "transact" && after.Effects[step.Key] > before.Effects[step.Key]
	if ran && !before.heldBy(step.Owner, step.Key) {
		return fmt.Errorf("I6: %v runs in a transaction of %s, who does not hold it", step.Key, step.Owner)
	}
	return nil
}

// produced checks I1: rows appear only by a produce that commits, and then one for
// every consumer that has no such insert id pending; or they were poisoned, and are requeued.
func produced(before, after View, step Step) (err error) {
	for key := range after.Rows {
		_, old := before.Rows[key]
		_, wasPoisoned := before.Poisoned[key]
		requeued := step.Kind == "requeue" && key == step.Key && wasPoisoned
		if !old && !requeued &&
			(step.Kind != "produce" || step.Produce.RolledBack ||
				!slices.ContainsFunc(step.Produce.parts(), func(p Produce) bool { return p.Message == key.Message })) {
			err = errors.Join(err, fmt.Errorf("I1: %v appeared by a %s", key, step.Kind))
		}
	}
	for n, c := range after.Claims { // by a hand-off
		if _, old := before.Claims[n]; old || step.Kind != "produce" {
			continue
		}
		for _, key := range c.Held {
			if _, ok := after.Rows[key]; !ok || step.Produce.RolledBack || c.Owner != step.Produce.HandOff {
				err = errors.Join(err, fmt.Errorf("I1: %v is in claim %d of %q by a produce that is rolled back: %t", key, n, c.Owner, step.Produce.RolledBack))
			}
		}
	}
	if step.Kind != "produce" || step.Produce.RolledBack {
		return err
	}
	for _, p := range step.Produce.parts() {
		for _, consumer := range p.Consumers {
			key := Key{p.Message, consumer}
			if _, ok := after.Rows[key]; !ok && !before.pending(p.InsertID, consumer) {
				err = errors.Join(err, fmt.Errorf("I1: the produce wrote nothing for %v", key))
			}
		}
	}
	return err
}

// left checks I2 and I4: a row leaves by a result under a claim of the owner that
// held it until then, by a consumer's transaction, or by a recovery that poisons it.
func left(before, after View, step Step) (err error) {
	for key, row := range before.Rows {
		if _, ok := after.Rows[key]; ok {
			continue
		}
		poisoned, isPoisoned := after.Poisoned[key]
		held := before.heldBy(step.Owner, key)
		switch step.Kind {
		case "settle", "finish":
			if !held {
				err = errors.Join(err, fmt.Errorf("I4: %v left by a %s of %s, who does not hold it", key, step.Kind, step.Owner))
			}
			if r, ok := step.result(before, key); step.Kind == "settle" &&
				(!ok || isPoisoned != (r.Outcome == store.Poison) || !isPoisoned && r.Outcome != store.Done) {
				err = errors.Join(err, fmt.Errorf("I2: %v left by the result %+v, poisoned: %t", key, r, isPoisoned))
			}
		case "transact", "commit":
			// Between fence and commit the claim may go; the row is locked.
			if key != step.Key || !held && step.Kind == "transact" || isPoisoned || after.Effects[key] != before.Effects[key]+1 {
				err = errors.Join(err, fmt.Errorf("I2: %v left by the transaction of %v", key, step.Key))
			}
		case "recover":
			if !isPoisoned || poisoned.Crashes < MaxCrashes || !soloHolder(before, key) || row.Crashes+1 != poisoned.Crashes ||
				row.Attempts != poisoned.Attempts {
				err = errors.Join(err, fmt.Errorf("I2: %v left by a recovery with %+v, poisoned: %t, %+v", key, row, isPoisoned, poisoned))
			}
		default:
			err = errors.Join(err, fmt.Errorf("I2: %v left by a %s", key, step.Kind))
		}
	}
	for key := range after.Poisoned {
		_, waits := after.Rows[key]
		_, old := before.Poisoned[key]
		_, waited := before.Rows[key]
		if waits || !old && !waited {
			err = errors.Join(err, fmt.Errorf("I2: %v is poisoned, and waits: %t, waited: %t", key, waits, waited))
		}
	}
	for key := range before.Poisoned {
		_, still := after.Poisoned[key]
		if _, waits := after.Rows[key]; !still && (key != step.Key || waits != (step.Kind == "requeue")) {
			err = errors.Join(err, fmt.Errorf("I2: %v is not poisoned any more by a %s of %v, and waits: %t", key, step.Kind, step.Key, waits))
		}
	}
	return err
}

func soloHolder(v View, key Key) bool {
	c, held := v.claimOf(key)
	return held && c.Solo
}

// result returns the step's result for a key under the claim that holds it. A
// stale one of an earlier claim may be there as well.
func (s Step) result(before View, key Key) (Result, bool) {
	for _, r := range s.Results {
		if c := before.Claims[r.Claim]; r.Key == key && c.Owner == s.Owner && slices.Contains(c.Held, key) {
			return r, true
		}
	}
	return Result{}, false
}

// heldOnce checks I3, and that a claim that holds nothing is no claim.
func heldOnce(v View) (err error) {
	by := make(map[Key]int)
	for n, c := range v.Claims {
		if len(c.Held) == 0 {
			err = errors.Join(err, fmt.Errorf("I3: claim %d holds nothing", n))
		}
		for _, key := range c.Held {
			if other, twice := by[key]; twice {
				err = errors.Join(err, fmt.Errorf("I3: %v is in the claims %d and %d", key, other, n))
			}
			by[key] = n
		}
	}
	return err
}

// changed checks I4 and I5: attempts rise only by a failure under a live claim,
// crashes only by a recovery that ends the claim, by one each, and a release
// changes nothing.
func changed(before, after View, step Step) (err error) {
	for key, was := range before.Rows {
		is, ok := after.Rows[key]
		if !ok || is == was {
			if ok && step.Kind == "recover" && charged(before, after, key) && was.Crashes < MaxCrashes-1 && !step.Locked[key] {
				err = errors.Join(err, fmt.Errorf("crashes: %v lost its owner, and stays at %d", key, was.Crashes))
			}
			continue
		}
		r, named := step.result(before, key)
		held := before.heldBy(step.Owner, key)
		switch {
		case step.Locked[key]:
			err = errors.Join(err, fmt.Errorf("I4: %v changed by a %s although somebody has locked it", key, step.Kind))
		case step.Kind == "recover":
			want := was
			want.Crashes++
			if is != want || is.Crashes >= MaxCrashes || !charged(before, after, key) {
				err = errors.Join(err, fmt.Errorf("crashes: %v became %+v, it was %+v", key, is, was))
			}
		case step.Kind != "settle" || !named || !held:
			err = errors.Join(err, fmt.Errorf("I4: %v changed by a %s of %s, who does not hold it", key, step.Kind, step.Owner))
		case r.Outcome != store.Failed && r.Outcome != store.Snoozed:
			err = errors.Join(err, fmt.Errorf("I5: %v changed by %s from %+v to %+v", key, r.Outcome, was, is))
		case is.Crashes != 0 || r.Outcome == store.Failed && is.Attempts != was.Attempts+1 || r.Outcome == store.Snoozed &&
			is.Attempts != was.Attempts:
			err = errors.Join(err, fmt.Errorf("attempts: %v became %+v by %s, it was %+v", key, is, r.Outcome, was))
		}
	}
	return err
}

// freed tells whether a key lost its claim in a step.
func freed(before, after View, key Key) bool {
	_, held := before.claimOf(key)
	_, still := after.claimOf(key)
	return held && !still
}

// charged tells whether a key lost its claim in a step, and may have begun.
func charged(before, after View, key Key) bool {
	c, _ := before.claimOf(key)
	return freed(before, after, key) && before.begun(c, key)
}

// effects checks I6: an effect happens in the step in which its message leaves,
// and once.
func effects(before, after View, step Step) (err error) {
	for key, n := range after.Effects {
		_, waits := after.Rows[key]
		_, poisoned := after.Poisoned[key]
		_, waited := before.Rows[key]
		if n != 1 || waits || poisoned || before.Effects[key] == 0 && (!waited || step.Kind != "transact" && step.Kind != "commit") {
			err = errors.Join(err, fmt.Errorf("I6: %v has %d effects, waits: %t, poisoned: %t, by a %s", key, n, waits, poisoned, step.Kind))
		}
	}
	return err
}
