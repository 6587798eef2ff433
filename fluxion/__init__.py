"""The resource graph and matcher: JGF, jobspecs, match policies, the gRPC service and its clients."""
