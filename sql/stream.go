package main

/*
#cgo LDFLAGS: -Wl,--wrap=duckdb_pending_prepared -Wl,--wrap=duckdb_fetch_chunk
#include <stdlib.h>
#include <string.h>

// As duckdb.h has them.
typedef struct { unsigned long long a, b, c; void *d, *e, *f; } duckdb_result;
int duckdb_pending_prepared_streaming(void *prepared, void **out);
const char *duckdb_result_error(duckdb_result *result);
void *__real_duckdb_fetch_chunk(duckdb_result result);

static char *failed;

int __wrap_duckdb_pending_prepared(void *prepared, void **out) {
	return duckdb_pending_prepared_streaming(prepared, out);
}

void *__wrap_duckdb_fetch_chunk(duckdb_result result) {
	void *chunk = __real_duckdb_fetch_chunk(result);
	const char *error = chunk ? NULL : duckdb_result_error(&result);
	if (error && !failed)
		failed = strdup(error);
	return chunk;
}

static const char *fetch_failed(void) { return failed; }
*/
import "C"

import "errors"

// The driver has the engine make all rows of an answer before it gives out the first: `SELECT * FROM samples` would take as much memory as the table. So the
// linker gives it the engine's streaming calls in their place, by which rows are made as they are fetched. What the driver then takes for the
// end of rows may be an error, which is kept.

// fetchError is why rows ended before their end; nil: they did not.
func fetchError() error {
	if text := C.fetch_failed(); text != nil {
		return errors.New(C.GoString(text))
	}
	return nil
}
