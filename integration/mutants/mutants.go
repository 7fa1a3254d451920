//go:build unix

package main

import "slices"

// mutants returns all there are, in no particular order.
func mutants() []mutant {
	return slices.Concat(
		claimMutants(), suspectMutants(), settleMutants(), transactionMutants(), consumeMutants(),
		orderMutants(), keyMutants(), flowMutants(), groupMutants(),
		mariaClaimMutants(), mariaSettleMutants(), sqliteMutants(),
		logMutants(), scheduleMutants(),
		publishMutants(), receiveMutants(), moveMutants(), logRelayMutants(),
		permissionMutants(), planMutants(), stepMutants(), adminMutants(),
		doorMutants(), changeMutants(), originMutants(), markupMutants(), contentMutants(), boundMutants(),
		handleMutants(), handOffMutants(), schemaMutants(), durableMutants(),
	)
}
