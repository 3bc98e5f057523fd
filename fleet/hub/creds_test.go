package hub

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
)

// issuer is an operator of NATS with an account for the fleet, who gives out credentials files.
type issuer struct {
	t       *testing.T
	dir     string
	account nkeys.KeyPair
}

func public(t *testing.T, key nkeys.KeyPair) string {
	t.Helper()
	name, err := key.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// must is for what fails only where a key cannot be drawn or a claim cannot be encoded.
func must[T any](t *testing.T) func(T, error) T {
	t.Helper()
	return func(x T, err error) T {
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
}

// credentials writes the file of a user who may do what they list; nil: everything.
func (i *issuer) credentials(name string, may *server.Permissions) (path string) {
	t := i.t
	key := must[nkeys.KeyPair](t)(nkeys.CreateUser())
	claims := jwt.NewUserClaims(public(t, key))
	claims.Name = name
	if may != nil {
		claims.Pub.Allow, claims.Sub.Allow = may.Publish.Allow, may.Subscribe.Allow
		claims.Resp = &jwt.ResponsePermission{MaxMsgs: may.Response.MaxMsgs, Expires: may.Response.Expires}
	}
	text := must[[]byte](t)(jwt.FormatUserConfig(must[string](t)(claims.Encode(i.account)), must[[]byte](t)(key.Seed())))
	path = filepath.Join(i.dir, name+".creds")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// operatorServer is a server that knows users by the operator's signature alone.
func operatorServer(t *testing.T) (*issuer, string) {
	t.Helper()
	i := &issuer{t: t, dir: t.TempDir(), account: must[nkeys.KeyPair](t)(nkeys.CreateAccount())}
	operator, system := must[nkeys.KeyPair](t)(nkeys.CreateOperator()), must[nkeys.KeyPair](t)(nkeys.CreateAccount())
	own := must[*jwt.OperatorClaims](t)(jwt.DecodeOperatorClaims(must[string](t)(jwt.NewOperatorClaims(public(t, operator)).Encode(operator))))
	known := &server.MemAccResolver{}
	for _, account := range []nkeys.KeyPair{i.account, system} {
		claims := jwt.NewAccountClaims(public(t, account))
		if account == i.account {
			claims.Limits.JetStreamLimits = jwt.JetStreamLimits{MemoryStorage: -1, DiskStorage: -1, Streams: -1, Consumer: -1}
		}
		if err := known.Store(public(t, account), must[string](t)(claims.Encode(operator))); err != nil {
			t.Fatal(err)
		}
	}
	return i, serve(t, &server.Options{
		Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), MaxPayload: maxPayload,
		TrustedOperators: []*jwt.OperatorClaims{own}, SystemAccount: public(t, system), AccountResolver: known,
	})
}

// With credentials files of a NATS operator in place of keys: a node's batches come to the hub and are stored, a command reaches the node, it may
// not send for another, and a file that another operator signed is refused.
func TestCredentialsFiles(t *testing.T) {
	i, url := operatorServer(t)
	cfg := testConfig(t.TempDir())
	cfg.NATS, cfg.NATSCreds = url, i.credentials("hub", nil)
	b := startHub(t, cfg)
	own := i.credentials("web-1", permissions("web-1"))
	n := startNode(t, t.Context(), url, "web-1", own, t.TempDir())
	defer n.Close()
	eventually(t, "what the node sent is stored", func() bool {
		n.window(2)
		list, err := storedIn(b.store)
		return err == nil && len(list) >= 3
	})
	if ans, err := b.command(&person{Name: "ann", Role: Operator}, "web-1", wireCommand("cap", "/be", "a test")); err != nil || ans.Done != "cap" {
		t.Errorf("%+v, %v", ans, err)
	}
	sendsForItselfOnly(t, url, nats.UserCredentials(own))
	another := &issuer{t: t, dir: t.TempDir(), account: must[nkeys.KeyPair](t)(nkeys.CreateAccount())}
	if nc, err := nats.Connect(url, nats.UserCredentials(another.credentials("web-2", permissions("web-2")))); err == nil {
		nc.Close()
		t.Error("another operator's file opens the door")
	}
}
