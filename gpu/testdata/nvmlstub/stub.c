/*
 * A libnvidia-ml.so.1 that simulates a machine with GPUs, for tests on machines
 * without one. It has only the calls that package gpu makes through go-nvml; any
 * other ends the process with "symbol lookup error", so add new calls here too.
 *
 *   cc -shared -fPIC -o DIR/libnvidia-ml.so.1 stub.c
 *   LD_LIBRARY_PATH=DIR NVMLSTUB_GPUS=4 gpurun ...
 *
 * LD_LIBRARY_PATH is read when a process starts: set it before starting the
 * process that must see these GPUs. Environment variables control the stub:
 *
 *   NVMLSTUB_GPUS=N      number of GPUs, 0 to 64 (default 2)
 *   NVMLSTUB_NAMES=A,B   model of GPU 0, 1, ...; the last applies to the rest
 *                        (default "NVIDIA Stub")
 *   NVMLSTUB_INIT=hang   nvmlInit never returns
 *   NVMLSTUB_INIT=fail   nvmlInit fails: driver not loaded (9)
 *   NVMLSTUB_INIT=CODE   nvmlInit fails with this number, e.g. 18: driver and
 *                        library versions differ
 *   NVMLSTUB_LOST=I,J    these GPUs are lost: no handle for them
 *   NVMLSTUB_STATE=FILE  sensor values of the GPUs; it is read again for every
 *                        call, so a test can control a running program. A line is
 *                        "INDEX KEY VALUE"; INDEX * means every GPU, and the last
 *                        of several matching lines wins. Keys, with units:
 *                          temperature slowdown shutdown   C
 *                          utilization fan                 %
 *                          used total reserved             MiB of memory
 *                          power limit                     mW
 *                          energy                          mJ
 *                          clock_sm clock_memory           MHz
 *                          throttle                        NVML's bits
 *                          ecc_corrected ecc_uncorrected   errors
 *                          processes                       PID:MIB,PID:MIB
 *                          mig                             number of instances
 *                          handle                          words only
 *                        Instead of a number, VALUE may be a word: unsupported
 *                        (the call returns that), lost (every call reports the GPU
 *                        lost), hang (the call returns when the line is removed).
 *                        A KEY that begins with "nvml" injects a fault into that
 *                        function, named without its version (nvmlInit), or, with a
 *                        * at its end, into every function with that prefix. INDEX *
 *                        includes functions that concern no GPU. VALUE is a fault:
 *                          error CODE   it fails with this number; 999 is unknown
 *                          hang [MS]    it hangs until the line is removed, or for
 *                                       MS milliseconds, and then returns
 *                          late [MS]    the same, but it returns a stale value
 *                          stale        it returns its previous value
 *                          ok           no fault, to undo an earlier line
 *                        nvmlErrorString has two special faults, both in effect
 *                        after the last nvmlShutdown:
 *                          freed        its strings are unmapped
 *                          garbage      its strings are overwritten
 *   NVMLSTUB_EVENTS=FILE each line "INDEX XID" of this file, including lines
 *                        appended later, is an event of that GPU, delivered once
 *                        per process and only to a wait for that GPU; "INDEX lost"
 *                        loses the GPU in this process, without an event
 *   NVMLSTUB_EVENTS=none the GPUs report no events
 *   NVMLSTUB_EVENTS=hang a wait for an event never returns
 *   NVMLSTUB_LOG=FILE    append a line "CALL THREAD" for every call
 *
 * GPU i has the UUID GPU-0000000i-0000-4000-8000-000000000000 (i in hex, 8
 * digits), 80 GiB of memory, of which 1 GiB is in use, the PCI bus 0x10+i, and
 * CPU i modulo the number of CPUs is near it. It is at 40 C, slows down at 89 and
 * has no fan, like an H200. Its MIG instance n is MIG-0000000i-000n-4000-8000-... and
 * has 10 GiB. The driver is 580.00.00.
 *
 * -DOLD_DRIVER omits what drivers of 2019 did not have: MIG, energy, the
 * second version of the memory call, and the new name of the throttle reasons.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/mman.h>
#include <sys/syscall.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9, TIMEOUT = 10, GPU_IS_LOST = 15 };
enum { XID_CRITICAL_ERROR = 8 };
enum { MAX_GPUS = 64 };

typedef int nvmlReturn_t;
typedef struct { unsigned index; int instance; } *nvmlDevice_t; /* instance -1: the GPU */
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

static struct { unsigned index; int instance; } devices[MAX_GPUS];
static int lost_gpus[MAX_GPUS]; /* by a line of NVMLSTUB_EVENTS */

