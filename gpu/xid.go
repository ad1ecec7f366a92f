package gpu

import "fmt"

// XidEvent is a critical error that the driver reported for a device.
type XidEvent struct {
	Device Device `json:"device"`
	Xid    uint64 `json:"xid"`
}

// String returns the event as a log line: "GPU 3: Xid 79 (fallen off the bus)".
func (e XidEvent) String() string {
	if x, ok := xids[e.Xid]; ok {
		return fmt.Sprintf("%s: Xid %d (%s)", e.Device, e.Xid, x.means)
	}
	return fmt.Sprintf("%s: Xid %d", e.Device, e.Xid)
}

// XidFault reports whether an Xid means that the device is lost: it computes nothing, or
// nothing correct, until it is reset, and must be retired. Other Xids are either the
// application's fault, which its kernel process reports or dies from, or only worth a log
// line.
func XidFault(xid uint64) (lost bool) { return xids[xid].whose == device }

// XidNeedsReset reports whether a device with this Xid may still answer, but computes nothing
// correct before it is reset. A device that has fallen off the bus proves by its answers that
// it is back.
func XidNeedsReset(xid uint64) bool { return XidFault(xid) && xid != lostXid }

// party is the cause of an error.
type party uint8

const (
	unassigned  party = iota // only logged
	application              // an error in the kernel
	device                   // the card, or the driver's connection to it
)

// lostXid is the Xid of a GPU that no longer answers. NVML may report a lost GPU without
// an event: see WatchXids.
const lostXid = 79

// xids are those that gpurun knows. The numbers and meanings are from NVIDIA's Xid
// catalog; those of the application are the ones that NVIDIA's own Kubernetes device
// plugin does not count against a card.
var xids = map[uint64]struct {
	whose party
	means string
}{
	48:      {device, "double-bit ECC error"},
	62:      {device, "the card's microcontroller halted"},
	64:      {device, "a bad page or row of memory could not be retired"},
	74:      {device, "NVLink error"},
	lostXid: {device, "fallen off the bus"},
	95:      {device, "uncontained memory error"},
	119:     {device, "the GPU's system processor does not answer"},
	120:     {device, "GPU system processor error"},

	13:  {application, "exception in a kernel"},
	31:  {application, "memory page fault"},
	43:  {application, "stopped processing for one application"},
	45:  {application, "an application was terminated"},
	68:  {application, "exception in the video decoder"},
	109: {application, "context switch timed out"},

	63:  {unassigned, "a bad page or row of memory was retired"},
	92:  {unassigned, "many single-bit ECC errors"},
	94:  {unassigned, "memory error, contained to one application"},
	154: {unassigned, "the recommended recovery action changed"},
}
