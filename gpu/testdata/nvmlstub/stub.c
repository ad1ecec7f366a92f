/*
 * A libnvidia-ml.so.1 that stands for a machine of GPUs, for tests on machines
 * that have none. It holds just the calls that package gpu makes through
 * go-nvml; any other ends the process with "symbol lookup error", so add here
 * what you begin to call there.
 *
 *   cc -shared -fPIC -o DIR/libnvidia-ml.so.1 stub.c
 *   LD_LIBRARY_PATH=DIR NVMLSTUB_GPUS=4 gpurun ...
 *
 * LD_LIBRARY_PATH is read when a process starts: set it on the process that is
 * to see these GPUs, not in it. The steering is by environment variables:
 *
 *   NVMLSTUB_GPUS=N      number of GPUs, 0 to 64 (default 2)
 *   NVMLSTUB_NAMES=A,B   model of GPU 0, 1, ...; the last holds for the rest
 *                        (default "NVIDIA Stub")
 *   NVMLSTUB_INIT=hang   nvmlInit never returns
 *   NVMLSTUB_INIT=fail   nvmlInit fails: driver not loaded (9)
 *   NVMLSTUB_INIT=CODE   nvmlInit fails with this number, e.g. 18: versions
 *                        of driver and library differ
 *   NVMLSTUB_LOST=I,J    these GPUs are lost: no handle for them
 *   NVMLSTUB_EVENTS=FILE each line "INDEX XID" of this file, also one appended
 *                        later, is an event of that GPU, told once in a process
 *                        and only to who waits for that GPU; "INDEX lost" loses
 *                        the GPU in this process, without an event
 *   NVMLSTUB_EVENTS=none the GPUs tell of no events
 *   NVMLSTUB_EVENTS=hang a wait for an event never returns
 *   NVMLSTUB_GAUGES=FILE what the GPUs measure, read at every call: lines
 *                        "INDEX load PERCENT", "INDEX temperature CELSIUS",
 *                        "INDEX power WATTS", "INDEX used MIB" (of memory) and
 *                        "INDEX process PID MIB"; "INDEX load none" is not
 *                        supported. Without a line: 0 %, 40 C, 100 W of 700 W,
 *                        1024 MiB, no process.
 *   NVMLSTUB_LOG=FILE    append a line "CALL THREAD" for every call
 *
 * GPU i has the UUID GPU-0000000i-0000-4000-8000-000000000000 (i in hex, 8
 * digits), 80 GiB of memory, of which 1 GiB is in use unless NVMLSTUB_GAUGES says
 * otherwise, the PCI bus 0x10+i, and
 * CPU i modulo the number of CPUs is near it. The driver is 580.00.00.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/syscall.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9, TIMEOUT = 10, GPU_IS_LOST = 15 };
enum { XID_CRITICAL_ERROR = 8 };
enum { MAX_GPUS = 64 };

typedef int nvmlReturn_t;
typedef struct { unsigned index; } *nvmlDevice_t;
typedef struct {
	char busIdLegacy[16];
	unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
	char busId[32];
} nvmlPciInfo_t;
typedef struct { unsigned long long total, free, used; } nvmlMemory_t;
typedef struct { int watched[MAX_GPUS]; } *nvmlEventSet_t;
typedef struct {
	nvmlDevice_t device;
	unsigned long long eventType, eventData;
	unsigned gpuInstanceId, computeInstanceId;
} nvmlEventData_t;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } nvmlMemory_v2_t;

static const unsigned long long GiB = 1ULL << 30;

static void note(const char *call)
{
	const char *path = getenv("NVMLSTUB_LOG");
	FILE *f = path ? fopen(path, "a") : NULL;
	if (f) {
		fprintf(f, "%s %ld\n", call, (long)syscall(SYS_gettid));
		fclose(f);
	}
}

static unsigned gpus(void)
{
	const char *n = getenv("NVMLSTUB_GPUS");
	unsigned long count = n && *n ? strtoul(n, NULL, 10) : 2;
	return count < MAX_GPUS ? (unsigned)count : MAX_GPUS;
}

static struct { unsigned index; } devices[MAX_GPUS];
static int gone[MAX_GPUS]; /* by a line of NVMLSTUB_EVENTS */

static int lost(unsigned index)
{
	const char *list = getenv("NVMLSTUB_LOST");
	if (gone[index])
		return 1;
	while (list && *list) {
		char *end;
		unsigned long i = strtoul(list, &end, 10);
		if (end == list)
			break;
		if (i == index)
			return 1;
		list = *end ? end + 1 : end;
	}
	return 0;
}

