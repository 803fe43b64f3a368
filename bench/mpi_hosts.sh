#!/bin/bash
# mpirun over P hosts that are none: mpi_hosts.sh -n P COMMAND...
#
# Each rank runs in a network namespace with an address of its own (10.77.0.1, ...), all on one bridge, and every packet
# that leaves one is delayed by $DELAY (100us; 0: not at all), where the kernel can (netem). Ranks speak TCP. What the kernel cannot is
# said on stderr. The namespaces, the bridge among them, are made for this call and removed after it; nothing else is touched.
# Needs root, ip and tc (iproute2) and Open MPI. With MPIRUN=bench/mpi_hosts.sh, bench/mpi_train.sh measures on such hosts.
set -eu
if [ $# -lt 3 ] || [ "$1" != -n ]; then
    echo 'usage: mpi_hosts.sh -n P COMMAND...' >&2
    exit 2
fi
p=$2 delay=${DELAY:-100us} me=wo$$
shift 2
agent=$(mktemp)
made=()
clean() {
    for name in "${made[@]}"; do ip netns del "$name"; done
    rm -f "$agent"
}
trap clean EXIT

add() { # NAME: a namespace
    ip netns add "$1"
    made+=("$1")
    ip -n "$1" link set lo up
}

add "$me-hub"
ip -n "$me-hub" link add hub type bridge
ip -n "$me-hub" link set hub up
hosts=
for ((r = 1; r <= p; r++)); do
    add "$me-$r"
    ip -n "$me-hub" link add "to$r" type veth peer name eth0 netns "$me-$r"
    ip -n "$me-hub" link set "to$r" master hub up
    ip -n "$me-$r" addr add "10.77.0.$r/24" dev eth0
    ip -n "$me-$r" link set eth0 up
    if [ "$delay" != 0 ] && ! tc -n "$me-$r" qdisc add dev eth0 root netem delay "$delay" 2>/dev/null && [ "$r" = 1 ]; then
        echo 'mpi_hosts.sh: this kernel has no netem: packets are not delayed' >&2
    fi
    hosts+=${hosts:+,}10.77.0.$r:1
done

# In the place of ssh: ADDRESS COMMAND... runs in that address's namespace, under a host name of its own.
cat >"$agent" <<END
#!/bin/bash
r=\${1##*.}
shift
exec ip netns exec $me-\$r unshare --uts bash -c "hostname $me-\$r; \$*"
END
chmod +x "$agent"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# The first rank's host has mpirun.
ip netns exec "$me-1" unshare --uts bash -c "hostname $me-1; exec \"\$@\"" bash \
    mpirun --mca plm_rsh_agent "$agent" --mca btl tcp,self --mca btl_tcp_if_include 10.77.0.0/24 \
    --mca oob_tcp_if_include 10.77.0.0/24 --host "$hosts" -n "$p" "$@"
