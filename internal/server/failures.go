package server

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"strconv"
	"syscall"
)

// Page is a page of failed records, as in failures.jsonl.
type Page struct {
	Failures []json.RawMessage `json:"failures"`
	// Next is the cursor of the next page. More: that page is not empty.
	Next string `json:"next"`
	More bool   `json:"more"`
}

const (
	defaultPage = 100
	maxPage     = 1000
	// maxPageBytes ends a page early: a traceback may be long.
	maxPageBytes = 4 << 20
)

// pageLimit is how many records a page has, pageAfter where it begins.
var (
	pageLimit = parameter{name: "limit", about: "records per page, 100 unless given", least: 1, most: maxPage}
	pageAfter = parameter{name: "after", about: "the next of an earlier page", pattern: "^[0-9]{1,18}$", most: 1e18 - 1}
)

// servePage serves a page of a failures.jsonl file. A cursor is the offset of a line.
func servePage(w http.ResponseWriter, r *http.Request, path string) {
	limit, err := pageLimit.number(r, defaultPage)
	after, wrong := pageAfter.number(r, 0)
	if err = cmp.Or(err, wrong); err != nil {
		failWith(w, err)
		return
	}
	page, err := readPage(path, after, int(limit))
	switch {
	case errors.Is(err, errCursor):
		fail(w, http.StatusNotFound, "after must be the next of an earlier page")
	case err != nil:
		fail(w, http.StatusInternalServerError, "read failures: %v", err)
	default:
		answer(w, http.StatusOK, page)
	}
}

var errCursor = errors.New("not the start of a line")

func readPage(path string, after int64, limit int) (Page, error) {
	page := Page{Failures: []json.RawMessage{}, Next: strconv.FormatInt(after, 10)}
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW, 0)
	if errors.Is(err, os.ErrNotExist) {
		return page, nil // no record has failed
	}
	if err != nil {
		return page, err
	}
	defer file.Close()
	if after > 0 {
		var before [1]byte
		if _, err := file.ReadAt(before[:], after-1); err != nil || before[0] != '\n' {
			return page, errCursor
		}
	}
	in := bufio.NewReaderSize(io.NewSectionReader(file, after, 1<<62), 64<<10)
	for size := 0; len(page.Failures) < limit && size < maxPageBytes; {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) { // the end, or a line that is being written
			return page, nil
		}
		if err != nil {
			return page, err
		}
		if !json.Valid(line) {
			return page, errors.New("the file is damaged")
		}
		page.Failures = append(page.Failures, line[:len(line)-1])
		after, size = after+int64(len(line)), size+len(line)
		page.Next = strconv.FormatInt(after, 10)
	}
	_, err = in.Peek(1)
	page.More = err == nil
	return page, nil
}
