"""The settings of a job. Generated from the program: go test ./cmd/gpurun -run TestReference -update"""

from os import PathLike
from typing import Literal, Sequence, TypedDict, Union


class Settings(TypedDict, total=False):
    python: Union[str, PathLike[str]]
    "interpreter for Python kernels (default: that of the active venv or conda environment, else python3)"
    io_workers: int
    "maximum number of threads that run a Python kernel's prepare(batch) ahead of process (default 4), or of processes if it defines setup_prepare (default the worker's share of the cores)"
    start: Literal["fork", "fresh"]
    "how the interpreters of a Python kernel start: fork them from one that has imported the kernel's file, or fresh: let each import it (default fork)"
    keep_warm: str
    "keep an interpreter that has imported the packages of a Python kernel for this TIME after its last use (10m if none is given), so that the next job or try starts in a second; see gpurun warm"
    exec_mode: Literal["batch", "stream", "per-record"]
    "how exec: runs its program: batch (one process per batch), stream (one for all batches), per-record (default batch)"
    exec_id: str
    "check that each line an exec: program prints repeats this MEMBER (a string or number) of its record"
    nan: Literal["null", "error"]
    "handle NaN and infinity, which JSON lacks: null replaces them, error fails their records (default null)"
    fetch: Union[str, Sequence[str]]
    "read the file that member FIELD of each record names, by path, URL or data: URI; the kernel gets its bytes as NAME (repeatable)"
    fetch_root: Union[str, PathLike[str]]
    "FOLDER that the paths of files to fetch are relative to and must not leave (default: that of the input files, or the current one for a stream)"
    fetch_max_bytes: Union[int, str]
    "maximum size of a fetched file; a larger one fails its record"
    fetch_concurrency: int
    "files that each worker fetches at a time"
    fetch_per_host: int
    "files that each worker fetches at a time from one host"
    fetch_timeout: str
    "time limit for a file, retries included"
    fetch_retries: int
    "retry a fetch up to this many times after a failure that may pass"
    fetch_allow_private: bool
    "let records name URLs of private and local addresses, and use the proxy that the environment names"
    output_format: Literal["jsonl", "jsonl.gz", "jsonl.zst", "parquet", "arrow"]
    "FORMAT of the output: jsonl, jsonl.gz, jsonl.zst, parquet, arrow (default: what the name of the output says, else jsonl)"
    column: Union[str, Sequence[str]]
    "store column NAME of the results as a NumPy array and leave it out of the lines: NAME=FILE.npy, or NAME=FILE.f16.npy in half precision (repeatable); row i belongs to line i"
    errors: Union[str, PathLike[str]]
    "write failed records to this FILE instead of the output"
    keep: Union[str, Sequence[str]]
    "keep only these members of the input records, in addition to the kernel's results: id,url"
    source_field: str
    "add a member of this name to every result: the input file and line, or row, of its record"
    force: bool
    "overwrite an existing output"
    part_bytes: Union[int, str]
    "in an output FOLDER/, start a new part once the current one reaches this size; parts end at chunk boundaries"
    gpus: str
    "devices: all, indices (0,2 or 0-3), UUIDs, MIG instances (2:0), or cpu:4 for four CPU workers"
    gpus_per_worker: int
    "GPUs per worker, for models that span several GPUs"
    workers_per_gpu: Union[int, Literal["auto"]]
    "workers per GPU; auto starts with one and adds more while that makes the GPU faster and fits in memory"
    stagger: Union[bool, Literal["auto"]]
    "let the first worker load its model before the others start, and stop if it fails; auto: if the files are on a network file system"
    pin: Literal["index", "uuid"]
    "set CUDA_VISIBLE_DEVICES by index or uuid; some frameworks do not accept UUIDs"
    profile: Literal["datacenter", "workstation"]
    "when to slow down a hot GPU: datacenter, or workstation (earlier)"
    monitor_config: Union[str, PathLike[str]]
    "YAML FILE with the monitor's temperature, memory and timing thresholds"
    no_monitor: bool
    "do not monitor temperature and memory, and never slow down a GPU"
    no_affinity: bool
    "let workers use all CPUs instead of only those close to their GPU"
    name: str
    "name of the job, for gpurun pause, gpurun gpus optimize and quotas"
    num_gpus: int
    "use this many GPUs, those with the most free memory (default: all free GPUs)"
    gpu_memory: Union[int, str]
    "lease this much memory of each GPU (20G) and share it, instead of leasing whole GPUs"
    wait: str
    "maximum time to wait for GPUs that others hold (default 30s, or what the services file says)"
    no_lease: bool
    "use GPUs without leasing them, even if others hold them (always on under Slurm and Kubernetes)"
    services: Union[str, PathLike[str]]
    "YAML FILE with service quotas, memory limit and reserve (default /etc/gpurun/gpus.yaml, if it exists)"
    batch_size: Union[int, Literal["auto"]]
    "records per batch, or auto to find the fastest size in the first 30 s (default: what the kernel asks for, else 128)"
    batch_bytes: Union[int, str]
    "maximum bytes per batch, so that long records do not exhaust memory"
    group_by: str
    "form batches of records with similar size of this MEMBER, which saves padding; the output stays in input order; none: in input order, even if the kernel asks for groups"
    batch_cost: Union[int, str]
    "maximum size of a batch that group-by forms, padding included (records times the size of the largest; 0: no limit)"
    chunks_per_gpu: int
    "chunks per worker; more balance unequal GPUs better, 1 splits statically into ceil(n/workers)"
    format: Literal["openai-batch"]
    "FORMAT of the lines of input and output: openai-batch for requests and results of OpenAI's batch files; see gpurun manual llm#batch-files (default: openai-batch for openai: and serve: without a prompt, else any JSON)"
    input_format: Literal["parquet", "arrow", "csv", "tsv", "tar", "jsonl"]
    "format of the input instead of recognizing it: parquet, arrow, csv, tsv, tar, jsonl"
    columns: Union[str, Sequence[str]]
    "of a Parquet or Arrow output: its columns, in this order, with types if you like: id:int64,day:date,embedding; otherwise: read only these columns of Parquet, Arrow and CSV files, in CSV files with types"
    limit: int
    "process at most this many records (0: all)"
    offset: int
    "skip this many records first"
    bad_input: Literal["fail", "skip"]
    "what to do with a damaged file (truncated or corrupt gzip or zstd): fail, or skip the rest of it"
    reprocess: bool
    "process input records that carry an \"_error\" and remove it, instead of passing them through"
    max_record_bytes: Union[int, str]
    "maximum record length; longer lines are kept as failed records"
    no_validate: bool
    "do not check that each line is valid JSON; saves about 0.2 s of CPU time per GB"
    split: Literal["auto", "records", "bytes"]
    "split a file by records (equal counts, counts the input first) or bytes (starts immediately); auto: by records up to 16 GiB"
    chunk_records: int
    "records per chunk of a stream or a decoded file (default: 16 batches, or a multiple for files)"
    flush: str
    "maximum time that a record of a stream waits for its chunk to fill"
    fresh: bool
    "start over instead of resuming an interrupted job"
    accept_changes: Union[str, Sequence[str]]
    "resume even if these have changed: kernel,config"
    spool: bool
    "copy a streamed input to the job folder as fast as it arrives, and resume from that copy"
    max_time: str
    "stop after this time, for example before a scheduler's limit; run the same command to resume (0: no limit)"
    max_requests: int
    "stop when the job has sent this many requests, retries included, in all of its runs; raise it and run the same command to resume (0: no limit)"
    max_tokens_total: int
    "stop when the job's answers have used this many tokens in all of its runs; requests in flight are still answered (0: no limit)"
    drain_timeout: str
    "when the job stops (signal, cancel, max-time, halt), wait this long for batches in flight; the next run computes the others"
    checkpoint: str
    "commit each worker's results at least this often, which ends a chunk; a kill loses at most this much work per worker"
    work_dir: Union[str, PathLike[str]]
    "FOLDER for the job folder instead of the output's; several jobs can share it; a retry needs the same"
    clean: bool
    "remove the job folder if every record succeeds (exit status 0)"
    shard: str
    "compute shard I/N of the input, counted from 0, of a job that machines share through the output's folder; auto takes I from the scheduler (SLURM_ARRAY_TASK_ID or JOB_COMPLETION_INDEX) and N from the run that exists, auto+1000 adds to it, auto/16 names N"
    no_claim: bool
    "of a shared job: exit when the shard is done instead of claiming shards that no machine computes, or that a much slower one computes last"
    claim_after: str
    "of a shared job: take a machine for lost that shows no sign of life for this long, and claim its shard; use the same value on all machines"
    merge: bool
    "of a shared job: stay until all shards are done, and merge them into the output, unless another machine does (else: gpurun submit merge)"
    timeout: str
    "time limit per batch, including the first, or per record if the kernel computes records one by one; a kernel that exceeds it is killed and the batch is bisected to isolate the record that hangs (default 20 times the slowest good one, at least 1m for a batch, 5m until enough have been measured, and 10m for a record; for openai: and serve:, their own timeout)"
    open_timeout: str
    "time limit for a kernel to load its model, and for its first batch unless timeout is set"
    retries: int
    "retry up to this many times before marking records as failed: a chunk whose worker was lost, and a request that a model server refuses or does not answer"
    halt: str
    "stop when this many records have failed: never, fail=100, fail=5%; run the same command to resume"
    give_up: Literal["stop", "mark"]
    "when no usable device remains: stop (run the same command to resume), or mark the remaining records as failed"
    truncated: Literal["keep", "fail"]
    "what becomes of an answer of openai: or serve: that the server cut off at a limit of tokens: keep, or fail its record (default keep)"
    log_level: Literal["debug", "info", "warn", "error"]
    "log level of the workers: debug, info, warn, error"
    report: Union[str, PathLike[str]]
    "write the final report as JSON to this FILE"
    metrics_file: Union[str, PathLike[str]]
    "write metrics to this FILE every 10s, for node_exporter's textfile collector (NAME.prom)"
    listen: str
    "serve a page, an API and metrics of the job at this ADDRESS while it runs (127.0.0.1:9401)"
    listen_token: Union[str, PathLike[str]]
    "FILE with the token, created if missing, which every request must then carry; required unless the address is a loopback one, where only changes need a token by default"
    tls_cert: Union[str, PathLike[str]]
    "serve HTTPS with the certificate in this FILE (PEM)"
    tls_key: Union[str, PathLike[str]]
    "FILE with the private key of the certificate"
    insecure: bool
    "allow other than loopback addresses without TLS: the token and all data can be read on the network"
    allow_host: Union[str, Sequence[str]]
    "also answer requests that address the server by this host NAME"