enum { NO_GPU = -1 }; /* the index of functions that concern no GPU */

/* matches compares a key of the state file with the wanted one. */
static int matches(const char *key, const char *wanted)
{
	size_t length = strlen(key);
	if (strncmp(key, "nvml", 4) == 0 && key[length - 1] == '*')
		return strncmp(key, wanted, length - 1) == 0;
	return strcmp(key, wanted) == 0;
}

/* find reads a value of a GPU from NVMLSTUB_STATE; it returns 0 if there is none. */
static int find(int index, const char *key, char *value, size_t size)
{
	const char *path = getenv("NVMLSTUB_STATE");
	FILE *f = path ? fopen(path, "r") : NULL;
	char line[576], which[16], what[64], is[448];
	int found = 0;
	while (f && fgets(line, sizeof line, f)) {
		if (sscanf(line, "%15s %63s %447[^\n]", which, what, is) != 3 || !matches(what, key))
			continue;
		if (strcmp(which, "*") != 0 && (index < 0 || strtoul(which, NULL, 10) != (unsigned)index))
			continue;
		snprintf(value, size, "%s", is);
		found = 1;
	}
	if (f)
		fclose(f);
	return found;
}

/* known is the value last read from the state file, for stale answers. */
struct known {
	struct known *next;
	int index, found;
	char key[32], value[448];
};
static struct known *all_known;
static pthread_mutex_t known_lock = PTHREAD_MUTEX_INITIALIZER;
static __thread int answer_stale; /* in this thread's current call */

/* look returns a value of a GPU from the state file, or its previous value. */
static int look(unsigned index, const char *key, char *value, size_t size)
{
	struct known *k;
	int found;
	pthread_mutex_lock(&known_lock);
	for (k = all_known; k && (k->index != (int)index || strcmp(k->key, key) != 0); k = k->next)
		;
	if (!k || !answer_stale) {
		if (!k) {
			k = calloc(1, sizeof *k);
			k->index = (int)index;
			snprintf(k->key, sizeof k->key, "%s", key);
			k->next = all_known;
			all_known = k;
		}
		k->found = find((int)index, key, k->value, sizeof k->value);
	}
	if ((found = k->found) != 0)
		snprintf(value, size, "%s", k->value);
	pthread_mutex_unlock(&known_lock);
	return found;
}

/* enter begins every call: it logs the call and applies a fault. */
static nvmlReturn_t enter(const char *call, int index)
{
	char fault[448], word[16];
	unsigned long number = 0, waited;
	note(call);
	answer_stale = 0;
	if (!find(index, call, fault, sizeof fault) || sscanf(fault, "%15s %lu", word, &number) < 1)
		return SUCCESS;
	if (strcmp(word, "error") == 0)
		return (nvmlReturn_t)number;
	answer_stale = strcmp(word, "stale") == 0 || strcmp(word, "late") == 0;
	if (strcmp(word, "hang") != 0 && strcmp(word, "late") != 0)
		return SUCCESS;
	for (waited = 0; number == 0 || waited < number; waited += 2) {
		char now[448];
		if (number == 0 && (!find(index, call, now, sizeof now) || strcmp(now, fault) != 0))
			break;
		usleep(2000);
	}
	return SUCCESS;
}

/* CALL is the first line of every function of the library. */
#define CALL(name, index)                                  \
	do {                                               \
		nvmlReturn_t fault_ = enter(name, index);  \
		if (fault_ != SUCCESS)                     \
			return fault_;                     \
	} while (0)

/* value reads a number from the state file, or does what a word there says. */
static nvmlReturn_t value(unsigned index, const char *key, unsigned long long *to)
{
	char is[448];
	while (look(index, key, is, sizeof is)) {
		if (strcmp(is, "unsupported") == 0)
			return NOT_SUPPORTED;
		if (strcmp(is, "hang") == 0) {
			usleep(2000);
			continue;
		}
		*to = strtoull(is, NULL, 10);
		break;
	}
	return SUCCESS;
}

