package linux

import (
	"slices"
	"testing"

	"github.com/commensal-io/commensal/model"
)

// Where there is room for some: services with a target, then batch work by its CPU time, where who has a group counts twice, then the rest.
func TestWhoIsCounted(t *testing.T) {
	wish := func(num model.TaskNum, rank countRank, cpu float64) countWish {
		return countWish{task: model.Task{Num: num, Path: "/" + string(rune('a'+num))}, rank: rank, cpu: cpu}
	}
	for _, tt := range []struct {
		has  string
		room int
		want []model.TaskNum
	}{
		{"", 5, []model.TaskNum{4, 3, 2, 5, 1}},
		{"", 2, []model.TaskNum{4, 3}},
		{"/c", 2, []model.TaskNum{4, 2}}, // of about the same size as who has none
		{"/f", 2, []model.TaskNum{4, 3}}, // much smaller
		{"", 0, nil},
		{"/b", -3, nil},
	} {
		all := []countWish{wish(1, rankOther, 8), wish(2, rankBE, 1), wish(3, rankBE, 1.5), wish(4, rankTarget, 0.1), wish(5, rankBE, 0.2)}
		var got []model.TaskNum
		for _, c := range chooseCounted(all, func(path string) bool { return path == tt.has }, tt.room) {
			got = append(got, c.task.Num)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%q has one, room for %d: %v, expected %v", tt.has, tt.room, got, tt.want)
		}
	}
}
