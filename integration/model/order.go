package model

import (
	"errors"
	"fmt"
	"slices"
)

// flow checks what concerns keys: O1 to O3, and of O5 what concerns them. The order of a lane is
// that of the produces, whatever ranks a system gives.
func flow(before, after View, step Step) (err error) {
	seen := before
	if step.Seen != nil {
		seen = *step.Seen
	}
	for n, c := range after.Claims {
		if _, old := before.Claims[n]; old {
			continue
		}
		for i, orderKey := range c.Lanes {
			err = errors.Join(err, claimed(seen, n, c, c.Held[i], lane{c.Held[i].Consumer, orderKey}))
		}
	}
	return errors.Join(err, heldLanes(after))
}

// claimed checks of one message of a new claim that it is the first of its lane, or behind it in
// the same claim (O1), and that its lane was not parked (O3).
func claimed(seen View, n int, c Claim, key Key, of lane) (err error) {
	if seen.parked(of) {
		err = fmt.Errorf("O3: claim %d holds %v of %v, which is parked", n, key, of)
	}
	if rulesOf(of.consumer).PerKey > 0 {
		return err
	}
	for other, row := range seen.Rows {
		if other.Consumer == of.consumer && row.OrderKey == of.orderKey && other.Message < key.Message && !slices.Contains(c.Held, other) {
			err = errors.Join(err, fmt.Errorf("O1: claim %d holds %v of %v, and not %v, which is before it", n, key, of, other))
		}
	}
	return err
}

// heldLanes checks that a lane in order is in one claim only (O2), and of others no more is held
// than may be (O5).
func heldLanes(v View) (err error) {
	by := make(map[lane]int)
	for n, c := range v.Claims {
		for i, orderKey := range c.Lanes {
			of := lane{c.Held[i].Consumer, orderKey}
			other, twice := by[of]
			if by[of] = n; twice && other != n && rulesOf(of.consumer).PerKey == 0 {
				err = errors.Join(err, fmt.Errorf("O2: %v is in the claims %d and %d", of, other, n))
			}
		}
	}
	for of, n := range v.heldOf() {
		if most := rulesOf(of.consumer).PerKey; most > 0 && n > most {
			err = errors.Join(err, fmt.Errorf("O5: of %v %d are held", of, n))
		}
	}
	return err
}
