package gpu

import "fmt"

// XidEvent is a critical error that the driver has reported of a device.
type XidEvent struct {
	Device Device `json:"device"`
	Xid    uint64 `json:"xid"`
}

// String returns it for a log: "GPU 3: Xid 79 (fallen off the bus)".
func (e XidEvent) String() string {
	if x, ok := xids[e.Xid]; ok {
		return fmt.Sprintf("%s: Xid %d (%s)", e.Device, e.Xid, x.means)
	}
	return fmt.Sprintf("%s: Xid %d", e.Device, e.Xid)
}

// XidFault reports whether an Xid means that the device is lost: it computes
// nothing more, or nothing right, before it is reset, and is to be retired. Of the
// others some are the application's own fault, which its kernel process dies or
// complains of, and the rest is only worth a line in the log.
func XidFault(xid uint64) (lost bool) { return xids[xid].whose == device }

// party is who an error is charged to.
type party uint8

const (
	nobody      party = iota // to be noted
	application              // a kernel that computed wrongly
	device                   // the card, or the driver's hold on it
)

// lostXid is the Xid of a GPU that does not answer any more. NVML may say so
// without an event: see WatchXids.
const lostXid = 79

// xids are those with a meaning here. The numbers and what they mean are from
// NVIDIA's Xid catalogue; those of the application are the ones that NVIDIA's own
// Kubernetes device plugin does not hold against a card.
var xids = map[uint64]struct {
	whose party
	means string
}{
	48:      {device, "double-bit ECC error"},
	62:      {device, "the card's micro-controller has halted"},
	64:      {device, "a bad page or row of memory could not be retired"},
	74:      {device, "NVLink error"},
	lostXid: {device, "fallen off the bus"},
	95:      {device, "uncontained memory error"},
	119:     {device, "the GPU's system processor does not answer"},
	120:     {device, "error of the GPU's system processor"},

	13:  {application, "exception in a kernel"},
	31:  {application, "memory page fault"},
	43:  {application, "stopped processing for one application"},
	45:  {application, "an application was ended"},
	68:  {application, "exception in the video decoder"},
	109: {application, "context switch timed out"},

	63:  {nobody, "a bad page or row of memory was retired"},
	92:  {nobody, "many single-bit ECC errors"},
	94:  {nobody, "memory error, contained to one application"},
	154: {nobody, "another recovery action is called for"},
}
