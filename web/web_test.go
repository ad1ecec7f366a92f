package web

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

func get(t *testing.T, path string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	request := httptest.NewRequest(http.MethodGet, path, nil)
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	recorder := httptest.NewRecorder()
	Handler().ServeHTTP(recorder, request)
	return recorder
}

// Every file that the page names is served, with a policy that forbids all else.
func TestPageIsComplete(t *testing.T) {
	page := get(t, "/")
	if page.Code != http.StatusOK || page.Header().Get("Content-Security-Policy") != Policy {
		t.Fatalf("GET /: %d, policy %q", page.Code, page.Header().Get("Content-Security-Policy"))
	}
	named := regexp.MustCompile(`(?:src|href)="([^"]+)"`).FindAllStringSubmatch(page.Body.String(), -1)
	if len(named) != 3 {
		t.Errorf("the page names %d files, want script, style and icon", len(named))
	}
	for _, name := range named {
		if got := get(t, "/"+name[1]); got.Code != http.StatusOK || got.Header().Get("Content-Type") == "" {
			t.Errorf("GET /%s: %d, type %q", name[1], got.Code, got.Header().Get("Content-Type"))
		}
	}
	if regexp.MustCompile(`<script>|style="| on[a-z]+="`).MatchString(page.Body.String()) {
		t.Error("the page has inline script or style, which its policy forbids")
	}
}

func TestUnknownAssets(t *testing.T) {
	for _, path := range []string{"/assets/report.html", "/assets/", "/assets/..%2fweb.go", "/assets/app.js/", "/other"} {
		if got := get(t, path); got.Code != http.StatusNotFound {
			t.Errorf("GET %s: %d, want 404", path, got.Code)
		}
	}
}

func TestAssetsAreCached(t *testing.T) {
	first := get(t, "/assets/app.js")
	if got := get(t, "/assets/app.js", "If-None-Match", first.Header().Get("ETag")); got.Code != http.StatusNotModified {
		t.Errorf("the same version: %d, want 304", got.Code)
	}
}

// A report loads nothing, and no text of a job can end its elements.
func TestReportIsOneFile(t *testing.T) {
	var out strings.Builder
	hostile := `</script><script>alert(1)</script>{{.Script}}`
	if err := WriteReport(&out, hostile, map[string]string{"message": hostile}); err != nil {
		t.Fatal(err)
	}
	page := out.String()
	if n := strings.Count(page, "</script>"); n != 2 {
		t.Errorf("%d script elements end, want 2", n)
	}
	if n := strings.Count(page, "alert(1)"); n != 2 || strings.Contains(page, "<script>alert") {
		t.Errorf("the hostile text occurs %d times, or as an element", n)
	}
	if found := regexp.MustCompile(`(?:src|href)="`).FindString(page); found != "" {
		t.Errorf("the report names other files: %s", found)
	}
	if !strings.Contains(page, "sha256-"+sum(read("report.js"))) {
		t.Error("the policy does not allow the script")
	}
}
