// Package arch holds no code, only the tests that keep the repository in shape: who imports whom, where
// SQL may stand, how long files and functions get, what package state is tolerated. A rule is changed
// here, in the open, or not at all.
//
// It may import only the standard library.
package arch
