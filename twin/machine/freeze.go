package machine

// SetFrozen stops a task where it is, as the freezer does, or lets it go on. Requests that
// come meanwhile wait; phases of work go by.
func (m *Machine) SetFrozen(num int, frozen bool) error {
	t, err := m.task(num)
	if err != nil {
		return err
	}
	t.frozen = frozen
	return nil
}

// Frozen reports whether a task is stopped so.
func (m *Machine) Frozen(num int) (bool, error) {
	t, err := m.task(num)
	if err != nil {
		return false, err
	}
	return t.frozen, nil
}

// hold lets a step pass in which nobody serves: what was begun ends so much later.
func (q *queue) hold(now, dt int64) {
	q.own = 0
	for i := range q.free {
		if q.free[i] > float64(now) {
			q.free[i] += float64(dt)
		}
	}
}
