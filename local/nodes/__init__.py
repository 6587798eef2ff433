"""Real nodes on one machine: kubelets, containers, a network between them, and images built from the
checkout.

`layout` has the names, addresses and folders, `requirements` what the computer must offer. `programs` builds
the programs, `images` the images (`base_image` their base). `configuration` and ``machine.sh`` are what runs
inside a machine, `machines` starts and ends one, `wiring` connects it, `control_groups` contains it. `plane`
is the control plane, `addons` what every cluster has besides, `cluster` is all of it together, and `commands`
is ``fluxqueue local nodes``.
"""
