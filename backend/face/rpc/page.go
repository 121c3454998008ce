package rpc

import (
	"encoding/base64"
	"encoding/json"
	"hash/fnv"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
)

const (
	defaultPage = 100
	maxPage     = 1000
)

// token is a page token: where the page before ended, bound to the request that it continues.
type token[T any] struct {
	Of    string
	After T
}

// bind names a request but for its paging, so that a token of one list is refused by another.
func bind(kind string, parts ...proto.Message) string {
	h := fnv.New64a()
	h.Write([]byte(kind))
	for _, p := range parts {
		b, _ := proto.MarshalOptions{Deterministic: true}.Marshal(p)
		h.Write(b)
	}
	return strconv.FormatUint(h.Sum64(), 36)
}

func nextToken[T any](of string, after T) string {
	b, _ := json.Marshal(token[T]{of, after})
	return base64.RawURLEncoding.EncodeToString(b)
}

func readToken[T any](of, s string) (after T, err error) {
	if s == "" {
		return after, nil
	}
	var t token[T]
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err == nil {
		err = json.Unmarshal(b, &t)
	}
	text, _ := any(t.After).(string)
	if err != nil || t.Of != of || strings.ContainsRune(text, 0) {
		return after, invalid("page_token", "belongs to another list, or to none; start without one")
	}
	return t.After, nil
}

func pageSize(asked int32) int {
	if asked <= 0 {
		return defaultPage
	}
	return min(int(asked), maxPage)
}
