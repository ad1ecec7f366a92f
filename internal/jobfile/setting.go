package jobfile

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
	// Texts is one text, or the texts of a list.
	Texts []string
	// IsList tells a list from a text.
	IsList bool
	// JSON is a document that is a mapping or a list, else nil.
	JSON []byte
	// Steps are the kernels of a chain.
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
