package record

import (
	"os"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/model"
)

// The document has every fact, with its unit and its meaning.
func TestDocumentNamesTheFacts(t *testing.T) {
	text, err := os.ReadFile("../docs/RECORD.md")
	must(t, err)
	for _, f := range model.FactSpecs {
		if row := "| `" + f.Name + "` | " + f.Unit + " | " + f.Means + " |"; !strings.Contains(string(text), row) {
			t.Errorf("docs/RECORD.md lacks %s", row)
		}
	}
}

// The document has every state of a suspect, a round and a member.
func TestDocumentNamesTheStates(t *testing.T) {
	text, err := os.ReadFile("../docs/RECORD.md")
	must(t, err)
	for of, names := range model.VerdictStates() {
		if row := "| " + of + " | " + strings.Join(names, ", ") + " |"; !strings.Contains(string(text), row) {
			t.Errorf("docs/RECORD.md lacks %s", row)
		}
	}
}
