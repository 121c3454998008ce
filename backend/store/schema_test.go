package store_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"carillon/backend/store/storetest"
)

var update = flag.Bool("update", false, "write sql/schema.golden.sql anew")

// The golden schema shows in review what a migration changes.
func TestGoldenSchema(t *testing.T) {
	const golden = "../../sql/schema.golden.sql"
	db := storetest.Open(t, "")
	var b strings.Builder
	b.WriteString("-- What the migrations make; written by `go test ./backend/store -run Golden -update`.\n")
	section := func(query string) {
		rows, err := db.Pool.Query(t.Context(), query)
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		for rows.Next() {
			var line string
			if err := rows.Scan(&line); err != nil {
				t.Fatal(err)
			}
			fmt.Fprintln(&b, line)
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
	}
	const tables = `c.relnamespace = 'carillon'::regnamespace AND c.relname !~ '^((runs|job_history)_[0-9]{8}|schema_versions)'`
	section(`SELECT E'\nTYPE ' || t.typname || ' ENUM (' || string_agg(e.enumlabel, ', ' ORDER BY e.enumsortorder) || ')'
		FROM pg_type t JOIN pg_enum e ON e.enumtypid = t.oid WHERE t.typnamespace = 'carillon'::regnamespace GROUP BY t.typname ORDER BY t.typname`)
	section(`SELECT E'\nTABLE ' || c.relname || COALESCE(' WITH (' || array_to_string(c.reloptions, ', ') || ')', '') || COALESCE(' PARTITION BY ' || pg_get_partkeydef(c.oid), '') || E'\n    ' ||
		(SELECT string_agg(a.attname || ' ' || format_type(a.atttypid, a.atttypmod) || CASE WHEN a.attnotnull THEN ' NOT NULL' ELSE '' END ||
			CASE a.attidentity WHEN 'd' THEN ' IDENTITY' ELSE COALESCE(' DEFAULT ' || pg_get_expr(d.adbin, d.adrelid), '') END, E'\n    ' ORDER BY a.attnum)
		 FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped)
		FROM pg_class c WHERE ` + tables + ` AND c.relkind IN ('r', 'p') ORDER BY c.relname`)
	section(`SELECT E'\nINDEX ' || pg_get_indexdef(i.indexrelid) FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid WHERE ` + tables + ` ORDER BY 1`)
	section(`SELECT E'\nCONSTRAINT ' || c.relname || '.' || k.conname || ' ' || pg_get_constraintdef(k.oid)
		FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid WHERE ` + tables + ` AND k.contype IN ('c', 'f') ORDER BY 1`)
	section(`SELECT E'\nFUNCTION ' || p.proname || '(' || pg_get_function_identity_arguments(p.oid) || ') RETURNS ' || format_type(p.prorettype, NULL) ||
		CASE WHEN p.prosecdef THEN ' SECURITY DEFINER' ELSE '' END || COALESCE(' SET ' || array_to_string(p.proconfig, ', '), '')
		FROM pg_proc p WHERE p.pronamespace = 'carillon'::regnamespace ORDER BY 1`)
	if *update {
		if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("the schema differs from %s; if it should, run this test with -update\n%s", golden, b.String())
	}
}
