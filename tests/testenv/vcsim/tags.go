package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"

	"github.com/vmware/govmomi/vim25/types"
)

const (
	restSession     = "/rest/com/vmware/cis/session"
	restCategory    = "/rest/com/vmware/cis/tagging/category"
	restTag         = "/rest/com/vmware/cis/tagging/tag"
	restAssociation = "/rest/com/vmware/cis/tagging/tag-association"
	restSessionID   = "vmware-api-session-id"
)

// tagClient changes tags through the simulator's REST handlers, called directly: nothing of it is counted,
// and its session is not one of the sessions a test sees.
type tagClient struct {
	handler    http.Handler
	session    string
	mu         sync.Mutex
	categories map[string]string
	tags       map[[2]string]string
}

func newTagClient(handler http.Handler, user, password string) (*tagClient, error) {
	t := &tagClient{handler: handler, categories: map[string]string{}, tags: map[[2]string]string{}}
	request := httptest.NewRequest(http.MethodPost, restSession, nil)
	request.SetBasicAuth(user, password)
	return t, t.do(request, &t.session)
}

func (t *tagClient) call(method, path string, body, result any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	return t.do(httptest.NewRequest(method, path, bytes.NewReader(text)), result)
}

func (t *tagClient) do(request *http.Request, result any) error {
	request.Header.Set(restSessionID, t.session)
	answer := httptest.NewRecorder()
	t.handler.ServeHTTP(answer, request)
	if answer.Code != http.StatusOK {
		return fmt.Errorf("%s %s: status %d %s", request.Method, request.URL, answer.Code, answer.Body)
	}
	if result == nil {
		return nil
	}
	return json.Unmarshal(answer.Body.Bytes(), &struct {
		Value any `json:"value"`
	}{result})
}

func (t *tagClient) createCategory(category Category) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, err := t.ensureCategory(category)
	return err
}

func (t *tagClient) ensureCategory(category Category) (string, error) {
	if id, ok := t.categories[category.Name]; ok {
		return id, nil
	}
	if category.Cardinality == "" {
		category.Cardinality = "SINGLE"
	}
	var id string
	err := t.call(http.MethodPost, restCategory, map[string]any{"create_spec": map[string]any{
		"name": category.Name, "description": "", "cardinality": category.Cardinality, "associable_types": category.Types,
	}}, &id)
	if err == nil {
		t.categories[category.Name] = id
	}
	return id, err
}

func (t *tagClient) ensureTag(category, name string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.tags[[2]string{category, name}]; ok {
		return nil
	}
	parent, err := t.ensureCategory(Category{Name: category})
	if err != nil {
		return err
	}
	var id string
	err = t.call(http.MethodPost, restTag, map[string]any{"create_spec": map[string]any{
		"name": name, "description": "", "category_id": parent,
	}}, &id)
	if err == nil {
		t.tags[[2]string{category, name}] = id
	}
	return err
}

func (t *tagClient) find(category, name string) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if id, ok := t.tags[[2]string{category, name}]; ok {
		return id, nil
	}
	return "", fmt.Errorf("there is no tag %q in category %q", name, category)
}

func (t *tagClient) attach(category, name string, object types.ManagedObjectReference, attached bool) error {
	id, err := t.find(category, name)
	if err != nil {
		return err
	}
	action := "detach"
	if attached {
		action = "attach"
	}
	return t.call(http.MethodPost, restAssociation+"/id:"+id+"?~action="+action, map[string]any{
		"object_id": map[string]string{"id": object.Value, "type": object.Type},
	}, nil)
}

// rename gives the tag another name; its id and what it is attached to stay.
func (t *tagClient) rename(category, from, to string) error {
	id, err := t.find(category, from)
	if err != nil {
		return err
	}
	err = t.call(http.MethodPatch, restTag+"/id:"+id, map[string]any{"update_spec": map[string]any{"name": to}}, nil)
	if err == nil {
		t.mu.Lock()
		delete(t.tags, [2]string{category, from})
		t.tags[[2]string{category, to}] = id
		t.mu.Unlock()
	}
	return err
}

func (t *tagClient) delete(category, name string) error {
	id, err := t.find(category, name)
	if err != nil {
		return err
	}
	err = t.call(http.MethodDelete, restTag+"/id:"+id, nil, nil)
	if err == nil {
		t.mu.Lock()
		delete(t.tags, [2]string{category, name})
		t.mu.Unlock()
	}
	return err
}

// endSession ends a REST session of a client.
func (t *tagClient) endSession(id string) {
	request := httptest.NewRequest(http.MethodDelete, restSession, nil)
	request.Header.Set(restSessionID, id)
	t.handler.ServeHTTP(httptest.NewRecorder(), request)
}