static nvmlReturn_t text(char *to, unsigned size, const char *from, size_t length)
{
	if (length >= size)
		return INSUFFICIENT_SIZE;
	memcpy(to, from, length);
	to[length] = 0;
	return SUCCESS;
}

static nvmlReturn_t init(void)
{
	const char *how = getenv("NVMLSTUB_INIT");
	if (!how || !*how)
		return SUCCESS;
	if (strcmp(how, "hang") == 0)
		for (;;)
			pause();
	return strcmp(how, "fail") == 0 ? DRIVER_NOT_LOADED : atoi(how);
}

nvmlReturn_t nvmlInit_v2(void) { note("nvmlInit"); return init(); }
nvmlReturn_t nvmlInit(void) { return nvmlInit_v2(); }
nvmlReturn_t nvmlInitWithFlags(unsigned flags) { (void)flags; return nvmlInit_v2(); }
nvmlReturn_t nvmlShutdown(void) { note("nvmlShutdown"); return SUCCESS; }

const char *nvmlErrorString(nvmlReturn_t r)
{
	switch (r) {
	case SUCCESS: return "Success";
	case INVALID_ARGUMENT: return "Invalid Argument";
	case NOT_SUPPORTED: return "Not Supported";
	case INSUFFICIENT_SIZE: return "Insufficient Size";
	case DRIVER_NOT_LOADED: return "Driver Not Loaded";
	case TIMEOUT: return "Timeout";
	case GPU_IS_LOST: return "GPU is lost";
	default: return "Unknown Error";
	}
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned size)
{
	note("nvmlSystemGetDriverVersion");
	return text(version, size, "580.00.00", 9);
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count)
{
	note("nvmlDeviceGetCount");
	*count = gpus();
	return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device)
{
	note("nvmlDeviceGetHandleByIndex");
	if (index >= gpus())
		return INVALID_ARGUMENT;
	if (lost(index))
		return GPU_IS_LOST;
	devices[index].index = index;
	*device = (nvmlDevice_t)&devices[index];
	return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned *index)
{
	note("nvmlDeviceGetIndex");
	*index = device->index;
	return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned size)
{
	char s[64];
	note("nvmlDeviceGetUUID");
	int length = snprintf(s, sizeof s, "GPU-%08x-0000-4000-8000-000000000000", device->index);
	return text(uuid, size, s, (size_t)length);
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned size)
{
	const char *names = getenv("NVMLSTUB_NAMES");
	note("nvmlDeviceGetName");
	if (!names || !*names)
		names = "NVIDIA Stub";
	for (unsigned i = 0; i < device->index; i++) {
		const char *comma = strchr(names, ',');
		if (!comma)
			break;
		names = comma + 1;
	}
	return text(name, size, names, strcspn(names, ","));
}

/* gauge reads a line of NVMLSTUB_GAUGES; without one the value stays. */
static nvmlReturn_t gauge(unsigned index, const char *name, unsigned *value)
{
	const char *path = getenv("NVMLSTUB_GAUGES");
	FILE *f = path ? fopen(path, "r") : NULL;
	char line[128], what[32], text[32];
	unsigned i;
	nvmlReturn_t ret = SUCCESS;
	while (f && fgets(line, sizeof line, f)) {
		if (sscanf(line, "%u %31s %31s", &i, what, text) != 3 || i != index || strcmp(what, name) != 0)
			continue;
		if (strcmp(text, "none") == 0)
			ret = NOT_SUPPORTED;
		else
			*value = (unsigned)strtoul(text, NULL, 10);
	}
	if (f)
		fclose(f);
	return ret;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
	unsigned used = 1024;
	note("nvmlDeviceGetMemoryInfo");
	if (lost(device->index))
		return GPU_IS_LOST;
	gauge(device->index, "used", &used);
	memory->total = 80 * GiB;
	memory->used = (unsigned long long)used << 20;
	memory->free = memory->total - memory->used;
	return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, int sensor, unsigned *celsius)
{
	(void)sensor;
	note("nvmlDeviceGetTemperature");
	*celsius = 40;
	return gauge(device->index, "temperature", celsius);
}

typedef struct { unsigned gpu, memory; } nvmlUtilization_t;

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates)
{
	note("nvmlDeviceGetUtilizationRates");
	rates->gpu = rates->memory = 0;
	return gauge(device->index, "load", &rates->gpu);
}

nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned *milliwatts)
{
	unsigned watts = 100;
	nvmlReturn_t ret = gauge(device->index, "power", &watts);
	note("nvmlDeviceGetPowerUsage");
	*milliwatts = watts * 1000;
	return ret;
}

nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device, unsigned *milliwatts)
{
	(void)device;
	note("nvmlDeviceGetEnforcedPowerLimit");
	*milliwatts = 700000;
	return SUCCESS;
}

