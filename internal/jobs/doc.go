// Package jobs lists the jobs running on this host and lets other processes inspect and
// control them.
//
//	/run/user/1000/gpurun/jobs/
//	  3fa9c201.json      the job; locked while it runs
//	  3fa9c201.sock      its socket
//
// A registered job has an id, a file that describes it, and a private Unix socket that
// serves its HTTP API, which package server implements.
//
// The folder and all jobs in it belong to one user. A file without a lock belongs to a
// dead job and is removed.
//
// A program that embeds orchestrator has no socket unless it calls Register.
package jobs
