package main

import (
	"context"
	"strings"
	"sync"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	carillonv1 "carillon/proto/carillon/v1"
	"carillon/proto/carillon/v1/carillonv1connect"
)

// fakeTriggers are the triggers, events and tokens of a fake controller. One named "gone" is nowhere, one named "hook"
// has no clock.
type fakeTriggers struct {
	carillonv1connect.UnimplementedTriggerServiceHandler
	carillonv1connect.UnimplementedEventServiceHandler
	carillonv1connect.UnimplementedTokenServiceHandler

	triggers []*carillonv1.Trigger // of ListTriggers, two on a page
	trigger  *carillonv1.Trigger   // of GetTrigger and CreateTrigger
	tokens   []*carillonv1.Token

	tmu         sync.Mutex
	askedFor    []*carillonv1.ListTriggersRequest
	created     []*carillonv1.CreateTriggerRequest
	steered     []string // what and whom
	published   []*carillonv1.PublishEventsRequest
	madeTokens  []*carillonv1.CreateTokenRequest
	tokenLists  []*carillonv1.ListTokensRequest
	refuseEvent *connect.Error
}

func (f *fakeTriggers) steer(what, id string) error {
	f.tmu.Lock()
	defer f.tmu.Unlock()
	f.steered = append(f.steered, what+" "+id)
	switch id {
	case "gone":
		return connect.NewError(connect.CodeNotFound, errString("not found: no trigger gone"))
	case "hook":
		return connect.NewError(connect.CodeFailedPrecondition, errString("failed precondition: no clock fires hook"))
	case "away":
		return connect.NewError(connect.CodeUnavailable, errString("the database does not answer"))
	}
	return nil
}

func (f *fakeTriggers) CreateTrigger(_ context.Context, req *carillonv1.CreateTriggerRequest) (*carillonv1.CreateTriggerResponse, error) {
	f.tmu.Lock()
	defer f.tmu.Unlock()
	f.created = append(f.created, req)
	if req.GetWorker() == "nobody" {
		return nil, connect.NewError(connect.CodeNotFound, errString("worker: could not find worker nobody\x1b[2J"))
	}
	return &carillonv1.CreateTriggerResponse{Trigger: f.trigger}, nil
}

func (f *fakeTriggers) GetTrigger(_ context.Context, req *carillonv1.GetTriggerRequest) (*carillonv1.GetTriggerResponse, error) {
	if err := f.steer("get", req.GetId()); err != nil {
		return nil, err
	}
	return &carillonv1.GetTriggerResponse{Trigger: f.trigger, NextSlots: []*timestamppb.Timestamp{at(5), at(10)}}, nil
}

func (f *fakeTriggers) ListTriggers(_ context.Context, req *carillonv1.ListTriggersRequest) (*carillonv1.ListTriggersResponse, error) {
	f.tmu.Lock()
	defer f.tmu.Unlock()
	f.askedFor = append(f.askedFor, req)
	begin := len(req.GetPageToken())
	end := min(begin+min(int(req.GetPageSize()), 2), len(f.triggers))
	resp := &carillonv1.ListTriggersResponse{Triggers: f.triggers[min(begin, end):end]}
	if end < len(f.triggers) {
		resp.NextPageToken = strings.Repeat("x", end)
	}
	return resp, nil
}

func (f *fakeTriggers) LaunchTrigger(_ context.Context, req *carillonv1.LaunchTriggerRequest) (*carillonv1.LaunchTriggerResponse, error) {
	return &carillonv1.LaunchTriggerResponse{JobId: "j-of-" + req.GetId()}, f.steer("launch", req.GetId())
}

func (f *fakeTriggers) PauseTrigger(_ context.Context, req *carillonv1.PauseTriggerRequest) (*carillonv1.PauseTriggerResponse, error) {
	what := "pause " + req.GetReason()
	if req.GetResume() {
		what = "resume"
	}
	return &carillonv1.PauseTriggerResponse{Trigger: &carillonv1.Trigger{Id: req.GetId(), NextExecution: at(5)}}, f.steer(what, req.GetId())
}

func (f *fakeTriggers) DeleteTrigger(_ context.Context, req *carillonv1.DeleteTriggerRequest) (*carillonv1.DeleteTriggerResponse, error) {
	return &carillonv1.DeleteTriggerResponse{}, f.steer("delete", req.GetId())
}

func (f *fakeTriggers) PublishEvents(_ context.Context, req *carillonv1.PublishEventsRequest) (*carillonv1.PublishEventsResponse, error) {
	f.tmu.Lock()
	defer f.tmu.Unlock()
	f.published = append(f.published, req)
	if f.refuseEvent != nil {
		return nil, f.refuseEvent
	}
	return &carillonv1.PublishEventsResponse{Accepted: int32(len(req.GetEvents()))}, nil
}

func (f *fakeTriggers) CreateToken(_ context.Context, req *carillonv1.CreateTokenRequest) (*carillonv1.CreateTokenResponse, error) {
	f.tmu.Lock()
	defer f.tmu.Unlock()
	f.madeTokens = append(f.madeTokens, req)
	t := &carillonv1.Token{Id: 7, Name: req.GetName(), Tenant: "acme", Kind: req.GetKind(), Scope: req.GetScope(), CreatedAt: at(0)}
	if req.GetExpiresIn() != nil {
		t.ExpiresAt = at(int(req.GetExpiresIn().AsDuration().Seconds()))
	}
	return &carillonv1.CreateTokenResponse{Secret: "car_secret", Token: t}, nil
}

func (f *fakeTriggers) ListTokens(_ context.Context, req *carillonv1.ListTokensRequest) (*carillonv1.ListTokensResponse, error) {
	f.tmu.Lock()
	defer f.tmu.Unlock()
	f.tokenLists = append(f.tokenLists, req)
	return &carillonv1.ListTokensResponse{Tokens: f.tokens}, nil
}

func (f *fakeTriggers) RevokeToken(_ context.Context, req *carillonv1.RevokeTokenRequest) (*carillonv1.RevokeTokenResponse, error) {
	if req.GetId() == 404 {
		return nil, connect.NewError(connect.CodeNotFound, errString("not found: token 404"))
	}
	return &carillonv1.RevokeTokenResponse{}, f.steer("revoke", "")
}
