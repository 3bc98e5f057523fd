// Command commensal-sql answers one question about a hub's store: it reads {"sql": …, "args": […]} from standard
// input, and writes {"columns": …, "types": …, "rows": …, "truncated": …} to standard output. The hub starts it for
// each question.
//
// It is a program, and a Go module, of its own. The engine (DuckDB) is half a gigabyte of C++ to those who fetch it, and it runs what
// strangers type: it must neither be linked into what runs on nodes nor be able to take the hub down. It can write nothing: the kernel
// refuses it every byte in a file (RLIMIT_FSIZE), the engine has no access to files outside the store, and only a SELECT
// is run at all.
//
// Exit codes: 0 answered; 1 the engine refused or failed, said in one line; 2 bad input.
package main

import (
	"bufio"
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	bindings "github.com/duckdb/duckdb-go-bindings"
	"github.com/duckdb/duckdb-go/v2"
	"golang.org/x/sys/unix"
)

// What one question may use: 512 MiB resident. The engine counts its tables, and not the texts that it makes; those, the answer's values and what this
// program needs itself are within the kernel's limit of memory that could be written to, of which 100 MiB and more are stacks and heaps that
// nothing ever touches.
const (
	memory    = "384MiB"
	maxMemory = 600 << 20
	maxRows   = 10_000
	maxAnswer = 32 << 20 // bytes
	maxQuery  = 64 << 10
	threads   = "2" // of the engine, and of this program: each one's stack counts, and there may be many CPUs
)

var tables = []string{"samples", "decisions", "incidents", "specs", "audit"}

type question struct {
	SQL  string `json:"sql"`
	Args []any  `json:"args"`
}

func main() {
	seconds := 0
	if len(os.Args) == 3 {
		seconds, _ = strconv.Atoi(os.Args[2]) // 0 where it is none
	}
	if seconds < 1 {
		fmt.Fprintln(os.Stderr, "usage: commensal-sql STORE SECONDS <question.json")
		os.Exit(2)
	}
	var q question
	if err := json.NewDecoder(io.LimitReader(os.Stdin, maxQuery)).Decode(&q); err != nil {
		fmt.Fprintf(os.Stderr, "the question cannot be read: %v\n", err)
		os.Exit(2)
	}
	time.AfterFunc(time.Duration(seconds)*time.Second, func() { fail(fmt.Errorf("it took more than %d s", seconds)) })
	out := bufio.NewWriter(os.Stdout)
	if err := errors.Join(run(os.Args[1], seconds, &q, out), out.Flush()); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, strings.Join(strings.Fields(err.Error()), " "))
	os.Exit(1)
}

// confine takes from this process what it does not need.
func confine(seconds int) error {
	runtime.GOMAXPROCS(2)
	debug.SetMemoryLimit(96 << 20) // what is garbage by then goes, before the kernel refuses more
	for what, most := range map[int]uint64{unix.RLIMIT_FSIZE: 0, unix.RLIMIT_CORE: 0, unix.RLIMIT_CPU: uint64(4 * seconds), unix.RLIMIT_DATA: maxMemory} {
		if err := unix.Setrlimit(what, &unix.Rlimit{Cur: most, Max: most}); err != nil {
			return fmt.Errorf("limits of this process: %w", err)
		}
	}
	return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
}

// run writes the answer to a question, rows as they come: after an error what is written is half an answer.
func run(dir string, seconds int, q *question, out io.Writer) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if err := confine(seconds); err != nil {
		return err
	}
	connector, err := duckdb.NewConnector("?threads="+threads, nil)
	if err != nil {
		return err
	}
	defer connector.Close() //nolint:errcheck // this process ends
	db := sql.OpenDB(connector)
	defer db.Close() //nolint:errcheck // likewise
	ctx := context.Background()
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // likewise
	for _, text := range setUp(dir) {
		if _, err := conn.ExecContext(ctx, text); err != nil {
			return fmt.Errorf("the store cannot be opened: %w", err)
		}
	}
	if err := onlySelect(ctx, conn, q.SQL); err != nil {
		return err
	}
	rows, err := conn.QueryContext(ctx, q.SQL, q.Args...)
	if err != nil {
		return err
	}
	defer rows.Close() //nolint:errcheck // reading is over
	return write(rows, out)
}

