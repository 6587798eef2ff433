#!/usr/bin/env bash
# Process 1 of a machine: machine.sh NAME ADDRESS FOLDER PROGRAMS PLANE [COMMAND...], in new mount, PID, network, UTS and IPC namespaces.
# COMMAND runs first (the control plane, on the first machine). A program that ends is started again after a second, but not while
# FOLDER/held/PROGRAM exists. When this process ends, the kernel ends all others, and mounts and links of the namespaces are gone.
set -euo pipefail
name=$1 address=$2 folder=$3 programs=$4 plane=$5
shift 5
hostname "$name"

# Programs with fixed folders get them from the data of the machine. What they make below /var/lib otherwise goes to an overlay.
mkdir -p "$folder"/{log,kubelet,containerd,volumes,opt,pids,held,var-lib/upper,var-lib/work}
mount -t tmpfs -o mode=755 run /run
mkdir -p /run/lock
mount -t overlay -o "lowerdir=/var/lib,upperdir=$folder/var-lib/upper,workdir=$folder/var-lib/work" machine /var/lib
mkdir -p /var/lib/kubelet /var/lib/containerd
mount --bind "$folder/kubelet" /var/lib/kubelet
mount --bind "$folder/containerd" /var/lib/containerd
mount --bind "$folder/log" /var/log
mount --make-rshared /
for file in "$folder"/conf/sysctl/*; do
  setting=${file##*/}
  [ ! -e "/proc/sys/${setting//.//}" ] || mount --bind "$file" "/proc/sys/${setting//.//}"
done

# These settings belong to the network namespace. The link arrives from outside.
ip link set lo up
echo 1 >/proc/sys/net/ipv4/ip_forward
[ ! -e /proc/sys/net/bridge/bridge-nf-call-iptables ] || echo 1 >/proc/sys/net/bridge/bridge-nf-call-iptables
for _ in $(seq 300); do ip -4 -o addr show to "$address" | grep -q . && break; sleep 0.1; done
ip -4 -o addr show to "$address" | grep -q . || { echo "machine $name: its network link did not arrive within 30 s"; exit 1; }

export PATH=$programs:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
supervise() {
  local program=$1
  shift
  while :; do
    while [ -e "$folder/held/$program" ]; do sleep 0.1; done
    "$@" >>"$folder/log/$program.log" 2>&1 &
    echo $! >"$folder/pids/$program"
    wait $! || true
    echo "machine $name: $program ended"
    sleep 1
  done
}
[ $# = 0 ] || supervise plane "$@" &
supervise containerd containerd --config "$folder/conf/containerd.toml" &
for _ in $(seq 600); do [ -S /run/containerd/containerd.sock ] && [ -s "$plane/$name.kubeconfig" ] && break; sleep 0.1; done
until ctr -n k8s.io images import --local "$folder/pause.tar" >>"$folder/log/import.log" 2>&1; do sleep 0.5; done
supervise kubelet kubelet --config="$folder/conf/kubelet.yaml" --kubeconfig="$plane/$name.kubeconfig" --hostname-override="$name" \
  --node-ip="$address" --cert-dir=/var/lib/kubelet/pki &
supervise kube-proxy kube-proxy --config="$folder/conf/proxy.yaml" &
trap 'exit 0' TERM
while :; do sleep 3600 & wait $! || true; done
