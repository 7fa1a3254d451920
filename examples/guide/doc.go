// Package guide is a small mail-order shop, from whose code the guides in docs/
// are cut. It is compiled and tested, so what they show works. Read the guides;
// the other examples are whole programs.
package guide
