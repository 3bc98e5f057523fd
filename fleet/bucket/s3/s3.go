// Package s3 reaches a bucket that speaks S3's interface. It is linked into the hub's program only.
package s3

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/commensal-io/commensal/fleet/bucket"
	"github.com/commensal-io/commensal/internal/guard"
)

// Config says which bucket.
type Config struct {
	Where    string // s3://NAME or s3://NAME/PREFIX
	Endpoint string // URL; "": Amazon's
	Region   string // "": it is asked for
}

const (
	amazon     = "https://s3.amazonaws.com"
	tries      = 3                // of a request, with pauses
	patience   = time.Minute      // for a request without content ...
	slowest    = 1 << 20          // ... and bytes a second where there is some
	largestPut = int64(5) << 30   // in one piece: S3's limit
	dial       = 10 * time.Second // to a connection
)

// Bucket implements bucket.Objects.
type Bucket struct {
	c            minio.Core
	name, prefix string
	endpoint     string
}

// Open prepares a bucket; nothing is asked of it yet. Credentials are those of the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY,
// AWS_SESSION_TOKEN) or else of the file ~/.aws/credentials (AWS_SHARED_CREDENTIALS_FILE, AWS_PROFILE).
func Open(cfg Config) (*Bucket, error) {
	rest, ok := strings.CutPrefix(cfg.Where, "s3://")
	name, prefix, _ := strings.Cut(strings.Trim(rest, "/"), "/")
	if !ok || name == "" {
		return nil, fmt.Errorf("bucket %q: expected s3://NAME or s3://NAME/PREFIX", cfg.Where)
	}
	endpoint := cfg.Endpoint
	if endpoint == "" {
		endpoint = amazon
	}
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || strings.Trim(u.Path, "/") != "" {
		return nil, fmt.Errorf("endpoint %q: expected https://HOST or https://HOST:PORT", endpoint)
	}
	if u.Scheme == "http" && !guard.Here(u.Hostname()) {
		return nil, fmt.Errorf("endpoint %q leaves this machine: expected https", endpoint)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DialContext = (&net.Dialer{Timeout: dial, KeepAlive: patience}).DialContext
	transport.DisableCompression = true // objects come as they are
	c, err := minio.New(u.Host, &minio.Options{
		Creds:  credentials.NewChainCredentials([]credentials.Provider{&credentials.EnvAWS{}, &credentials.FileAWSCredentials{}}),
		Secure: u.Scheme == "https", Region: cfg.Region, Transport: transport, MaxRetries: tries,
		TrailingHeaders: true, // or the client refuses to send a checksum
	})
	if err != nil {
		return nil, fmt.Errorf("bucket %s: %w", cfg.Where, err)
	}
	if prefix != "" {
		prefix += "/"
	}
	return &Bucket{c: minio.Core{Client: c}, name: name, prefix: prefix, endpoint: endpoint}, nil
}

// String implements bucket.Objects.
func (b *Bucket) String() string {
	return strings.TrimSuffix("s3://"+b.name+"/"+b.prefix, "/") + " at " + b.endpoint
}

// fit bounds a request by what it carries.
func fit(ctx context.Context, size int64) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, patience+time.Duration(size/slowest)*time.Second)
}

// Put implements bucket.Objects. The server compares what came with the sum.
func (b *Bucket) Put(ctx context.Context, name string, r io.ReadSeeker, size int64, sum [sha256.Size]byte) error {
	ctx, cancel := fit(ctx, size)
	defer cancel()
	opts := minio.PutObjectOptions{DisableMultipart: size <= largestPut}
	if opts.DisableMultipart { // in parts it would be a sum of sums
		opts.UserMetadata = map[string]string{minio.ChecksumSHA256.Key(): base64.StdEncoding.EncodeToString(sum[:])}
		opts.DisableContentSha256 = true // the sum is among the headers that are signed
	}
	_, err := b.c.Client.PutObject(ctx, b.name, b.prefix+name, r, size, opts)
	return none(err)
}

// none tells an object that is not there from a bucket that is not.
func none(err error) error {
	if minio.ToErrorResponse(err).Code == minio.NoSuchKey {
		return bucket.ErrNone
	}
	return err
}

// reader ends its request when it is closed.
type reader struct {
	io.ReadCloser
	cancel context.CancelFunc
}

func (r *reader) Close() error {
	defer r.cancel()
	return r.ReadCloser.Close()
}

// Get implements bucket.Objects.
func (b *Bucket) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	ctx, cancel := fit(ctx, largestPut)
	r, _, _, err := b.c.GetObject(ctx, b.name, b.prefix+name, minio.GetObjectOptions{})
	if err != nil {
		cancel()
		return nil, none(err)
	}
	return &reader{r, cancel}, nil
}

// Stat implements bucket.Objects.
func (b *Bucket) Stat(ctx context.Context, name string) (bucket.Object, error) {
	ctx, cancel := fit(ctx, 0)
	defer cancel()
	info, err := b.c.StatObject(ctx, b.name, b.prefix+name, minio.StatObjectOptions{Checksum: true})
	if err != nil {
		return bucket.Object{}, none(err)
	}
	o := bucket.Object{Name: name, Bytes: info.Size}
	if sum, err := base64.StdEncoding.DecodeString(info.ChecksumSHA256); err == nil && len(sum) == sha256.Size {
		o.Sum = sum
	}
	return o, nil
}

// List implements bucket.Objects.
func (b *Bucket) List(ctx context.Context, prefix string) ([]bucket.Object, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*patience) // pages of a thousand
	defer cancel()
	var list []bucket.Object
	for info := range b.c.Client.ListObjects(ctx, b.name, minio.ListObjectsOptions{Prefix: b.prefix + prefix, Recursive: true}) {
		if info.Err != nil {
			return nil, info.Err
		}
		list = append(list, bucket.Object{Name: strings.TrimPrefix(info.Key, b.prefix), Bytes: info.Size})
	}
	return list, ctx.Err()
}

// Delete implements bucket.Objects.
func (b *Bucket) Delete(ctx context.Context, name string) error {
	ctx, cancel := fit(ctx, 0)
	defer cancel()
	return b.c.RemoveObject(ctx, b.name, b.prefix+name, minio.RemoveObjectOptions{})
}
