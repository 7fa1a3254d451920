// Package hook holds the functions that package bus provides to package access. It exists because
// package bus cannot import a package that imports it.
package hook
