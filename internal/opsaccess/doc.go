// Package opsaccess is what package ops gives package operator. It cannot import package ops, so its
// type has those of package ops as parameters.
package opsaccess
