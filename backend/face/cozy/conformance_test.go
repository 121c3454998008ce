package cozy

import (
	"testing"

	"carillon/integration/cozycases"
)

// skippedCases are about workers at work: on this face nothing runs.
const skippedCases = 8

func TestConformance(t *testing.T) {
	_, w := world(t)
	cozycases.Run(t, w, skippedCases)
}

func TestEveryRouteAsksWhoItIs(t *testing.T) {
	_, w := world(t)
	var routes []cozycases.Route
	for _, r := range Routes() {
		routes = append(routes, cozycases.Route(r))
	}
	cozycases.Walk(t, w, routes)
}
