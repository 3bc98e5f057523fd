package partition

import (
	"encoding/json"
	"math"
	"strconv"
)

// number is a figure that may be absent: NaN, which JSON has no word for, is null.
type number float64

var nan = number(math.NaN())

// MarshalJSON writes null for what is absent.
func (n number) MarshalJSON() ([]byte, error) {
	if math.IsNaN(float64(n)) || math.IsInf(float64(n), 0) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(n))
}

// text writes a number with so many decimals; what is absent is a word.
func (n number) text(decimals int) string {
	switch {
	case math.IsNaN(float64(n)):
		return "absent"
	case math.IsInf(float64(n), 0):
		return "never"
	}
	return strconv.FormatFloat(float64(n), 'f', decimals, 64)
}
