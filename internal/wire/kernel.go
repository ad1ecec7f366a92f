package wire

// Source is a code file that results depend on, as the kernel process loaded it; see
// plugins.Source. Sum is empty if the file is no longer readable. A worker sends each
// source once, before or with the first results that depend on it.
type Source struct {
	Path string `json:"path"`
	Sum  string `json:"sum,omitempty"`
}
