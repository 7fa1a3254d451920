package cron

import mathbits "math/bits"

// bits is a set of the numbers 0 to 63: the values a field matches.
type bits uint64

// only returns the set of n alone, or the empty set if n is negative.
func only(n int) bits {
	if n < 0 {
		return 0
	}
	return 1 << n
}

// between returns the set of lo to hi, for 0 <= lo <= hi+1 <= 63.
func between(lo, hi int) bits {
	return 1<<(hi+1) - 1<<lo
}

func (b bits) has(n int) bool { return b>>n&1 != 0 }

// first returns the least member; the result is undefined for the empty set.
func (b bits) first() int { return mathbits.TrailingZeros64(uint64(b)) }

// from returns the least member that is at least n.
func (b bits) from(n int) (int, bool) {
	rest := b >> n << n
	return rest.first(), rest != 0
}
