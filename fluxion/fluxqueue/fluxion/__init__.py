"""The resource graph and matcher: jobspecs, JGF, policies, planners, the gRPC service and its clients."""
