package main

import (
	"context"
	"net/url"
	"time"

	carillonv1 "carillon/proto/carillon/v1"
	"carillon/proto/carillon/v1/carillonv1connect"
)

// urls are the controllers' endpoints.
func (d *dev) urls() []string {
	urls := make([]string, len(d.addrs))
	for i, addr := range d.addrs {
		urls[i] = "http://" + addr
	}
	return urls
}

// client makes a client of one of our controllers. They ask for no token.
func (d *dev) client(url string) (*client, error) { return newClient(url, "", 10*time.Second) }

// watcher shows what runs from the start of dev on.
func (d *dev) watcher() *watcher {
	names := controllerNames{dev: d, known: map[string]string{}}
	return &watcher{
		endpoints: d.urls,
		runs: func(url string) (carillonv1connect.RunServiceClient, error) {
			cl, err := d.client(url)
			if err != nil {
				return nil, err
			}
			return cl.runs, nil
		},
		since: d.began,
		emit: func(r *carillonv1.Run) {
			d.screen.run(r, time.Now(), names.of(r.GetController()))
		},
	}
}

// controllerNames gives the controllers the names that a person sees here: their ports. The watcher's goroutine alone
// uses it.
type controllerNames struct {
	dev   *dev
	known map[string]string // by key; those that died stay, since their runs do
	asked time.Time
}

// of returns the name of a controller by its key.
func (n *controllerNames) of(key string) string {
	if key == "" {
		return ""
	}
	if n.known[key] == "" && time.Since(n.asked) > time.Second {
		n.asked = time.Now()
		n.ask()
	}
	if name := n.known[key]; name != "" {
		return name
	}
	return key
}

// ask learns the keys from the first controller that answers.
func (n *controllerNames) ask() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for _, url := range n.dev.urls() {
		cl, err := n.dev.client(url)
		if err != nil {
			continue
		}
		resp, err := cl.cluster.ListControllers(ctx, &carillonv1.ListControllersRequest{All: true})
		if err != nil {
			continue
		}
		for _, c := range resp.GetControllers() {
			n.known[c.GetKey()] = portOf(c.GetEndpoint())
		}
		return
	}
}

// portOf is the ":7800" of an endpoint.
func portOf(endpoint string) string {
	u, err := url.Parse(endpoint)
	if err != nil || u.Port() == "" {
		return endpoint
	}
	return ":" + u.Port()
}
