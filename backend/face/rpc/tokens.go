package rpc

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"

	"connectrpc.com/authn"
	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	carillonv1 "carillon/proto/carillon/v1"
)

// Tokens are the two bearer tokens of a cluster: Admin for people and the CLI, Cluster for controllers and runners.
// Neither opens the other's RPCs, and either those of members. Both empty: no authentication, for a cluster on loopback alone.
type Tokens struct{ Admin, Cluster string }

// guard refuses a request before anything of its body is read. What a method allows stands in its proto option; a
// method without one is open to nobody.
func (t Tokens) guard(next http.Handler) http.Handler {
	if t.Admin == "" && t.Cluster == "" {
		return next
	}
	return authn.NewMiddleware(t.authenticate).Wrap(next)
}

func (t Tokens) authenticate(_ context.Context, r *http.Request) (any, error) {
	procedure, known := authn.InferProcedure(r.URL)
	if known && strings.HasPrefix(procedure, "/"+grpchealth.HealthV1ServiceName+"/") {
		return "probe", nil // says only whether the controller is ready
	}
	bearer, _ := authn.BearerToken(r)
	admin, cluster := equal(bearer, t.Admin), equal(bearer, t.Cluster)
	if !admin && !cluster {
		return nil, authn.Errorf("a valid bearer token is needed")
	}
	switch access := Access(procedure); {
	case access == carillonv1.Access_ACCESS_ADMIN && admin:
		return "admin", nil
	case access == carillonv1.Access_ACCESS_CLUSTER && cluster:
		return "cluster", nil
	case access == carillonv1.Access_ACCESS_MEMBER:
		return "member", nil
	}
	return nil, connect.NewError(connect.CodePermissionDenied, errForbidden)
}

// equal compares in constant time, whatever the lengths; an unset token equals nothing.
func equal(got, want string) bool {
	a, b := sha256.Sum256([]byte(got)), sha256.Sum256([]byte(want))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1 && want != ""
}

// Access reads which token opens a procedure ("/carillon.v1.CronService/ListCronJobs").
func Access(procedure string) carillonv1.Access {
	if strings.HasPrefix(procedure, "/grpc.reflection.") {
		return carillonv1.Access_ACCESS_ADMIN
	}
	name := protoreflect.FullName(strings.ReplaceAll(strings.TrimPrefix(procedure, "/"), "/", "."))
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(name)
	if _, isMethod := d.(protoreflect.MethodDescriptor); err != nil || !isMethod {
		return carillonv1.Access_ACCESS_UNSPECIFIED // options of anything else hold no access, and asking them for it panics
	}
	access, _ := proto.GetExtension(d.Options(), carillonv1.E_Access).(carillonv1.Access)
	return access
}
