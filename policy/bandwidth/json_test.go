package bandwidth_test

import (
	"encoding/json"

	"github.com/commensal-io/commensal/policy/bandwidth"
)

func jsonOf(s *bandwidth.State) ([]byte, error) { return json.Marshal(s) }
