package report

import "fmt"

// Goal is one thing that a lab asks of its run, in words. Where and Seed may be empty in all of
// a lab's goals.
type Goal struct {
	Where string `json:"where,omitempty"` // the part of the run
	What  string `json:"what"`
	Seed  string `json:"seed,omitempty"` // what the publication has
	Want  string `json:"want"`
	Got   string `json:"got"`
	Met   bool   `json:"met"`
	// Unclear says why this run cannot tell, whether Met or not; "": it can.
	Unclear string `json:"unclear,omitempty"`
}

// Judge turns goals into a verdict. A goal that is clearly missed fails the run; otherwise the
// run cannot tell where a goal is unclear or nothing was asked.
func Judge(goals []Goal) Verdict {
	if len(goals) == 0 {
		return Verdict{Text: "Nothing was played."}
	}
	met, missed, unclear := 0, "", ""
	for _, g := range goals {
		what := g.What
		if g.Where != "" {
			what = g.Where + ": " + what
		}
		switch {
		case g.Unclear != "":
			unclear += fmt.Sprintf(" %s: %s.", what, g.Unclear)
		case g.Met:
			met++
		default:
			missed += fmt.Sprintf(" %s is %s, asked for %s.", what, g.Got, g.Want)
		}
	}
	if met == len(goals) {
		return Verdict{Outcome: Pass, Text: fmt.Sprintf("All %d goals are met.", met)}
	}
	v := Verdict{Outcome: CouldNotTell, Text: fmt.Sprintf("%d of %d goals are met.", met, len(goals))}
	if missed != "" {
		v.Outcome, v.Text = Fail, v.Text+" Missed:"+missed
	}
	if unclear != "" {
		v.Text += " Unclear:" + unclear
	}
	return v
}

// Judged is a result that is judged by its goals.
type Judged struct {
	Goals []Goal `json:"goals"`
}

// Told are the goals, as every lab's result has them.
func (j *Judged) Told() []Goal { return j.Goals }

// Outcome is the verdict in a word.
func (j *Judged) Outcome() Outcome { return Judge(j.Goals).Outcome }

// GoalTable is the table of goals. heads name its columns: those of where and of the
// publication's figure only where the goals have them, and the last one is the outcome's.
func GoalTable(title string, heads []Column, goals []Goal) Table {
	t := Table{Title: title, Columns: heads}
	where, seed := false, false
	for _, g := range goals {
		where, seed = where || g.Where != "", seed || g.Seed != ""
	}
	for _, g := range goals {
		var row []string
		if where {
			row = append(row, g.Where)
		}
		row = append(row, g.What)
		if seed {
			row = append(row, g.Seed)
		}
		t.Rows = append(t.Rows, append(Cells(append(row, g.Want, g.Got)...), g.outcome()))
	}
	return t
}

func (g *Goal) outcome() Cell {
	switch {
	case g.Unclear != "":
		return Cell{Text: g.Unclear}
	case g.Met:
		return Cell{Text: "met", Emphasis: Good}
	}
	return Cell{Text: "not met", Emphasis: Bad}
}
