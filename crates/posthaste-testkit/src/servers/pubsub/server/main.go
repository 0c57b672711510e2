// A server of Pub/Sub for tests: pstest, of Google's own client library, behind what it leaves out:
// TLS, logins, rights, the limits of a message, and faults that a test asks for.
//
//	server PORT CONTROL_PORT [CERTIFICATE KEY] [ACCOUNT_KEY]
package main

import (
	"context"
	"log"
	"net"
	"os"
	"sync"

	"cloud.google.com/go/iam/apiv1/iampb"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"cloud.google.com/go/pubsub/v2/pstest"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

// Bytes that the server reads, a little more than a request may have: it refuses that itself.
const readMax = 12_000_000

func main() {
	log.SetFlags(0)
	args := os.Args[1:]
	options := []grpc.ServerOption{grpc.MaxRecvMsgSize(readMax)}
	front := &front{fake: pstest.NewServer()}
	if len(args) > 2 {
		tls, err := credentials.NewServerTLSFromFile(args[2], args[3])
		expect(err)
		options = append(options, grpc.Creds(tls))
	}
	if len(args) > 4 {
		front.login = readLogin(args[4])
	}
	options = append(options, grpc.UnaryInterceptor(front.intercept))
	server := grpc.NewServer(options...)
	pubsubpb.RegisterPublisherServer(server, &front.fake.GServer)
	pubsubpb.RegisterSubscriberServer(server, &front.fake.GServer)
	iampb.RegisterIAMPolicyServer(server, &rights{front: front})
	listener, err := net.Listen("tcp", "127.0.0.1:"+args[0])
	expect(err)
	control, err := net.Listen("tcp", "127.0.0.1:"+args[1])
	expect(err)
	go front.serveControl(control)
	log.Print("all ports are served")
	expect(server.Serve(&tracked{Listener: listener, front: front}))
}

func expect(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// Stands before pstest.
type front struct {
	fake  *pstest.Server
	login *login

	mutex       sync.Mutex
	faults      []fault
	connections map[string]net.Conn
	calls       int
}

// Remembers connections, so that a fault can cut one.
type tracked struct {
	net.Listener
	front *front
}

func (t *tracked) Accept() (net.Conn, error) {
	connection, err := t.Listener.Accept()
	if err == nil {
		t.front.mutex.Lock()
		defer t.front.mutex.Unlock()
		if t.front.connections == nil {
			t.front.connections = map[string]net.Conn{}
		}
		t.front.connections[connection.RemoteAddr().String()] = connection
	}
	return connection, err
}

// Rights, which pstest does not know: everybody has all, unless a fault takes them.
type rights struct {
	iampb.UnimplementedIAMPolicyServer
	front *front
}

func (r *rights) TestIamPermissions(
	_ context.Context, question *iampb.TestIamPermissionsRequest,
) (*iampb.TestIamPermissionsResponse, error) {
	return &iampb.TestIamPermissionsResponse{Permissions: question.Permissions}, nil
}
