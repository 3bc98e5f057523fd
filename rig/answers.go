package rig

// fixedAnswers are what the emulator reports for the last RMIDs of its geometry, whatever
// they run: tests of the drivers take monitoring groups until they hold these.
var fixedAnswers = map[int]Answer{
	57: {CPIMilli: 3000, MPKI: 20},
	58: {CPIMilli: 800, MPKI: 2},
	59: {RateBytes: 2e9},
	60: {Flags: AnswerUnavailable},
	61: {Flags: AnswerError},
	62: {OccupancyBytes: 3 << 20},
}

// tenants are the tasks of first light in the guest, whose test makes their monitoring
// groups in this order on a fresh mount: RMID 0 is the root group's.
var tenants = []Tenant{
	{RMID: 1, CPI: 1.0, MPKI: 2, Sensitivity: 1.0, Appetite: 0.05, Spread: 0.04}, // a service's task beside the antagonist
	{RMID: 2, CPI: 1.0, MPKI: 2, Sensitivity: 1.0, Appetite: 0.05, Spread: 0.04}, // another one, on the other socket
	{RMID: 3, CPI: 1.8, MPKI: 25, Sensitivity: 0.1, Appetite: 2.0, Spread: 0.04}, // the antagonist
	{RMID: 4, CPI: 0.8, MPKI: 1, Sensitivity: 0.1, Appetite: 0.02, Spread: 0.04}, // a bystander
}
