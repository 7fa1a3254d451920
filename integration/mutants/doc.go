// Command mutants breaks the library on purpose, one mistake at a time, and sees
// that the tests notice: `make mutants`.
//
// A mutant is a change of text in the library's source, or in what that embeds, which
// goes to the compiler through -overlay, also where a test has it build the command; the
// source itself stays as it is. Where one guard stands behind another it changes both. Each
// names the tests that have to notice and what these say of it, so that a mutant
// that does not compile, or takes the tests' time away, is not caught by that.
// First the same tests must pass, and say nothing of the kind, without a mutant.
// One that survives is an error, and so is one whose text is no longer there: then
// the library has changed, and the mutant no longer says anything.
package main
