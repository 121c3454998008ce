package devtest

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"net/url"
	"time"

	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/wait"
)

const image = "postgres:17-alpine"

// dockerRuns asks the daemon. The library panics where it finds no address for one.
func dockerRuns() (runs bool) {
	defer func() { _ = recover() }()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	provider, err := testcontainers.ProviderDocker.GetProvider()
	return err == nil && provider.Health(ctx) == nil
}

// startContainer starts Postgres in a container that the library's reaper removes after the end of this process.
func startContainer() (admin string, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("start %s in a container: %v", image, r)
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute) // the image may have to be fetched
	defer cancel()
	password := rand.Text()
	container, err := testcontainers.Run(ctx, image,
		testcontainers.WithEnv(map[string]string{
			"POSTGRES_USER": "carillon", "POSTGRES_DB": "carillon", "POSTGRES_PASSWORD": password,
			"POSTGRES_INITDB_ARGS": "--locale=C -E UTF8 --no-sync", "TZ": "UTC",
		}),
		testcontainers.WithExposedPorts("5432/tcp"),
		testcontainers.WithCmd("postgres", "-c", "fsync=off", "-c", "full_page_writes=off", "-c", "max_connections=300"),
		// The image starts the server once for its set-up and then for good.
		testcontainers.WithWaitStrategyAndDeadline(time.Minute,
			wait.ForLog("database system is ready to accept connections").WithOccurrence(2),
			wait.ForListeningPort("5432/tcp")),
	)
	if err != nil {
		return "", fmt.Errorf("start %s in a container: %w", image, err)
	}
	host, err := container.Host(ctx)
	if err != nil {
		return "", fmt.Errorf("find the container's host: %w", err)
	}
	port, err := container.MappedPort(ctx, "5432/tcp")
	if err != nil {
		return "", fmt.Errorf("find the container's port: %w", err)
	}
	u := url.URL{
		Scheme: "postgres", User: url.UserPassword("carillon", password),
		Host: net.JoinHostPort(host, port.Port()), Path: "/carillon", RawQuery: "sslmode=disable",
	}
	return u.String(), nil
}