typedef struct { unsigned pid; unsigned long long used; unsigned gpuInstance, computeInstance; } nvmlProcessInfo_t;

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count, nvmlProcessInfo_t *infos)
{
	const char *path = getenv("NVMLSTUB_GAUGES");
	FILE *f = path ? fopen(path, "r") : NULL;
	char line[128];
	unsigned room = *count, index, pid, mib;
	note("nvmlDeviceGetComputeRunningProcesses");
	*count = 0;
	while (f && fgets(line, sizeof line, f)) {
		if (sscanf(line, "%u process %u %u", &index, &pid, &mib) != 3 || index != device->index)
			continue;
		if (*count < room) {
			memset(&infos[*count], 0, sizeof *infos);
			infos[*count].pid = pid;
			infos[*count].used = (unsigned long long)mib << 20;
		}
		++*count;
	}
	if (f)
		fclose(f);
	return *count > room ? INSUFFICIENT_SIZE : SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
	(void)device;
	note("nvmlDeviceGetMemoryInfo_v2");
	memory->total = 80 * GiB;
	memory->reserved = 0;
	memory->used = 1 * GiB;
	memory->free = 79 * GiB;
	return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
	note("nvmlDeviceGetPciInfo");
	memset(pci, 0, sizeof *pci);
	pci->bus = 0x10 + device->index;
	snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "0000:%02X:00.0", pci->bus & 0xff);
	snprintf(pci->busId, sizeof pci->busId, "00000000:%02X:00.0", pci->bus & 0xff);
	return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t device, unsigned words, unsigned long *set)
{
	const unsigned bits = 8 * sizeof(unsigned long);
	long cpus = sysconf(_SC_NPROCESSORS_CONF);
	unsigned cpu = device->index % (unsigned)(cpus > 0 ? cpus : 1);
	note("nvmlDeviceGetCpuAffinity");
	memset(set, 0, words * sizeof *set);
	if (cpu / bits >= words)
		return INSUFFICIENT_SIZE;
	set[cpu / bits] |= 1UL << (cpu % bits);
	return SUCCESS;
}

static int events_are(const char *word)
{
	const char *events = getenv("NVMLSTUB_EVENTS");
	return events && strcmp(events, word) == 0;
}

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set)
{
	note("nvmlEventSetCreate");
	*set = calloc(1, sizeof **set);
	return SUCCESS;
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set)
{
	note("nvmlEventSetFree");
	free(set);
	return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *types)
{
	(void)device;
	note("nvmlDeviceGetSupportedEventTypes");
	*types = events_are("none") ? 0 : XID_CRITICAL_ERROR;
	return SUCCESS;
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, nvmlEventSet_t set)
{
	note("nvmlDeviceRegisterEvents");
	if (lost(device->index))
		return GPU_IS_LOST;
	if (types != XID_CRITICAL_ERROR || events_are("none"))
		return NOT_SUPPORTED;
	set->watched[device->index] = 1;
	return SUCCESS;
}

/* next_line reads the next whole line of NVMLSTUB_EVENTS, if there is one. */
static int next_line(char *line, int size)
{
	static long offset;
	const char *path = getenv("NVMLSTUB_EVENTS");
	FILE *f = path ? fopen(path, "r") : NULL;
	int whole;
	if (!f)
		return 0;
	whole = fseek(f, offset, SEEK_SET) == 0 && fgets(line, size, f) && strchr(line, '\n');
	if (whole)
		offset = ftell(f);
	fclose(f);
	return whole;
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned timeout)
{
	char line[64], what[16];
	unsigned index;
	note("nvmlEventSetWait");
	if (events_are("hang"))
		for (;;)
			pause();
	for (unsigned waited = 0;; waited += 5) {
		for (index = 0; index < MAX_GPUS; index++)
			if (set->watched[index] && gone[index])
				return GPU_IS_LOST;
		while (next_line(line, sizeof line)) {
			if (sscanf(line, "%u %15s", &index, what) != 2 || index >= gpus())
				continue;
			if (strcmp(what, "lost") == 0) {
				gone[index] = 1;
				if (set->watched[index])
					return GPU_IS_LOST;
				continue;
			}
			if (!set->watched[index])
				continue;
			memset(data, 0, sizeof *data);
			data->device = (nvmlDevice_t)&devices[index];
			data->eventType = XID_CRITICAL_ERROR;
			data->eventData = strtoull(what, NULL, 10);
			data->gpuInstanceId = data->computeInstanceId = 0xFFFFFFFF;
			return SUCCESS;
		}
		if (waited >= timeout)
			return TIMEOUT;
		usleep(5000);
	}
}
