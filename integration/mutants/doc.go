// Command mutants breaks the library on purpose, one mistake at a time, and checks
// that the tests report it: `make mutants`.
//
// A mutant names a function, a type, a constant or a variable, and what is wrong in it:
//
//	{"lease: a consumer starts after it", in("call.held", returns("true")), tests(...), `got 1 runs`}
//
// It is found wherever in the repository that declaration is, and goes to the compiler in
// place of the file; the source itself stays as it is. Where one guard stands behind
// another it breaks both. Each mutant names the tests that must report it and what they
// print, so that one that only takes the tests' time away is not caught by that. First the
// same tests must pass, and print nothing of the kind, without a mutant.
//
// A mutant that survives is an error. So is one that does not compile, or whose place is
// gone or ambiguous: then the library has changed, and the mutant says nothing any more.
package main
