"""The node agent: it runs the containers of pods as processes of this machine, and answers the API server as
a kubelet does.

There is no container and no image: the programs are this machine's. `main` starts the agent, `agent` gives
each bound pod its `pod_runner`, and `server` has the kubelet's API. What can be decided without effects is in
`environment`, `restarts`, `pod_status` and `probe_results`.
"""
