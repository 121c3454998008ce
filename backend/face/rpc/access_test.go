package rpc

import (
	"bytes"
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"carillon/backend/core/cron"
	"carillon/backend/core/permission"
	"carillon/backend/store"
	carillonv1 "carillon/proto/carillon/v1"
)

// methods are all of our files, those of runners included.
func methods(t *testing.T) []protoreflect.MethodDescriptor {
	var all []protoreflect.MethodDescriptor
	protoregistry.GlobalFiles.RangeFilesByPackage("carillon.v1", func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			s := f.Services().Get(i)
			for j := range s.Methods().Len() {
				all = append(all, s.Methods().Get(j))
			}
		}
		return true
	})
	if len(all) < 20 {
		t.Fatalf("only %d methods", len(all))
	}
	return all
}

func procedureOf(m protoreflect.MethodDescriptor) string {
	return "/" + string(m.Parent().FullName()) + "/" + string(m.Name())
}

func TestEveryMethodSaysWhoMayCallIt(t *testing.T) {
	served := map[string]bool{}
	for _, s := range Services {
		served[s] = false
	}
	for _, m := range methods(t) {
		if Access(procedureOf(m)) == carillonv1.Access_ACCESS_UNSPECIFIED {
			t.Errorf("%s has no access option: it is open to nobody", m.FullName())
		}
		service := string(m.Parent().FullName())
		if _, ok := served[service]; !ok && service != "carillon.v1.VerbService" {
			t.Errorf("%s is not served", service)
		}
		served[service] = true
		if service == "carillon.v1.VerbService" && Access(procedureOf(m)) != carillonv1.Access_ACCESS_CLUSTER {
			t.Errorf("%s must want the cluster token", m.FullName())
		}
	}
	for s, found := range served {
		if !found {
			t.Errorf("%s is served, and has no method", s)
		}
	}
	for _, unknown := range []string{"", "/", "/a", "/carillon.v1.CronService", "/carillon.v1.CronService/", "/carillon.v1.CronService/Nothing", "/carillon.v1.Run/run_id", "/carillon.v1/CronService", "/carillon.v1/Access", "/google.protobuf.FileOptions/java_package", "//"} {
		if got := Access(unknown); got != carillonv1.Access_ACCESS_UNSPECIFIED {
			t.Errorf("Access(%q) = %s", unknown, got)
		}
	}
}

// garbage is no message in any codec, and counts how much of it was read.
type garbage struct{ read int }

func (g *garbage) Read(p []byte) (int, error) {
	if g.read > 100 {
		return 0, io.EOF
	}
	g.read += len(p)
	for i := range p {
		p[i] = 0xff
	}
	return len(p), nil
}

var contentTypes = []string{"application/json", "application/proto", "application/connect+proto", "application/connect+json", "application/grpc", "application/grpc-web+proto", "text/plain", ""}

