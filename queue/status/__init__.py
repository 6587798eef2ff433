"""What people see of workloads and queues: FluxJobs, FluxQueues and Events."""
