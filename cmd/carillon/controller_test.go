package main

import (
	"errors"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"carillon/backend/controller"
	"carillon/backend/core/permission"
)

func TestTokensGuardWhatOthersCanReach(t *testing.T) {
	base := controllerCmd{database: database{"postgres://x/y"}}
	for _, tc := range []struct {
		name      string
		change    func(*controllerCmd)
		ok        bool
		advertise string
	}{
		{"loopback", func(c *controllerCmd) { c.Listen = "127.0.0.1:7800" }, true, "http://127.0.0.1:7800"},
		{"loopback, IPv6", func(c *controllerCmd) { c.Listen = "[::1]:7800" }, true, "http://[::1]:7800"},
		{"a port that the system chooses", func(c *controllerCmd) { c.Listen = "localhost:0" }, true, ""},
		{"everywhere", func(c *controllerCmd) { c.Listen, c.Advertise = ":7800", "http://ctl:7800" }, false, ""},
		{"another host", func(c *controllerCmd) { c.Listen = "10.0.0.5:7800" }, false, ""},
		{"one token", func(c *controllerCmd) { c.Listen, c.AdminToken = "10.0.0.5:7800", "a" }, false, ""},
		{"both tokens", func(c *controllerCmd) { c.Listen, c.AdminToken, c.ClusterToken = "10.0.0.5:7800", "a", "b" }, true, "http://10.0.0.5:7800"},
		{"nameless", func(c *controllerCmd) { c.Listen, c.AdminToken, c.ClusterToken = "0.0.0.0:7800", "a", "b" }, false, ""},
		{"named", func(c *controllerCmd) {
			c.Listen, c.Advertise, c.AdminToken, c.ClusterToken = "0.0.0.0:7800", "http://ctl:7800", "a", "b"
		}, true, "http://ctl:7800"},
		{"badly named", func(c *controllerCmd) { c.Listen, c.Advertise = "127.0.0.1:7800", "ctl:7800" }, false, ""},
		{"no database", func(c *controllerCmd) { c.Listen, c.DatabaseURL = "127.0.0.1:7800", "" }, false, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := base
			tc.change(&c)
			cfg, err := c.config()
			var u usage
			if tc.ok != (err == nil) || err != nil && !errors.As(err, &u) {
				t.Fatalf("error %v", err)
			}
			if tc.ok && cfg.Advertise != tc.advertise {
				t.Errorf("advertises %q, want %q", cfg.Advertise, tc.advertise)
			}
		})
	}
}

func TestFlagsReachTheController(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	write(t, file, " cluster \n")
	c := controllerCmd{database: database{"postgres://x/y"}, Listen: "127.0.0.1:7800", AdminToken: "admin", ClusterTokenFile: file,
		Beat: time.Millisecond, Drain: 2 * time.Second, TestClockSkew: -10 * time.Minute, KeepDays: 3, ReservedWorkers: []string{"vault", " share-upload ", ""}}
	cfg, err := c.config()
	if err != nil {
		t.Fatal(err)
	}
	want := controller.DefaultConfig()
	want.DatabaseURL, want.Listen, want.Advertise, want.Version = "postgres://x/y", "127.0.0.1:7800", "http://127.0.0.1:7800", version
	want.AdminToken, want.ClusterToken, want.Skew, want.KeepDays = "admin", "cluster", -10*time.Minute, 3
	want.Timing.Beat, want.Timing.Drain = time.Millisecond, 2*time.Second
	want.Reserved = permission.Reserved{"vault", "share-upload"}
	if !reflect.DeepEqual(cfg, want) {
		t.Errorf("got  %+v\nwant %+v", cfg, want)
	}
	c.ReservedWorkers = []string{"a b"}
	if _, err := c.config(); err == nil || !strings.Contains(err.Error(), `--reserved-workers: "a b" is no name of a worker`) {
		t.Errorf("a name that is none: %v", err)
	}
}
