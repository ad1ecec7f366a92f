// Package server is the jobs that run on this host, and how each is looked at and
// steered.
//
//	/run/user/1000/gpurun/jobs/
//	  3fa9c201.json      the job; locked for as long as it runs
//	  3fa9c201.sock      where it answers
//
// A job that is registered has an id, a file that says what it is, and a private
// unix socket with HTTP on it:
//
//	GET  /v1/status    what it is and how far (JobStatus)
//	POST /v1/pause     stop at the next batch border and wait there
//	POST /v1/resume    go on
//	POST /v1/cancel    stop, as SIGTERM would; again: at once
//	POST /v1/trim      give back device memory that is not needed
//	GET  /v1/events    what happens, a JSON line each, until the job ends
//
// The folder is the user's own, and so is every job in it. A file whose job is dead
// is recognised by its lock, and removed.
//
// Nothing here belongs to a job that a program runs by itself: only who calls
// Register has a socket.
package server
