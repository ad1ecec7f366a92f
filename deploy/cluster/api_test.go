package cluster

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

// object is an object of the API, decoded from JSON.
type object map[string]any

// at returns the member at a path, nil if there is none.
func (o object) at(path ...string) any {
	var value any = map[string]any(o)
	for _, name := range path {
		members, _ := value.(map[string]any)
		value = members[name]
	}
	return value
}

func (o object) text(path ...string) string {
	text, _ := o.at(path...).(string)
	return text
}

func (o object) number(path ...string) int {
	number, _ := o.at(path...).(float64)
	return int(number)
}

// list returns the objects of a list; none if it is missing.
func (o object) list(path ...string) (list []object) {
	values, _ := o.at(path...).([]any)
	for _, value := range values {
		list = append(list, value.(map[string]any))
	}
	return list
}

func (o object) name() string { return o.text("metadata", "name") }

// condition returns the status of a condition, "" if there is none.
func (o object) condition(kind string) string {
	for _, one := range o.list("status", "conditions") {
		if one.text("type") == kind {
			return one.text("status")
		}
	}
	return ""
}

// client speaks to the API server.
type client struct {
	address, token string
	http           *http.Client
}

func newClient(t *testing.T, address, token, certificate string) *client {
	t.Helper()
	text, err := os.ReadFile(certificate)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(text)
	return &client{address, token, &http.Client{
		Timeout: 30 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}},
	}}
}

// apiError is the answer to a refused request.
type apiError struct {
	code int
	text string
}

func (e *apiError) Error() string { return fmt.Sprintf("%d: %s", e.code, e.text) }

// do sends a request. A PATCH is a strategic merge patch: it merges lists by their keys.
func (c *client) do(method, path string, body any) (object, error) {
	var text []byte
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	request, err := http.NewRequest(method, c.address+path, bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+c.token)
	request.Header.Set("Content-Type", "application/json")
	if method == "PATCH" {
		request.Header.Set("Content-Type", "application/strategic-merge-patch+json")
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err = io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	var answer object
	_ = json.Unmarshal(text, &answer) // /readyz answers with a text
	if response.StatusCode >= 300 {
		return nil, &apiError{response.StatusCode, answer.text("message")}
	}
	return answer, nil
}

// collection returns the path of the objects of a kind.
func collection(o object, namespace string) string {
	version := o.text("apiVersion")
	root := "/apis/" + version
	if !strings.Contains(version, "/") {
		root = "/api/" + version
	}
	if given := o.text("metadata", "namespace"); given != "" {
		namespace = given
	}
	if namespace != "" {
		root += "/namespaces/" + namespace
	}
	return root + "/" + strings.ToLower(o.text("kind")) + "s"
}

// create creates an object, strictly: an unknown member is an error.
func (c *client) create(o object, namespace, options string) (object, error) {
	return c.do("POST", collection(o, namespace)+"?fieldValidation=Strict"+options, o)
}