static int lost(unsigned index)
{
	const char *list = getenv("NVMLSTUB_LOST");
	char is[448];
	if (lost_gpus[index] || (look(index, "handle", is, sizeof is) && strcmp(is, "lost") == 0))
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

static int users; /* Inits without a Shutdown */
static pthread_mutex_t users_lock = PTHREAD_MUTEX_INITIALIZER;
static char *strings; /* what nvmlErrorString returns: MAX_STRINGS of STRING_SIZE */
enum { STRING_SIZE = 64, MAX_STRINGS = 1000 };

nvmlReturn_t nvmlInit_v2(void)
{
	CALL("nvmlInit", NO_GPU);
	nvmlReturn_t r = init();
	pthread_mutex_lock(&users_lock);
	users += r == SUCCESS;
	pthread_mutex_unlock(&users_lock);
	return r;
}
nvmlReturn_t nvmlInit(void) { return nvmlInit_v2(); }
nvmlReturn_t nvmlInitWithFlags(unsigned flags) { (void)flags; return nvmlInit_v2(); }

nvmlReturn_t nvmlShutdown(void)
{
	char how[448] = "";
	CALL("nvmlShutdown", NO_GPU);
	pthread_mutex_lock(&users_lock);
	if (--users == 0 && strings && find(NO_GPU, "nvmlErrorString", how, sizeof how)) {
		if (strncmp(how, "garbage", 7) == 0)
			for (size_t i = 0; i < STRING_SIZE * MAX_STRINGS; i++)
				strings[i] = (i + 1) % STRING_SIZE ? '#' : 0;
		if (strncmp(how, "freed", 5) == 0)
			munmap(strings, STRING_SIZE * MAX_STRINGS);
		strings = NULL;
	}
	pthread_mutex_unlock(&users_lock);
	return SUCCESS;
}

static const char *error_text(nvmlReturn_t r)
{
	switch (r) {
	case SUCCESS: return "Success";
	case INVALID_ARGUMENT: return "Invalid Argument";
	case NOT_SUPPORTED: return "Not Supported";
	case NOT_FOUND: return "Not Found";
	case INSUFFICIENT_SIZE: return "Insufficient Size";
	case DRIVER_NOT_LOADED: return "Driver Not Loaded";
	case TIMEOUT: return "Timeout";
	case GPU_IS_LOST: return "GPU is lost";
	default: return "Unknown Error";
	}
}

const char *nvmlErrorString(nvmlReturn_t r)
{
	char *to;
	note("nvmlErrorString");
	pthread_mutex_lock(&users_lock);
	if (!strings)
		strings = mmap(NULL, STRING_SIZE * MAX_STRINGS, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	to = strings + STRING_SIZE * ((unsigned)r % MAX_STRINGS);
	snprintf(to, STRING_SIZE, "%s", error_text(r));
	pthread_mutex_unlock(&users_lock);
	return to;
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned size)
{
	CALL("nvmlSystemGetDriverVersion", NO_GPU);
	return text(version, size, "580.00.00", 9);
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count)
{
	CALL("nvmlDeviceGetCount", NO_GPU);
	*count = gpus();
	return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device)
{
	CALL("nvmlDeviceGetHandleByIndex", (int)index);
	if (index >= gpus())
		return INVALID_ARGUMENT;
	unsigned long long ignored = 0;
	nvmlReturn_t r = value(index, "handle", &ignored);
	if (lost(index))
		return GPU_IS_LOST;
	if (r != SUCCESS)
		return r;
	devices[index].index = index;
	devices[index].instance = -1;
	*device = (nvmlDevice_t)&devices[index];
	return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned *index)
{
	CALL("nvmlDeviceGetIndex", (int)device->index);
	*index = device->index;
	return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned size)
{
	char s[64];
	CALL("nvmlDeviceGetUUID", (int)device->index);
	int length = device->instance < 0
		? snprintf(s, sizeof s, "GPU-%08x-0000-4000-8000-000000000000", device->index)
		: snprintf(s, sizeof s, "MIG-%08x-%04x-4000-8000-000000000000", device->index, device->instance);
	return text(uuid, size, s, (size_t)length);
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned size)
{
	const char *names = getenv("NVMLSTUB_NAMES");
	CALL("nvmlDeviceGetName", (int)device->index);
	if (!names || !*names)
		names = "NVIDIA Stub";
	for (unsigned i = 0; i < device->index; i++) {
		const char *comma = strchr(names, ',');
		if (!comma)
			break;
		names = comma + 1;
	}
	if (device->instance >= 0) {
		char s[96];
		int length = snprintf(s, sizeof s, "%.*s MIG 1g.10gb", (int)strcspn(names, ","), names);
		return text(name, size, s, (size_t)length);
	}
	return text(name, size, names, strcspn(names, ","));
}

static const unsigned long long MiB = 1ULL << 20;

/* memory_of fills in the result of both versions of the call. */
static nvmlReturn_t memory_of(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
	unsigned long long total = device->instance < 0 ? 80 * 1024 : 10 * 1024, used = 1024, reserved = 0;
	nvmlReturn_t r;
	if (lost(device->index))
		return GPU_IS_LOST;
	if ((r = value(device->index, "used", &used)) != SUCCESS)
		return r;
	value(device->index, "total", &total);
	value(device->index, "reserved", &reserved);
	memory->total = total * MiB;
	memory->reserved = reserved * MiB;
	memory->used = used * MiB;
	memory->free = (total - reserved - used) * MiB;
	return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
	nvmlMemory_v2_t all;
	CALL("nvmlDeviceGetMemoryInfo", (int)device->index);
	nvmlReturn_t r = memory_of(device, &all);
	if (r != SUCCESS)
		return r;
	memory->total = all.total;
	memory->free = all.free;
	memory->used = all.used + all.reserved;
	return SUCCESS;
}

/* sense answers a call for one number: from the state file, or the default. */
static nvmlReturn_t sense(const char *call, nvmlDevice_t device, const char *key, unsigned long long is, unsigned *to)
{
	nvmlReturn_t r = enter(call, (int)device->index);
	if (r != SUCCESS)
		return r;
	r = value(device->index, key, &is);
	if (lost(device->index))
		return GPU_IS_LOST;
	if (device->instance >= 0)
		return NOT_SUPPORTED;
	*to = (unsigned)is;
	return r;
}

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, int sensor, unsigned *to)
{
	(void)sensor;
	return sense("nvmlDeviceGetTemperature", device, "temperature", 40, to);
}

nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t device, int which, unsigned *to)
{
	return sense("nvmlDeviceGetTemperatureThreshold", device, which == 0 ? "shutdown" : "slowdown", which == 0 ? 95 : 89, to);
}

