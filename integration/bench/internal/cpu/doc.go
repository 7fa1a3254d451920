// Package cpu tells who has used how much processor time: this process, a server, or
// anybody on the machine.
//
// It measures nothing else. Where the system does not tell, which is anywhere but on Linux
// for most of it, it returns 0.
package cpu
