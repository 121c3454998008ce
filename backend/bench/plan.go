package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Plan is how the server would run a statement.
type Plan struct {
	Statement string   `json:"statement"`
	Mode      string   `json:"mode"` // generic or custom
	Cost      float64  `json:"cost"`
	Nodes     []string `json:"nodes"` // from the top to cron_jobs
	// Ordered: a nested loop over the sorted list into the primary key, which locks in order of id.
	Ordered bool `json:"ordered"`
}

// plans asks for the plans of the statements that the store sends, on the table as it is now. Their text is what the
// server says that a connection of the store ran last.
func (f *field) plans(ctx context.Context) (all []Plan, err error) {
	e, err := openProduct(ctx, f.url)
	if err != nil {
		return nil, err
	}
	defer e.close()
	b := f.take(0)
	if err := e.execute(ctx, 0, b); err != nil {
		return nil, err
	}
	for _, name := range []string{"StartCronJobs", "EndCronJobs"} {
		var text string
		err := f.db.QueryRow(ctx, `SELECT query FROM pg_stat_activity WHERE datname = current_database() AND starts_with(query, $1)
			ORDER BY state_change DESC LIMIT 1`, "-- name: "+name+" ").Scan(&text)
		if err != nil {
			return nil, fmt.Errorf("find the text of %s: %w", name, err)
		}
		for _, mode := range []string{"generic", "custom"} {
			p, err := explain(ctx, f.db, text, mode, b)
			if err != nil {
				return nil, fmt.Errorf("explain %s: %w", name, err)
			}
			p.Statement, p.Mode = name, mode
			all = append(all, p)
		}
	}
	return all, nil
}

// explain does not run the statement.
func explain(ctx context.Context, db *pgx.Conn, text, mode string, b *batch) (p Plan, err error) {
	if _, err := db.Exec(ctx, "SET plan_cache_mode = force_"+mode+"_plan; PREPARE explained AS "+text); err != nil {
		return p, err
	}
	defer func() {
		_, cleanup := db.Exec(ctx, "DEALLOCATE explained; RESET plan_cache_mode")
		err = errors.Join(err, cleanup)
	}()
	var types []string
	if err := db.QueryRow(ctx, "SELECT parameter_types::text[] FROM pg_prepared_statements WHERE name = 'explained'").Scan(&types); err != nil {
		return p, err
	}
	args := make([]string, len(types))
	for i, t := range types {
		args[i] = literal(t, b)
	}
	var plan []byte
	if err := db.QueryRow(ctx, "EXPLAIN (FORMAT JSON) EXECUTE explained("+strings.Join(args, ",")+")").Scan(&plan); err != nil {
		return p, err
	}
	var top []struct{ Plan node }
	if err := json.Unmarshal(plan, &top); err != nil || len(top) != 1 {
		return p, fmt.Errorf("read the plan: %w", err)
	}
	p.Cost = top[0].Plan.Cost
	p.Nodes = top[0].Plan.pathTo("cron_jobs")
	all := strings.Join(p.Nodes, " > ")
	p.Ordered = strings.Contains(all, "Nested Loop") && strings.Contains(all, "Index Scan cron_jobs_pkey")
	return p, nil
}

// literal is an argument of the given type, with as many elements as a batch has.
func literal(t string, b *batch) string {
	element, isArray := strings.CutSuffix(t, "[]")
	values := make([]string, len(b.ids))
	for i, id := range b.ids {
		values[i] = "x"
		switch element {
		case "bigint", "integer":
			values[i] = fmt.Sprint(id)
		case "timestamp with time zone":
			values[i] = b.slot(i).Format("2006-01-02 15:04:05Z")
		case "uuid":
			values[i] = fmt.Sprintf("00000000-0000-7000-8000-%012x", id)
		}
	}
	if !isArray {
		return "'" + values[0] + "'::" + t
	}
	for i := range values {
		values[i] = `"` + values[i] + `"`
	}
	return "'{" + strings.Join(values, ",") + "}'::" + t
}

// node is a part of a plan as EXPLAIN writes it.
type node struct {
	Type  string  `json:"Node Type"`
	Table string  `json:"Relation Name"`
	Index string  `json:"Index Name"`
	Cost  float64 `json:"Total Cost"`
	Plans []node  `json:"Plans"`
}

func (n node) String() string {
	switch {
	case n.Index != "":
		return n.Type + " " + n.Index
	case n.Table != "":
		return n.Type + " " + n.Table
	}
	return n.Type
}

// pathTo names the nodes down to the first one that reads the table; nil: none does.
func (n node) pathTo(table string) []string {
	for _, below := range n.Plans {
		if path := below.pathTo(table); path != nil {
			return append([]string{n.String()}, path...)
		}
	}
	if n.Table == table && n.Type != "ModifyTable" {
		return []string{n.String()}
	}
	return nil
}
