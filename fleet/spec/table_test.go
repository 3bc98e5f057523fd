package spec

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// A table has what a plain one has, whatever is put in and however it grows and shrinks, and no more bits than its numbers need once it is packed.
func TestTableIsAPlainOne(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 5))
		var table Table
		rows, cols := 1+rng.IntN(5), 1+rng.IntN(40)
		plain := make([][]uint32, rows)
		for r := range plain {
			plain[r] = make([]uint32, cols)
		}
		for step := range 200 {
			row, col := rng.IntN(rows), rng.IntN(cols)
			switch kind := rng.IntN(20); {
			case kind == 0 && cols < 50:
				table.insertColumn(col)
				for r := range plain {
					plain[r] = slices.Insert(plain[r], col, 0)
				}
				cols++
			case kind == 1 && cols > 1:
				table.deleteColumn(col)
				for r := range plain {
					plain[r] = slices.Delete(plain[r], col, col+1)
				}
				cols--
			case kind == 2 && rows < 9:
				table.insertRow(row)
				plain = slices.Insert(plain, row, make([]uint32, cols))
				rows++
			default:
				v := rng.Uint32() >> [...]int{32, 29, 28, 27, 24, 23, 16, 15, 0}[rng.IntN(9)]
				table.set(row, col, v, rows, cols)
				plain[row][col] = v
			}
			for r := range plain {
				for c, want := range plain[r] {
					if got := table.at(r, c); got != want || want > 0 && table.zero(r) {
						t.Fatalf("seed %d, step %d: %d in row %d, column %d, want %d; all zeros: %v", seed, step, got, r, c, want, table.zero(r))
					}
				}
			}
		}
		if table.at(rows, 0) != 0 || table.at(0, cols) != 0 || !table.zero(rows) {
			t.Fatalf("seed %d: there is something beyond it", seed)
		}
		clear(plain[0])
		for c := range cols {
			table.set(0, c, 0, rows, cols)
		}
		table.pack(table.unpack(rows, cols))
		want := rows
		for _, row := range plain {
			most := slices.Max(row)
			bits := 0
			for _, is := range []int{4, 8, 16, 32} {
				if bits == 0 && most > 0 && uint64(most) < 1<<is {
					bits = is
				}
			}
			want += (bits*cols + 7) / 8
		}
		if len(table.Data) != want && want > rows || want == rows && len(table.Data) > 0 {
			t.Fatalf("seed %d: %d bytes, want %d", seed, len(table.Data), want)
		}
	}
}
