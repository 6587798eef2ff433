"""`fluxqueue simulate`: the queue's own policies and matcher on a virtual clock,
over a trace or a model of one.
"""
