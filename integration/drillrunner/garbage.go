package main

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// garbage serves HTTP/1.1 and h2c and answers in turn with noise of the right type, with an endless body, with a
// status nobody has heard of, with nothing at all, and by cutting the line.
func garbage(listen string) error {
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	fmt.Println("http://" + l.Addr().String())
	var n atomic.Int64
	server := &http.Server{
		Protocols: new(http.Protocols), ReadHeaderTimeout: 10 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			answers[int(n.Add(1))%len(answers)](w, r)
		}),
	}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	return server.Serve(l)
}

var answers = []http.HandlerFunc{
	func(w http.ResponseWriter, r *http.Request) { // the right type, the wrong content
		w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
		w.Write(noise(512))
	},
	func(w http.ResponseWriter, r *http.Request) { // endless, up to 64 MB
		w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
		for range 1024 {
			if _, err := w.Write(noise(64 << 10)); err != nil {
				return
			}
		}
	},
	func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=\xff")
		w.WriteHeader(599)
		w.Write([]byte("<html>\x00"))
	},
	func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, // never answers
	func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	func(w http.ResponseWriter, r *http.Request) { // an envelope that announces 4 GB
		w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
		w.Write(append([]byte{0, 0xff, 0xff, 0xff, 0xff}, noise(32)...))
	},
}

func noise(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rand.Uint32())
	}
	return b
}
