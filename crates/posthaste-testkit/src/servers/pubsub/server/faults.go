package main

import (
	"context"
	"strings"

	"cloud.google.com/go/iam/apiv1/iampb"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// The limits of Google's documentation.
const (
	requestBytesMax  = 10_000_000
	messagesMax      = 1_000
	attributesMax    = 100
	nameBytesMax     = 256
	valueBytesMax    = 1_024
	orderingBytesMax = 1_024
)

// Calls of a method that have this text in them fail so.
type fault struct {
	Text   string     `json:"text"`
	Method string     `json:"method"`
	Code   codes.Code `json:"code"`
	Words  string     `json:"words"`
	// `silent`, `cut`, `kept` (done, and then refused), `short` (an answer that leaves one out) or
	// `none` (no right).
	Act string `json:"act"`
}

func (f *front) faultOf(method, text string) *fault {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.calls++
	for _, fault := range f.faults {
		if fault.Method == method && strings.Contains(text, fault.Text) {
			return &fault
		}
	}
	return nil
}

func (f *front) intercept(
	ctx context.Context, question any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler,
) (any, error) {
	if f.login != nil {
		if err := f.login.check(ctx); err != nil {
			return nil, err
		}
	}
	method := info.FullMethod[strings.LastIndex(info.FullMethod, "/")+1:]
	if publish, ok := question.(*pubsubpb.PublishRequest); ok {
		if err := checkLimits(publish); err != nil {
			return nil, err
		}
	}
	fault := f.faultOf(method, textOf(question))
	if fault == nil {
		return handle(ctx, question)
	}
	switch fault.Act {
	case "silent":
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	case "cut":
		if from, ok := peer.FromContext(ctx); ok {
			f.mutex.Lock()
			f.connections[from.Addr.String()].Close()
			f.mutex.Unlock()
		}
	case "kept":
		if _, err := handle(ctx, question); err != nil {
			return nil, err
		}
	case "short":
		answer, err := handle(ctx, question)
		if err != nil {
			return nil, err
		}
		ids := answer.(*pubsubpb.PublishResponse).MessageIds
		return &pubsubpb.PublishResponse{MessageIds: ids[1:]}, nil
	case "none":
		return &iampb.TestIamPermissionsResponse{}, nil
	}
	return nil, status.Error(fault.Code, fault.Words)
}

func textOf(question any) string {
	publish, ok := question.(*pubsubpb.PublishRequest)
	if !ok {
		return question.(interface{ String() string }).String()
	}
	var text strings.Builder
	text.WriteString(publish.Topic)
	for _, message := range publish.Messages {
		text.WriteString("\n" + message.Attributes["key"])
	}
	return text.String()
}

func checkLimits(request *pubsubpb.PublishRequest) error {
	wrong := func(words string) error { return status.Error(codes.InvalidArgument, words) }
	if proto.Size(request) > requestBytesMax {
		return wrong("The request is too large")
	}
	if count := len(request.Messages); count < 1 || count > messagesMax {
		return wrong("The number of messages is out of range")
	}
	for _, message := range request.Messages {
		if len(message.Data) == 0 && len(message.Attributes) == 0 {
			return wrong("A message must not be empty")
		}
		if len(message.OrderingKey) > orderingBytesMax {
			return wrong("The ordering key is too long")
		}
		if len(message.Attributes) > attributesMax {
			return wrong("A message has too many attributes")
		}
		for name, value := range message.Attributes {
			isReserved := strings.HasPrefix(strings.ToLower(name), "goog")
			if len(name) < 1 || len(name) > nameBytesMax || isReserved {
				return wrong("An attribute has a wrong key")
			}
			if len(value) > valueBytesMax {
				return wrong("An attribute has a value that is too long")
			}
		}
	}
	return nil
}
