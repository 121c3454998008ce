// Package sql carries the migrations inside the binary. The queries beside them are read by sqlc alone.
package sql

import (
	"embed"
	"io/fs"
)

//go:embed migrations/*.sql
var files embed.FS

// Migrations are the goose files, in a folder of their own.
func Migrations() fs.FS {
	sub, err := fs.Sub(files, "migrations")
	if err != nil {
		panic(err) // the folder is embedded: a broken build
	}
	return sub
}
