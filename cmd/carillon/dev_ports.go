package main

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"
)

// maxControllers bounds what dev starts.
const maxControllers = 32

// planPorts returns the addresses of n controllers: the given one and the ports that follow, or, for port 0, n free
// ports. All of them can be listened on at this moment; one that cannot is named in the error.
func planPorts(listen string, n int) ([]string, error) {
	host, port, err := splitListen(listen)
	if err != nil {
		return nil, err
	}
	if n < 1 || n > maxControllers {
		return nil, usage{fmt.Errorf("--controllers %d: from 1 to %d can be started", n, maxControllers)}
	}
	if !isLoopback(host) {
		return nil, usage{mend(fmt.Errorf("dev on %s would let anybody in: it uses no tokens", listen),
			"listen on 127.0.0.1, or start production controllers with `carillon controller`")}
	}
	if port+n-1 > 65535 {
		return nil, usage{fmt.Errorf("%d controllers from port %d on: there are no such ports", n, port)}
	}
	var held []net.Listener
	defer func() {
		for _, l := range held {
			l.Close()
		}
	}()
	var addrs []string
	for i := range n {
		want := port
		if port != 0 {
			want += i
		}
		l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(want)))
		if err != nil {
			return nil, portTaken(net.JoinHostPort(host, strconv.Itoa(want)), err)
		}
		held = append(held, l)
		addrs = append(addrs, net.JoinHostPort(host, strconv.Itoa(l.Addr().(*net.TCPAddr).Port)))
	}
	return addrs, nil
}

func portTaken(addr string, err error) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return mend(fmt.Errorf("%s is taken by another process", addr),
			"does another `carillon dev` run? End it, or choose other ports: --listen 127.0.0.1:PORT (the next controllers take the next ports)")
	}
	return mend(fmt.Errorf("listen on %s: %w", addr, err), "choose another address with --listen")
}
