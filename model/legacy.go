package model

import "encoding/json"

// UnmarshalJSON reads a claim of any version. Before records of version 3 what a claim asks
// for stood in fields of its own, and the hard cap of CPI² had no name.
func (c *Claim) UnmarshalJSON(b []byte) error {
	type plain Claim
	in := struct {
		*plain
		Value     *Setting `json:"value"`
		QuotaUsec int64    `json:"quota_usec"`
		BurstUsec int64    `json:"burst_usec"`
		CPUs      CPUSet   `json:"cpus"`
	}{plain: (*plain)(c)}
	if err := json.Unmarshal(b, &in); err != nil {
		return err
	}
	switch {
	case in.Value != nil:
		c.Value = *in.Value
		return nil
	case c.Kind == ClaimPlace:
		c.Value = Place(in.CPUs)
	default:
		c.Value = Bandwidth(CPUMax{QuotaUsec: in.QuotaUsec, BurstUsec: in.BurstUsec})
	}
	if c.Owner == OwnerPolicy && c.Policy == "" {
		c.Policy = PolicyHardcap
	}
	return nil
}
