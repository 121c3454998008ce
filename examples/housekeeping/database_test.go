package housekeeping

import (
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"carillon/backend/devdb/devtest"
)

func TestSizesGoToATableOfTheirOwn(t *testing.T) {
	url := devtest.Database(t)
	t.Setenv("HOUSEKEEPING_DIR", t.TempDir())
	t.Setenv("DATABASE_URL", url)
	const runners = 4 // all want to make the table at once
	errs := make([]error, runners)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { errs[i] = Record(t.Context()) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			t.Error(err)
		}
	}
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), `UPDATE housekeeping.sizes SET at = at - interval '31 days' WHERE id = 1`); err != nil {
		t.Fatal(err)
	}
	if err := Record(t.Context()); err != nil {
		t.Fatal(err)
	}
	var rows, largest int
	if err := conn.QueryRow(t.Context(), `SELECT count(*), max(database_bytes) FROM housekeeping.sizes`).Scan(&rows, &largest); err != nil {
		t.Fatal(err)
	}
	if rows != runners || largest == 0 { // one more, and the old one gone
		t.Errorf("%d rows, largest database %d bytes", rows, largest)
	}
}