nvmlReturn_t nvmlDeviceGetFanSpeed(nvmlDevice_t device, unsigned *to)
{
	char is[448];
	nvmlReturn_t r = sense("nvmlDeviceGetFanSpeed", device, "fan", 0, to);
	return r == SUCCESS && !look(device->index, "fan", is, sizeof is) ? NOT_SUPPORTED : r;
}

nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned *to)
{
	return sense("nvmlDeviceGetPowerUsage", device, "power", 126000, to);
}

nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device, unsigned *to)
{
	return sense("nvmlDeviceGetEnforcedPowerLimit", device, "limit", 700000, to);
}

nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, int which, unsigned *to)
{
	return which == 2 ? sense("nvmlDeviceGetClockInfo", device, "clock_memory", 3201, to)
			  : sense("nvmlDeviceGetClockInfo", device, "clock_sm", 1980, to);
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, unsigned rates[2])
{
	rates[1] = 0;
	return sense("nvmlDeviceGetUtilizationRates", device, "utilization", 0, &rates[0]);
}

nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, int type, int counter, unsigned long long *to)
{
	unsigned count = 0;
	nvmlReturn_t r = sense("nvmlDeviceGetTotalEccErrors", device, type == 0 ? "ecc_corrected" : "ecc_uncorrected", 0, &count);
	(void)counter;
	*to = count;
	return r;
}

nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device, unsigned long long *to)
{
	unsigned bits = 0;
	nvmlReturn_t r = sense("nvmlDeviceGetCurrentClocksThrottleReasons", device, "throttle", 0, &bits);
	*to = bits;
	return r;
}

/* process reads the n-th "PID:MIB" from the state file. */
static int process(nvmlDevice_t device, unsigned n, unsigned *pid, unsigned long long *bytes)
{
	char is[448], *at = is;
	unsigned long long mib;
	if (!look(device->index, "processes", is, sizeof is))
		return 0;
	for (; n > 0 && at; n--)
		if ((at = strchr(at, ',')) != NULL)
			at++;
	if (!at || sscanf(at, "%u:%llu", pid, &mib) != 2)
		return 0;
	*bytes = mib * MiB;
	return 1;
}

typedef struct { unsigned pid; unsigned long long used; } nvmlProcessInfo_v1_t;

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned *count, nvmlProcessInfo_v1_t *list)
{
	unsigned n = 0, pid;
	unsigned long long bytes = 0;
	CALL("nvmlDeviceGetComputeRunningProcesses", (int)device->index);
	nvmlReturn_t r = value(device->index, "processes", &bytes);
	if (lost(device->index))
		return GPU_IS_LOST;
	for (; r == SUCCESS && process(device, n, &pid, &bytes); n++)
		if (n < *count)
			list[n] = (nvmlProcessInfo_v1_t){pid, bytes};
	if (n > *count)
		return INSUFFICIENT_SIZE;
	*count = n;
	return r;
}

