// Package opsaccess hands unexported functions of package ops to package operator. It cannot import
// package ops, so its types have those of package ops as parameters.
package opsaccess
