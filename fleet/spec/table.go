package spec

import "slices"

// Table is rows of numbers most of which are small or 0. Each row has as many bits a number as its greatest needs: none, 4, 8, 16 or 32. What is beyond its rows
// and columns is 0.
type Table struct {
	Data       []byte // the bits a number of each row, and then the rows, each from a new byte on
	Rows, Cols uint32
}

// at is the number in a row and column.
func (t *Table) at(row, col int) uint32 {
	if row >= int(t.Rows) || col >= int(t.Cols) {
		return 0
	}
	data, bits := t.row(row)
	return number(data, bits, col)
}

// zero: nothing but zeros was put in a row.
func (t *Table) zero(row int) bool { return row >= int(t.Rows) || t.Data[row] == 0 }

// row is where a row lies, and how many bits a number has in it.
func (t *Table) row(row int) (data []byte, bits uint8) {
	from := int(t.Rows)
	for _, bits := range t.Data[:row] {
		from += width(bits, int(t.Cols))
	}
	bits = t.Data[row]
	return t.Data[from : from+width(bits, int(t.Cols))], bits
}

func width(bits uint8, cols int) int { return (int(bits)*cols + 7) / 8 }

// number is one of a row.
func number(data []byte, bits uint8, col int) (v uint32) {
	switch bits {
	case 0:
	case 4:
		v = uint32(data[col/2]>>(col%2*4)) & 15
	default:
		size := int(bits) / 8
		for i := range size {
			v |= uint32(data[col*size+i]) << (8 * i)
		}
	}
	return v
}

// put replaces one that its row has bits enough for.
func put(data []byte, bits uint8, col int, v uint32) {
	switch bits {
	case 0:
	case 4:
		shift := col % 2 * 4
		data[col/2] = data[col/2]&^(15<<shift) | byte(v)<<shift
	default:
		size := int(bits) / 8
		for i := range size {
			data[col*size+i] = byte(v >> (8 * i)) //nolint:gosec // a byte of it
		}
	}
}

// needs is how many bits a row of this number has.
func needs(v uint32) uint8 {
	switch {
	case v == 0:
		return 0
	case v < 1<<4:
		return 4
	case v < 1<<8:
		return 8
	case v < 1<<16:
		return 16
	}
	return 32
}

// set replaces a number; where there is no room for it, the table gets so many rows and columns at least.
func (t *Table) set(row, col int, v uint32, rows, cols int) {
	if row < int(t.Rows) && col < int(t.Cols) {
		if data, bits := t.row(row); bits >= needs(v) {
			put(data, bits, col, v)
			return
		}
	} else if v == 0 {
		return
	}
	list := t.unpack(max(rows, row+1), max(cols, col+1))
	list[row][col] = v
	t.pack(list)
}

// unpack returns all numbers, by rows, of so many rows and columns at least.
func (t *Table) unpack(rows, cols int) [][]uint32 {
	rows, cols = max(rows, int(t.Rows)), max(cols, int(t.Cols))
	list, all := make([][]uint32, rows), make([]uint32, rows*cols)
	for r := range list {
		list[r], all = all[:cols:cols], all[cols:]
		if r < int(t.Rows) {
			data, bits := t.row(r)
			for c := range int(t.Cols) {
				list[r][c] = number(data, bits, c)
			}
		}
	}
	return list
}

// pack makes it of these rows, which are of one length. Of nothing but zeros nothing is left.
func (t *Table) pack(list [][]uint32) {
	size, bits := len(list), make([]uint8, len(list))
	for r, row := range list {
		bits[r] = needs(slices.Max(append(row, 0)))
		size += width(bits[r], len(row))
	}
	if size == len(list) {
		*t = Table{}
		return
	}
	*t = Table{make([]byte, size), uint32(len(list)), uint32(len(list[0]))} //nolint:gosec // few
	copy(t.Data, bits)
	for r, row := range list {
		data, bits := t.row(r)
		for c, v := range row {
			put(data, bits, c, v)
		}
	}
}

// insertColumn makes room for a column of zeros.
func (t *Table) insertColumn(col int) {
	if col < int(t.Cols) {
		t.columns(col, col, col+1)
	}
}

// deleteColumn takes one away.
func (t *Table) deleteColumn(col int) {
	if col < int(t.Cols) {
		t.columns(col, col+1, col)
	}
}

// columns keeps those before one, and has those from another one on begin elsewhere.
func (t *Table) columns(before, from, to int) {
	cols := int(t.Cols) + to - from
	size := int(t.Rows)
	for _, bits := range t.Data[:t.Rows] {
		size += width(bits, cols)
	}
	is := Table{make([]byte, size), t.Rows, uint32(cols)} //nolint:gosec // one more or less
	copy(is.Data, t.Data[:t.Rows])
	old, data := t.Data[t.Rows:], is.Data[t.Rows:]
	for _, bits := range t.Data[:t.Rows] {
		for c := range before {
			put(data, bits, c, number(old, bits, c))
		}
		for c := to; c < cols; c++ {
			put(data, bits, c, number(old, bits, c-to+from))
		}
		old, data = old[width(bits, int(t.Cols)):], data[width(bits, cols):]
	}
	*t = is
}

// insertRow makes room for a row of zeros.
func (t *Table) insertRow(row int) {
	if row < int(t.Rows) {
		t.pack(slices.Insert(t.unpack(0, 0), row, make([]uint32, t.Cols)))
	}
}
