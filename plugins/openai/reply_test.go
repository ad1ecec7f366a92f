package openai

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/plugins"
)

// answering starts a server that gives every request the same answer.
func answering(t *testing.T, body string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", jsonType)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// All choices of an answer are kept, by their index, in a list if the request asks for several.
func TestChoices(t *testing.T) {
	chat := func(index int, text string) string {
		return fmt.Sprintf(`{"index":%d,"message":{"content":%s},"finish_reason":"stop"}`, index, text)
	}
	for name, test := range map[string]struct{ config, choices, want string }{
		"one":               {`{}`, chat(0, `"a"`), `"a"`},
		"three":             {`{"n":3}`, chat(0, `"a"`) + ", " + chat(1, `"b\u003c"`) + "\n," + chat(2, `""`), `["a","b<",""]`},
		"by index":          {`{"n":2}`, chat(1, `"b"`) + "," + chat(0, `"a"`), `["a","b"]`},
		"fewer than asked":  {`{"n":3}`, chat(0, `"a"`), `["a"]`},
		"more than asked":   {`{}`, chat(0, `"a"`) + "," + chat(1, `"b"`), `["a","b"]`},
		"one of them empty": {`{"n":2}`, chat(0, `"a"`) + "," + chat(1, `null`), "has no choices[1].message.content"},
		"a refusal":         {`{"n":2}`, chat(0, `"a"`) + `,{"index":1,"message":{"content":null,"refusal":"no\u003c"}}`, "is a refusal: no<"},
		"half a character":  {`{}`, chat(0, `"a\ud83d"`), "not valid Unicode"},
		"whole characters":  {`{}`, chat(0, `"\ufffd\uFFFD`+"\ufffd"+`\ud83d\ude00"`), "\"\ufffd\ufffd\ufffd😀\""},
	} {
		t.Run(name, func(t *testing.T) {
			k := open(t, answering(t, `{"choices":[`+test.choices+`]}`), `{"model":"m","prompt":"x","body":`+test.config+`}`)
			switch a := ask(t, k, `{"id":1}`); {
			case a.Verdict == plugins.Lines && string(a.Lines[0]) == `{"id":1,"response":`+test.want+`}`:
			case a.Verdict == plugins.Failed && strings.Contains(a.Message, test.want):
			default:
				t.Errorf("%v %s %q", a.Verdict, a.Message, a.Lines)
			}
		})
	}
}

// An answer that the server cut off is counted and, if that is asked for, fails its record. Its
// tokens are paid for either way.
func TestTruncatedAnswers(t *testing.T) {
	const prompt, line = `"model":"m","prompt":"x"`, `{"custom_id":"a","url":"/v1/responses","body":{}}`
	for name, test := range map[string]struct {
		settings, record, answer string
		truncated                int64
	}{
		"complete":           {prompt, `{}`, `"choices":[{"message":{"content":"a"},"finish_reason":"stop"}]`, 0},
		"cut off":            {prompt, `{}`, `"choices":[{"message":{"content":"a"},"finish_reason":"length"}]`, 1},
		"one of three":       {prompt + `,"body":{"n":3}`, `{}`, `"choices":[{"message":{"content":"a"},"finish_reason":"stop"},{"message":{"content":"a"},"finish_reason":"length"},{"message":{"content":"a"},"finish_reason":"length"}]`, 1},
		"completions":        {prompt + `,"endpoint":"completions"`, `{}`, `"choices":[{"text":"a","finish_reason":"length"}]`, 1},
		"line":               {"", line, `"choices":[{"message":{"content":"a"},"finish_reason":"length"}]`, 1},
		"response":           {"", line, `"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"},"output":[]`, 1},
		"complete response":  {"", line, `"status":"completed","incomplete_details":null,"output":[]`, 0},
		"without text, too":  {prompt, `{}`, `"choices":[{"message":{"content":null},"finish_reason":"length"}]`, 1},
		"embeddings have no": {prompt + `,"endpoint":"embeddings"`, `{}`, `"data":[{"embedding":[1]}]`, 0},
	} {
		t.Run(name, func(t *testing.T) {
			url := answering(t, `{`+test.answer+`,"usage":{"total_tokens":3}}`)
			for _, choice := range []string{"", "keep", "fail"} {
				settings := test.settings
				if choice != "" {
					settings = strings.TrimPrefix(settings+`,"truncated":"`+choice+`"`, ",")
				}
				a := ask(t, open(t, url, `{`+settings+`}`), test.record)
				fails := choice == "fail" && test.truncated > 0 || strings.HasPrefix(name, "without text")
				if a.Figures["truncated"] != test.truncated || a.Figures["total_tokens"] != 3 || (a.Verdict == plugins.Failed) != fails {
					t.Errorf("%s: %+v", settings, a)
				}
				if test.truncated > 0 && fails && !strings.Contains(a.Message, "cut") {
					t.Errorf("%s: %s", settings, a.Message)
				}
			}
		})
	}
}
