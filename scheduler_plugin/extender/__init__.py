"""kube-scheduler's HTTP extender, for clusters whose administrators want one scheduler:
it keeps to what the queue has decided.
"""
