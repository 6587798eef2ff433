"""The REST service of a MiniCluster: submit, list, show and cancel jobs of the Flux instance it stands
beside.
"""
