package jobfile

// Kind is which values a setting takes.
type Kind int

const (
	// Text is a string. A number stands for its text.
	Text Kind = iota
	// Bool is true or false.
	Bool
	// Int is a whole number.
	Int
	// Duration is a text such as 30s.
	Duration
	// Size is a number of bytes, or a text such as 32MiB.
	Size
	// List is a list of texts, or one text.
	List
	// Document is any value. A mapping or a list becomes JSON; a text stays as it is.
	Document
	// Steps is a list of kernels, each with its configuration.
	Steps
)

// Setting is a key that a job file may contain.
type Setting struct {
	Name string
	// Group is the heading that lists it.
	Group string
	Kind  Kind
	// Words are texts that the setting takes besides the values of its kind; if Closed, it
	// takes no other value.
	Words  []string
	Closed bool
	// Usage describes the setting in the schema.
	Usage string
	// Default is the value without the setting, for the schema; "" for none.
	Default string
	// Check, if set, returns why the setting does not take a text.
	Check func(text string) error
	// Excludes are settings that a file with this one must not contain.
	Excludes []string
	// Instead of these keys users write this one; the message says so.
	Instead []string
}

// Keys of a job file that are no settings of their own.
const (
	// StepKernel and StepConfig are the keys of a step.
	StepKernel = "kernel"
	StepConfig = "config"
)

// File is a job file without mistakes.
type File struct {
	// Name is how messages refer to the file.
	Name string
	// Values are the settings in it, by name.
	Values map[string]Value
}

// Value is a setting in a job file.
type Value struct {
	// Texts is one text, or those of a list.
	Texts []string
	// IsList tells a list from a text.
	IsList bool
	// JSON is a Document that is a mapping or a list, else nil.
	JSON []byte
	// Steps are those of a setting of kind Steps.
	Steps []Step
	Line  int
}

// Step is one kernel of a chain.
type Step struct {
	Kernel string
	// Config is the step's configuration; its zero value means none.
	Config Value
	Line   int
}
