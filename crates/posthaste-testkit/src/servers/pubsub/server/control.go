package main

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"slices"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// The tests' own client: JSON over HTTP, on another port.
func (f *front) serveControl(listener net.Listener) {
	handler := http.NewServeMux()
	fake := &f.fake.GServer
	handler.HandleFunc("POST /CreateTopic", rpc(fake.CreateTopic))
	handler.HandleFunc("POST /DeleteTopic", rpc(fake.DeleteTopic))
	handler.HandleFunc("POST /CreateSubscription", rpc(fake.CreateSubscription))
	handler.HandleFunc("POST /fault", func(w http.ResponseWriter, r *http.Request) {
		var fault fault
		expect(json.NewDecoder(r.Body).Decode(&fault))
		f.mutex.Lock()
		f.faults = append(f.faults, fault)
		f.mutex.Unlock()
		answer(w, true)
	})
	handler.HandleFunc("POST /heal", func(w http.ResponseWriter, r *http.Request) {
		var healed fault
		expect(json.NewDecoder(r.Body).Decode(&healed))
		f.mutex.Lock()
		f.faults = slices.DeleteFunc(f.faults, func(fault fault) bool {
			return fault.Text == healed.Text
		})
		f.mutex.Unlock()
		answer(w, true)
	})
	handler.HandleFunc("POST /messages", func(w http.ResponseWriter, r *http.Request) {
		var question pubsubpb.GetTopicRequest
		read(r, &question)
		found := []map[string]any{}
		for _, message := range f.fake.Messages() {
			if message.Topic == question.Topic {
				found = append(found, map[string]any{
					"data":         message.Data,
					"attributes":   message.Attributes,
					"ordering_key": message.OrderingKey,
				})
			}
		}
		answer(w, found)
	})
	expect(http.Serve(listener, handler))
}

func rpc[Q, A any, P interface {
	*Q
	proto.Message
}](call func(context.Context, P) (A, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		question := P(new(Q))
		read(r, question)
		if _, err := call(r.Context(), question); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		answer(w, true)
	}
}

func read(r *http.Request, question proto.Message) {
	text, err := io.ReadAll(r.Body)
	expect(err)
	expect(protojson.Unmarshal(text, question))
}

func answer(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	expect(json.NewEncoder(w).Encode(value))
}
