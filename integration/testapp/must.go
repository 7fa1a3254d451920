package testapp

import "testing"

// Must makes a function that returns a value, or ends the test with its error.
func Must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// Second is the error of a call that returns something else besides.
func Second[T any](_ T, err error) error { return err }

// Third is the error of a call that returns two things besides.
func Third[T, U any](_ T, _ U, err error) error { return err }

// OK ends the test with the error, if there is one.
func OK(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
