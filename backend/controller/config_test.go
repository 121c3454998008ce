package controller

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"carillon/backend/core/permission"
	"carillon/backend/store/storetest"
)

func TestConfigIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*Config)
		say   string
	}{
		"no database":        {func(c *Config) { c.DatabaseURL = "" }, "database URL"},
		"no port":            {func(c *Config) { c.Listen = "127.0.0.1" }, "listen address"},
		"open to the world":  {func(c *Config) { c.Listen, c.Advertise = "0.0.0.0:0", "http://a:1" }, "let anybody in"},
		"any address":        {func(c *Config) { c.Listen = ":0" }, "let anybody in"},
		"a name":             {func(c *Config) { c.Listen = "example.com:0" }, "let anybody in"},
		"only admin":         {func(c *Config) { c.AdminToken = "a" }, "both"},
		"only cluster":       {func(c *Config) { c.ClusterToken = "a" }, "both"},
		"the same token":     {func(c *Config) { c.AdminToken, c.ClusterToken = "a", "a" }, "the same"},
		"token with a break": {func(c *Config) { c.AdminToken, c.ClusterToken = "a\n", "b" }, "character"},
		"nowhere":            {func(c *Config) { c.Listen, c.AdminToken, c.ClusterToken = "[::]:0", "a", "b" }, "advertise"},
		"no URL":             {func(c *Config) { c.Advertise = "127.0.0.1:1" }, "advertised"},
		"no beat":            {func(c *Config) { c.Timing.Beat = 0 }, "beat"},
		"negative drain":     {func(c *Config) { c.Timing.Drain = -1 }, "drain"},
		"no timing":          {func(c *Config) { c.Timing = Timing{} }, "positive"},
		"short silence":      {func(c *Config) { c.Timing.Silence = 3*c.Timing.Beat - 1 }, "3 beats"},
		"fence at silence":   {func(c *Config) { c.Timing.Fence = c.Timing.Silence }, "3 beats"},
		"lease at fence":     {func(c *Config) { c.Timing.Lease = c.Timing.Fence }, "3 beats"},
		"a reserved worker":  {func(c *Config) { c.Reserved = permission.Reserved{"a b"} }, "no name of a worker"},
		"no days":            {func(c *Config) { c.KeepDays = -1 }, "negative"},
		"no calls":           {func(c *Config) { c.MaxInFlight = -1 }, "negative"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := DefaultConfig()
			cfg.DatabaseURL, cfg.Listen = "postgres://nowhere", "127.0.0.1:0"
			if err := cfg.validate(); err != nil {
				t.Fatalf("before: %v", err)
			}
			c.spoil(&cfg)
			if err := Run(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), c.say) {
				t.Errorf("%v, want %q", err, c.say)
			}
		})
	}
	guarded := DefaultConfig()
	guarded.DatabaseURL, guarded.Listen, guarded.Advertise, guarded.AdminToken, guarded.ClusterToken = "postgres://nowhere", "0.0.0.0:0", "http://a:1", "a", "b"
	if err := guarded.validate(); err != nil {
		t.Errorf("with tokens: %v", err)
	}
}

// A database that this binary does not fit is not joined, and nobody appears in it.
func TestDatabaseIsRefused(t *testing.T) {
	for name, c := range map[string]struct{ spoil, say string }{
		"other shard count": {"UPDATE carillon.settings SET shard_count = 7", "shard"},
		"newer":             {"INSERT INTO carillon.schema_versions (version_id, is_applied) VALUES (99999, true)", "newer"},
		"older":             {"DELETE FROM carillon.schema_versions WHERE version_id > 0", "migrate up"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := storetest.Open(t, "")
			db.Exec(c.spoil)
			cfg := DefaultConfig()
			cfg.DatabaseURL, cfg.Listen = db.URL, "127.0.0.1:0"
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			if err := Run(ctx, cfg); err == nil || !strings.Contains(err.Error(), c.say) {
				t.Errorf("%v, want %q", err, c.say)
			}
			var n int
			if db.Scan("SELECT count(*) FROM carillon.controllers", nil, &n); n != 0 {
				t.Errorf("%d controllers joined", n)
			}
		})
	}
}

func TestMigrations(t *testing.T) {
	t.Parallel()
	url := storetest.EmptyURL(t)
	var said strings.Builder
	if err := Migrate(t.Context(), url, &said); err != nil || !strings.Contains(said.String(), "applied ") {
		t.Fatalf("%q, %v", said.String(), err)
	}
	if err := Migrate(t.Context(), url, &said); err != nil || !strings.Contains(said.String(), "up to date") {
		t.Errorf("again: %q, %v", said.String(), err)
	}
	if err := MigrateDown(t.Context(), url, io.Discard); err != nil {
		t.Error(err)
	}
	all, err := MigrationStatus(t.Context(), url)
	if err != nil || len(all) == 0 || all[len(all)-1].Applied {
		t.Errorf("%+v, %v", all, err)
	}
}
