// A server of Google Cloud Storage for tests: fake-gcs-server, behind what it leaves out: writing
// objects by the XML interface, that interface's errors, TLS, and logins.
//
//	server PORT CONTROL_PORT [CERTIFICATE KEY ACCOUNT_KEY]
package main

import (
	"encoding/json"
	"encoding/xml"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"

	"github.com/fsouza/fake-gcs-server/fakestorage"
)

func main() {
	log.SetFlags(0)
	args := os.Args[1:]
	fake, err := fakestorage.NewServerWithOptions(fakestorage.Options{NoListener: true})
	expect(err)
	front := &front{fake: fake.HTTPHandler()}
	listener, err := net.Listen("tcp", "127.0.0.1:"+args[0])
	expect(err)
	// The JSON interface, for the tests' own client.
	control, err := net.Listen("tcp", "127.0.0.1:"+args[1])
	expect(err)
	go func() { expect(http.Serve(control, front.fake)) }()
	log.Print("all ports are served")
	if len(args) == 2 {
		expect(http.Serve(listener, front))
	}
	front.login = readLogin(args[4])
	expect(http.ServeTLS(listener, front, args[2], args[3]))
}

func expect(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// Stands before fake-gcs-server.
type front struct {
	fake  http.Handler
	login *login
}

// Writes an object: https://cloud.google.com/storage/docs/xml-api/put-object
func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if f.login != nil && !f.login.allows(r) {
		refuse(w, http.StatusUnauthorized, "AuthenticationRequired")
		return
	}
	bucket, name, hasName := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	switch {
	case r.Method != http.MethodPut || !hasName:
		refuse(w, http.StatusMethodNotAllowed, "MethodNotAllowed")
		return
	case r.ContentLength < 0:
		refuse(w, http.StatusLengthRequired, "MissingContentLength")
		return
	}
	answer := f.upload(r, bucket, name)
	switch answer.Code {
	case http.StatusOK:
		var object struct {
			ETag       string `json:"etag"`
			Generation string `json:"generation"`
		}
		expect(json.Unmarshal(answer.Body.Bytes(), &object))
		w.Header().Set("ETag", `"`+strings.Trim(object.ETag, `"`)+`"`)
		w.Header().Set("x-goog-generation", object.Generation)
	case http.StatusNotFound:
		refuse(w, http.StatusNotFound, "NoSuchBucket")
	case http.StatusPreconditionFailed:
		refuse(w, http.StatusPreconditionFailed, "PreconditionFailed")
	default:
		log.Printf("%d: %s", answer.Code, answer.Body)
		refuse(w, http.StatusInternalServerError, "InternalError")
	}
}

// Asks the JSON interface for the same.
func (f *front) upload(r *http.Request, bucket, name string) *httptest.ResponseRecorder {
	query := url.Values{"uploadType": {"media"}, "name": {name}}
	if generation := r.Header.Get("x-goog-if-generation-match"); generation != "" {
		query.Set("ifGenerationMatch", generation)
	}
	target := "/upload/storage/v1/b/" + url.PathEscape(bucket) + "/o?" + query.Encode()
	inner := httptest.NewRequest(http.MethodPost, target, r.Body)
	inner.Header.Set("Content-Type", r.Header.Get("Content-Type"))
	answer := httptest.NewRecorder()
	f.fake.ServeHTTP(answer, inner)
	return answer
}

func refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml; charset=UTF-8")
	w.WriteHeader(status)
	type refusal struct {
		XMLName xml.Name `xml:"Error"`
		Code    string
		Message string
	}
	expect(xml.NewEncoder(w).Encode(refusal{Code: code, Message: http.StatusText(status)}))
}