#ifndef OLD_DRIVER
typedef struct { unsigned pid; unsigned long long used; unsigned gpuInstance, computeInstance; } nvmlProcessInfo_t;

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count, nvmlProcessInfo_t *list)
{
	nvmlProcessInfo_v1_t old[64];
	unsigned room = *count;
	nvmlReturn_t r;
	*count = 64;
	r = nvmlDeviceGetComputeRunningProcesses(device, count, old);
	if (r == SUCCESS && *count > room)
		return INSUFFICIENT_SIZE;
	for (unsigned i = 0; r == SUCCESS && i < *count; i++)
		list[i] = (nvmlProcessInfo_t){old[i].pid, old[i].used, 0xFFFFFFFF, 0xFFFFFFFF};
	return r;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
	CALL("nvmlDeviceGetMemoryInfo", (int)device->index);
	return memory_of(device, memory);
}

nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t device, unsigned long long *to)
{
	nvmlReturn_t r;
	CALL("nvmlDeviceGetTotalEnergyConsumption", (int)device->index);
	*to = 1000000;
	r = value(device->index, "energy", to);
	return lost(device->index) ? GPU_IS_LOST : device->instance >= 0 ? NOT_SUPPORTED : r;
}

nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t device, unsigned long long *to)
{
	CALL("nvmlDeviceGetCurrentClocksEventReasons", (int)device->index);
	return nvmlDeviceGetCurrentClocksThrottleReasons(device, to);
}

enum { MAX_INSTANCES = 7 };

static struct { unsigned index; int instance; } instances[MAX_GPUS][MAX_INSTANCES];

static unsigned parts(unsigned index)
{
	unsigned long long count = 0;
	value(index, "mig", &count);
	return count < MAX_INSTANCES ? (unsigned)count : MAX_INSTANCES;
}

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned *now, unsigned *next)
{
	char is[448];
	CALL("nvmlDeviceGetMigMode", (int)device->index);
	if (lost(device->index))
		return GPU_IS_LOST;
	*now = *next = look(device->index, "mig", is, sizeof is) && strcmp(is, "unsupported") != 0;
	return *now ? SUCCESS : NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned *count)
{
	(void)device;
	CALL("nvmlDeviceGetMaxMigDeviceCount", (int)device->index);
	*count = MAX_INSTANCES;
	return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned index, nvmlDevice_t *instance)
{
	CALL("nvmlDeviceGetMigDeviceHandleByIndex", (int)device->index);
	if (index >= parts(device->index))
		return NOT_FOUND;
	instances[device->index][index].index = device->index;
	instances[device->index][index].instance = (int)index;
	*instance = (nvmlDevice_t)&instances[device->index][index];
	return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned *id)
{
	CALL("nvmlDeviceGetGpuInstanceId", (int)device->index);
	*id = 7 + (unsigned)device->instance;
	return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned *id)
{
	(void)device;
	CALL("nvmlDeviceGetComputeInstanceId", (int)device->index);
	*id = 0;
	return SUCCESS;
}
#endif

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
	CALL("nvmlDeviceGetPciInfo", (int)device->index);
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
	CALL("nvmlDeviceGetCpuAffinity", (int)device->index);
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
	CALL("nvmlEventSetCreate", NO_GPU);
	*set = calloc(1, sizeof **set);
	return SUCCESS;
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set)
{
	CALL("nvmlEventSetFree", NO_GPU);
	free(set);
	return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *types)
{
	(void)device;
	CALL("nvmlDeviceGetSupportedEventTypes", (int)device->index);
	*types = events_are("none") ? 0 : XID_CRITICAL_ERROR;
	return SUCCESS;
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, nvmlEventSet_t set)
{
	CALL("nvmlDeviceRegisterEvents", (int)device->index);
	if (lost(device->index))
		return GPU_IS_LOST;
	if (types != XID_CRITICAL_ERROR || events_are("none"))
		return NOT_SUPPORTED;
	set->watched[device->index] = 1;
	return SUCCESS;
}

/* next_line reads the next complete line of NVMLSTUB_EVENTS, if there is one. */
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
	CALL("nvmlEventSetWait", NO_GPU);
	if (events_are("hang"))
		for (;;)
			pause();
	for (unsigned waited = 0;; waited += 5) {
		for (index = 0; index < MAX_GPUS; index++)
			if (set->watched[index] && lost_gpus[index])
				return GPU_IS_LOST;
		while (next_line(line, sizeof line)) {
			if (sscanf(line, "%u %15s", &index, what) != 2 || index >= gpus())
				continue;
			if (strcmp(what, "lost") == 0) {
				lost_gpus[index] = 1;
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