// Every RPC, in every protocol, with every token: deny by default, and nothing of a body is read before the caller is
// known. Whoever is let in is told that the garbage is garbage, so nothing is done here.
func TestWhoMayCallWhat(t *testing.T) {
	face, _ := handler(t, new(store.Store), Tokens{Admin: adminToken, Cluster: clusterToken, Lookup: func(_ context.Context, hash []byte) (permission.Token, error) {
		switch {
		case bytes.Equal(hash, permission.Hash("car_good")):
			return permission.Token{ID: "1", Tenant: "acme", Kind: permission.CLI, Scope: permission.Full()}, nil
		case bytes.Equal(hash, permission.Hash("car_nobodys")):
			return permission.Token{ID: "2", Kind: permission.CLI, Scope: permission.Full()}, nil // without a tenant: of none, not of all
		case bytes.Equal(hash, permission.Hash("car_revoked")):
			return permission.Token{}, fmt.Errorf("find a token: %w: no such token", cron.ErrNotFound)
		}
		t.Errorf("something else was looked up: %x", hash)
		return permission.Token{}, cron.ErrNotFound
	}})
	procedures := map[string]carillonv1.Access{
		"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo":      carillonv1.Access_ACCESS_ADMIN,
		"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": carillonv1.Access_ACCESS_ADMIN,
		"/carillon.v1.CronService/Nothing":                               carillonv1.Access_ACCESS_UNSPECIFIED,
		"/carillon.v1/CronService":                                       carillonv1.Access_ACCESS_UNSPECIFIED,
		"/nobody.Knows/This":                                             carillonv1.Access_ACCESS_UNSPECIFIED,
		"/":                                                              carillonv1.Access_ACCESS_UNSPECIFIED,
		"/deep/down/carillon.v1.Access/Nothing":                          carillonv1.Access_ACCESS_UNSPECIFIED,
	}
	for _, m := range methods(t) {
		procedures[procedureOf(m)] = Access(procedureOf(m))
	}
	tokens := map[string]string{
		"none": "", "garbage": "Bearer garbage", "empty": "Bearer ", "blank": "Bearer  ", "basic": "Basic " + adminToken, "bare": adminToken,
		"prefix": "Bearer " + adminToken[:5], "longer": "Bearer " + adminToken + "x", "both": "Bearer " + adminToken + clusterToken,
		"admin": "Bearer " + adminToken, "cluster": "Bearer " + clusterToken,
		"tenant": "Bearer car_good", "nobody's": "Bearer car_nobodys", "revoked": "Bearer car_revoked", "hash": "Bearer " + string(permission.Hash("car_good")),
	}
	for procedure, access := range map[string]carillonv1.Access{ // an application may work with jobs, and steer none of them
		"EnqueueJobs": carillonv1.Access_ACCESS_MEMBER, "GetJob": carillonv1.Access_ACCESS_MEMBER, "WatchJob": carillonv1.Access_ACCESS_MEMBER,
		"ListJobs": carillonv1.Access_ACCESS_MEMBER, "CancelJob": carillonv1.Access_ACCESS_MEMBER, "RetryJob": carillonv1.Access_ACCESS_MEMBER,
		"RedriveJobs": carillonv1.Access_ACCESS_ADMIN, "PauseJobs": carillonv1.Access_ACCESS_ADMIN, "ResumeJobs": carillonv1.Access_ACCESS_ADMIN,
	} {
		if got := procedures["/carillon.v1.JobService/"+procedure]; got != access {
			t.Errorf("%s: %s, want %s", procedure, got, access)
		}
	}
	refusals := map[string]map[string]bool{}
	for procedure, access := range procedures {
		for _, contentType := range contentTypes {
			for name, header := range tokens {
				body := &garbage{}
				r := httptest.NewRequest(http.MethodPost, procedure, body)
				r.Header.Set("Content-Type", contentType)
				if header != "" {
					r.Header.Set("Authorization", header)
				}
				r.Header.Set(requestIDHeader, "same")
				w := httptest.NewRecorder()
				face.ServeHTTP(w, r)
				code, text := codeOf(t, w.Result())
				member := access == carillonv1.Access_ACCESS_MEMBER
				ofTenants := access == carillonv1.Access_ACCESS_TOKEN
				opens := name == "admin" && (member || ofTenants || access == carillonv1.Access_ACCESS_ADMIN) ||
					name == "cluster" && (member || access == carillonv1.Access_ACCESS_CLUSTER) || name == "tenant" && (member || ofTenants)
				where := procedure + " as " + contentType + " with " + name + " token"
				switch {
				case opens:
					if code == "unauthenticated" || code == "permission_denied" {
						t.Errorf("%s: %s", where, code)
					}
				case name == "admin" || name == "cluster" || name == "tenant":
					if code != "permission_denied" || body.read > 0 {
						t.Errorf("%s: %s after %d bytes", where, code, body.read)
					}
				default:
					if code != "unauthenticated" || body.read > 0 {
						t.Errorf("%s: %s after %d bytes", where, code, body.read)
					}
					if refusals[contentType] == nil {
						refusals[contentType] = map[string]bool{}
					}
					refusals[contentType][text] = true
				}
			}
		}
	}
	for contentType, texts := range refusals {
		if len(texts) != 1 {
			t.Errorf("refusals as %s differ: %v", contentType, texts)
		}
	}
}

func TestHealthIsOpenAndNothingBehindIt(t *testing.T) {
	face, _ := handler(t, new(store.Store), Tokens{Admin: adminToken, Cluster: clusterToken})
	for path, want := range map[string]int{
		"/grpc.health.v1.Health/Check":                                          200,
		"/carillon.v1.CronService/ListCronJobs/grpc.health.v1.Health/Check":     404,
		"/carillon.v1.CronService/ListCronJobs%2fgrpc.health.v1.Health%2fCheck": 404,
		"/grpc.health.v1.Health/../carillon.v1.CronService/ListCronJobs":        401,
		"/grpc.health.v1.Health/Check/":                                         401,
	} {
		r := httptest.NewRequest(http.MethodPost, path, strings.NewReader("{}"))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		face.ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("%s: %d %s, want %d", path, w.Code, w.Body, want)
		}
	}
}

func TestTokens(t *testing.T) {
	for _, c := range []struct {
		got, want string
		equal     bool
	}{{"a", "a", true}, {"a", "b", false}, {"a", "ab", false}, {"", "", false}, {"", "a", false}, {"a", "", false}} {
		if equal(c.got, c.want) != c.equal {
			t.Errorf("equal(%q, %q) is %t", c.got, c.want, !c.equal)
		}
	}
	// Tokens are compared in equal alone, and there in constant time.
	file, err := parser.ParseFile(gotoken.NewFileSet(), "tokens.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	constant := false
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BinaryExpr:
			left, right := n.X, n.Y
			for range 2 {
				id, _ := left.(*ast.Ident)
				field, _ := left.(*ast.SelectorExpr)
				secret := id != nil && (id.Name == "bearer" || id.Name == "got" || id.Name == "want") || field != nil && (field.Sel.Name == "Admin" || field.Sel.Name == "Cluster")
				if lit, ok := right.(*ast.BasicLit); secret && (!ok || lit.Value != `""`) {
					t.Errorf("a token is compared by %s", n.Op)
				}
				left, right = right, left
			}
		case *ast.SelectorExpr:
			constant = constant || n.Sel.Name == "ConstantTimeCompare"
		}
		return true
	})
	if !constant {
		t.Error("nothing is compared in constant time")
	}
}
