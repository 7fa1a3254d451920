package dialect

import "time"

// after returns the time that n messages use of the rate.
func (r Rate) after(n int) time.Duration {
	return time.Duration(float64(r.Per) * float64(n) / float64(r.N)) // the product may exceed an integer
}

// In returns how many messages the rate allows in a time, on average.
func (r Rate) In(d time.Duration) int {
	const rounding = 1e-6 // of a message
	return int(float64(d)*float64(r.N)/float64(r.Per) + rounding)
}

// used returns the instant up to which the rate is used, from the stored one. It is no further
// ahead than a whole burst, so that the use by a smaller rate, or by a clock that was ahead, is
// soon over.
func (r Rate) used(now, stored time.Time) time.Time {
	if most := now.Add(r.after(r.Burst)); stored.After(most) {
		return most
	}
	return later(now, stored)
}

// allows returns how many of the wanted messages may start now, when the rate is used up to an
// instant. If that is fewer, it returns how long to wait for the next one. This is the generic cell
// rate algorithm (ITU-T I.371).
func (r Rate) allows(now, usedTo time.Time, wanted int) (n int, wait time.Duration) {
	left := now.Add(r.after(r.Burst)).Sub(r.used(now, usedTo))
	if left > 0 {
		n = r.In(left)
	}
	if n >= wanted {
		return wanted, 0
	}
	return n, max(r.after(n+1)-left, time.Microsecond)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// RateUsed reads a [RateUse] by the name of a rate.
const RateUsed = `SELECT used_to, {now} AS now FROM {rates} WHERE name = ?`

// RatesUsed reads a [RateUse] with its name for each of several rates.
const RatesUsed = `SELECT name, used_to, {now} AS now FROM {rates} WHERE name IN (?)`

// KeyRateUsed is the same for a lane, by the rate's name and the lane.
const KeyRateUsed = `SELECT used_to, {now} AS now FROM {key rates} WHERE name = ? AND lane = ?`

// RateUse is the instant up to which a rate is used, and the current time.
type RateUse struct {
	UsedTo Moment `bun:"used_to"`
	Now    Moment `bun:"now"`
}

// Wait returns how long the rate allows nothing.
func (r Rate) Wait(use RateUse) time.Duration {
	_, wait := r.allows(use.Now.Time, use.UsedTo.Time, 1)
	return wait
}