// setUp bounds the engine and gives it the store's tables.
func setUp(dir string) []string {
	quoted := "'" + strings.ReplaceAll(dir, "'", "''") + "'"
	texts := []string{
		// A store is thousands of small files, each opened to know its columns and again to read them: what is known of it is kept in between, and the
		// file itself is not.
		"SET parquet_metadata_cache = true", "SET enable_external_file_cache = false",
		"SET memory_limit = '" + memory + "'", "SET temp_directory = ''", "SET TimeZone = 'UTC'",
		"SET autoinstall_known_extensions = false", "SET autoload_known_extensions = false",
		"SET allowed_directories = [" + quoted + "]", "SET enable_external_access = false",
	}
	for _, t := range tables {
		texts = append(texts, fmt.Sprintf("CREATE VIEW %s AS SELECT * FROM read_parquet('%s/%s/*/*/*.parquet', hive_partitioning = true, union_by_name = true)", t, strings.ReplaceAll(dir, "'", "''"), t))
	}
	return append(texts, "SET lock_configuration = true")
}

// onlySelect refuses what is not one SELECT, as the engine's own parser sees it. Nothing has run before it has looked: the driver would
// run all statements of a text but the last to prepare that one.
func onlySelect(ctx context.Context, conn *sql.Conn, text string) error {
	refused := errors.New("expected one SELECT")
	return conn.Raw(func(d any) error {
		n, err := count(text)
		switch {
		case err != nil:
			return err
		case n != 1:
			return fmt.Errorf("%w, and there are %d statements", refused, n)
		}
		s, err := d.(driver.ConnPrepareContext).PrepareContext(ctx, text)
		if err != nil {
			return err
		}
		defer s.Close() //nolint:errcheck // likewise
		kind, err := s.(*duckdb.Stmt).StatementType()
		if err == nil && kind != duckdb.STATEMENT_TYPE_SELECT {
			err = refused
		}
		return err
	})
}

// count says how many statements a text has. It asks a second engine, which has nothing in it.
func count(text string) (int, error) {
	var db bindings.Database
	var conn bindings.Connection
	var stmts bindings.ExtractedStatements
	var config bindings.Config
	defer bindings.DestroyConfig(&config)
	var says string
	if bindings.CreateConfig(&config) != bindings.StateSuccess || bindings.SetConfig(config, "threads", threads) != bindings.StateSuccess || bindings.OpenExt("", &db, config, &says) != bindings.StateSuccess {
		return 0, errors.New("the engine does not start " + says)
	}
	defer bindings.Close(&db)
	if bindings.Connect(db, &conn) != bindings.StateSuccess {
		return 0, errors.New("the engine does not start")
	}
	defer bindings.Disconnect(&conn)
	n := bindings.ExtractStatements(conn, text, &stmts)
	defer bindings.DestroyExtracted(&stmts)
	if n == 0 {
		return 0, errors.New(bindings.ExtractStatementsError(stmts))
	}
	return int(n), nil
}

// write writes rows, as many as an answer may have.
func write(rows *sql.Rows, out io.Writer) error {
	columns, err := rows.Columns()
	if err != nil {
		return err
	}
	types, err := rows.ColumnTypes()
	if err != nil {
		return err
	}
	names := []string{}
	for _, t := range types {
		names = append(names, t.DatabaseTypeName())
	}
	head, err := json.Marshal(struct {
		Columns []string `json:"columns"`
		Types   []string `json:"types"`
	}{columns, names})
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(out, `%s,"rows":[`, head[:len(head)-1]); err != nil {
		return err
	}
	row, to := make([]any, len(columns)), make([]any, len(columns))
	for i := range row {
		to[i] = &row[i]
	}
	separator, size, truncated := "", 0, false
	for n := 0; rows.Next(); n++ {
		if truncated = n == maxRows; truncated {
			break
		}
		if err := rows.Scan(to...); err != nil {
			return err
		}
		for i := range row {
			row[i] = plain(row[i])
		}
		text, err := json.Marshal(row)
		if err != nil {
			return err
		}
		if size += len(text); size > maxAnswer {
			truncated = true
			break
		}
		if _, err := fmt.Fprintf(out, "%s%s", separator, text); err != nil {
			return err
		}
		separator = ","
	}
	if err := errors.Join(rows.Err(), fetchError()); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "],\"truncated\":%t}\n", truncated)
	return err
}

// plain makes of a value what JSON can hold.
func plain(v any) any {
	switch v := v.(type) {
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Sprint(v)
		}
	case float32:
		return plain(float64(v))
	case time.Time:
		return v.UTC().Format(time.RFC3339Nano)
	case *big.Int:
		return v.String()
	case []byte:
		return fmt.Sprintf("%x", v)
	case duckdb.Decimal:
		return v.Float64()
	case nil, bool, string, int8, int16, int32, int64, uint8, uint16, uint32, uint64, int, uint:
		return v
	default:
		return fmt.Sprint(v)
	}
	return v
}
