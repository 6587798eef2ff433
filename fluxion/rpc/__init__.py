"""The gRPC service and its clients."""
