"""`fluxqueue uninstall`: removes fluxqueue from a cluster, and leaves no work behind that nothing would
start.

What waits is held by Kubernetes itself: a Job is suspended, a pod has our scheduling gate. Both outlive the
programs. So the order matters (`command`): nothing new is caught, then nothing of fluxqueue runs, then held
work is released to plain Kubernetes or kept, then the rest is removed. Each step lists what there is and
repairs it, so the command can be killed anywhere and repeated.
"""
