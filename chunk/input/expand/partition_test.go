package expand

import (
	"fmt"
	"strings"
	"testing"
)

// TestMembersOfFolders: folders name=value give members, of integers if all values are.
func TestMembersOfFolders(t *testing.T) {
	for _, test := range []struct{ files, want string }{
		{"d/a.jsonl", ""},
		{"d/lang=en/a.jsonl d/lang=de/a.jsonl", `lang:string="en" lang:string="de"`},
		{"d/year=2024/month=01/a.jsonl d/year=-5/month=12/a.jsonl", `year:int64=2024,month:int64=1 year:int64=-5,month:int64=12`},
		{"d/year=2024/a.jsonl d/year=next/a.jsonl", `year:string="2024" year:string="next"`},
		{"d/n=1/a.jsonl d/n=__HIVE_DEFAULT_PARTITION__/a.jsonl", `n:int64=1 n:int64=null`},
		{"d/n=99999999999999999999/a.jsonl", `n:string="99999999999999999999"`},
		{"d/t=12%3A30%2F/p%20q=%C3%A4/a.jsonl", `t:string="12:30/",p q:string="ä"`},
		{"d/t=50%/a.jsonl", `t:string="50%"`},
		{"d/a=b=c/=x/e=/a.jsonl", `a:string="b=c",e:string=""`},
		{"d/a=1/b=2/a=3/x.jsonl", `b:int64=2,a:int64=3`},
		{"d/lang=en.jsonl", ""},
	} {
		names := strings.Split(test.files, " ")
		folder(t, names...)
		files, _, err := Files([]string{"d"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, name := range names {
			at := 0
			for files[at].Name != name {
				at++
			}
			var members []string
			for _, m := range files[at].Members {
				members = append(members, fmt.Sprintf("%s:%s=%s", m.Name, m.Type, m.Value))
			}
			got = append(got, strings.Join(members, ","))
		}
		if text := strings.TrimSpace(strings.Join(got, " ")); text != test.want {
			t.Errorf("%s: %s, want %s", test.files, text, test.want)
		}
	}
}
