# The same commands here and in CI. `just` alone lists them.
default:
    @just --list

# a three-controller cluster with the example modules, on a private Postgres
dev *args:
    go run ./cmd/carillon dev {{args}}

# everything but the long drills; needs Go, and Postgres binaries or DATABASE_URL
test *args:
    go test ./... {{args}}

race:
    go test -race -timeout 45m ./...

lint:
    test -z "$(gofmt -l $(git ls-files '*.go'))"
    go vet ./...
    cd integration/bench && go vet ./...
    go test -count=1 ./backend

# proto and sqlc; the output is committed. Needs buf on the PATH and a C compiler
generate:
    buf format -w proto
    buf lint
    buf generate
    cd tools && go build -o ../bin/sqlc github.com/sqlc-dev/sqlc/cmd/sqlc
    bin/sqlc generate

check-generated:
    .ci/generated

# sql/schema.golden.sql from the migrations
golden:
    go test ./backend/store -run Golden -update

# real processes, real faults, for so many seconds each: just drill 42 600
drill seed="1" seconds="300":
    CARILLON_DRILL_SEED={{seed}} CARILLON_DRILL_SECONDS={{seconds}} go test -count=1 -v -timeout 6h ./integration

# lateness, and claims beside the ceiling of a hand-written loop
bench *args:
    go run ./cmd/carillon bench cron {{args}}

# every parser and decoder, so many seconds each
fuzz seconds="30":
    #!/usr/bin/env bash
    set -euo pipefail
    for place in $(git grep -oE '^func Fuzz[A-Za-z]+' -- '*_test.go' | sed 's/:func /:/'); do
      name=${place#*:}
      go test "./$(dirname "${place%%:*}")" -run xxx -fuzz "^$name\$" -fuzztime {{seconds}}s
    done

build out="bin/carillon":
    CGO_ENABLED=0 go build -trimpath -o {{out}} ./cmd/carillon

ci:
    .ci/run
