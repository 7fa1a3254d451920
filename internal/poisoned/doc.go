// Package poisoned adds to poison.Store what package ops, the console and the command do with
// poisoned messages. Its errors have the prefix of package poison.
package poisoned
