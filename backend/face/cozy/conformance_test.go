package cozy

import (
	"testing"

	"carillon/integration/cozycases"
)

// skippedCases cannot be shown by a request to a face on which nothing runs.
const skippedCases = 14

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
