package main

import (
	"testing"
	"time"
)

func TestFiguresAreReadable(t *testing.T) {
	for want, rounds := range map[string][]float64{
		"-":                           nil,
		"0.42":                        {0.42},
		"**12.5** (12.5, 9.00, 99.0)": {12.5, 9, 99},
		"**1,500** (1,000, 2,000)":    {1000, 2000},
		"**1,234,567** (1,234,567, 0.00, 2,000,000)": {1234567, 0, 2e6},
	} {
		if got := cell(rounds); got != want {
			t.Errorf("cell(%v) = %s, want %s", rounds, got, want)
		}
	}
}

func TestQuantilesAreNearestRanks(t *testing.T) {
	var all []time.Duration
	for i := range 100 {
		all = append(all, time.Duration(i+1))
	}
	for q, want := range map[float64]time.Duration{0: 1, 0.5: 50, 0.99: 99, 0.991: 100, 1: 100} {
		if got := quantile(all, q); got != want {
			t.Errorf("quantile %v = %d, want %d", q, got, want)
		}
	}
	if got := quantile(nil, 0.5); got != 0 {
		t.Errorf("quantile of nothing = %d", got)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for _, args := range [][]string{{"-only", "speed"}, {"-rounds", "0"}, {"-leg", "0s"}, {"surplus"}} {
		if _, err := parse(args); err == nil {
			t.Errorf("%q is accepted", args)
		}
	}
	o, err := parse([]string{"-only", "work,cost", "-candidates", "river"})
	if err != nil || !o.measures(costLeg) || o.measures(latencyLeg) {
		t.Fatalf("%+v, %v", o, err)
	}
	b := &bench{options: o}
	for _, c := range b.all() {
		if c.processes || !c.does(workLeg) {
			t.Errorf("%s is none of River's that works", c.name)
		}
	}
	if len(b.all()) != 2 {
		t.Errorf("%d candidates, want River twice", len(b.all()))
	}
}
