// Package cpi2 is the evaluation of CPI² (EuroSys '13) on simulated machines: its
// metric's validity (section 3), its case studies (section 6, played elsewhere), and its
// trials (section 7), with the engine and policies that run on real machines.
//
// What CPI² could not know is known here: who really hurt the victim. The same
// machine is forked, with the same chances to come, and played without the suspect.
//
// docs/EVALUATION.md says how machines are drawn and what is left out.
package cpi2
