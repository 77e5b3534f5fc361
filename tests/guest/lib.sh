# What the cases share; it runs in the guest, before each case. The host machine sets PORT (of the target), NQN (of its subsystem), HOST (this
# guest's host NQN) and HOSTID.
set -eu
AT="-t tcp -a 10.0.2.2 -s $PORT"
mkdir -p /etc/nvme
echo "$HOST" >/etc/nvme/hostnqn
echo "$HOSTID" >/etc/nvme/hostid

# Busybox prefers commands of its own.
for name in blkdiscard fstrim mke2fs e2fsck; do
    eval "$name() { /usr/sbin/$name \"\$@\"; }"
done

fail() {
    echo "FAILED: $*"
    exit 1
}

# Asks the host machine to do something, prints what that printed and returns its exit status: see `requests` in driver.py.
host() {
    printf '\001host %s\n' "$*" >&3
    local status output
    read -r status output <&3
    echo "$output" | base64 -d
    return "$status"
}

# wait_for SECONDS COMMAND...: until the command succeeds.
wait_for() {
    local limit
    limit=$(($(cut -d. -f1 /proc/uptime) + $1))
    shift
    until "$@"; do
        [ "$(cut -d. -f1 /proc/uptime)" -lt "$limit" ] || return 1
        sleep 0.1
    done
}

# controllers [NQN]: names of the controllers connected to a subsystem, of this guest.
controllers() {
    local path
    for path in /sys/class/nvme/nvme*; do
        [ -e "$path/subsysnqn" ] && [ "$(cat "$path/subsysnqn")" = "${1:-$NQN}" ] && echo "${path##*/}"
    done
    true
}

# namespace CONTROLLER NSID: prints the name of the namespace's block device (nvme0n1), which all controllers of a subsystem share.
namespace() {
    local path device
    for path in /sys/class/nvme/"$1"/nvme*c*n*; do
        [ -e "$path/nsid" ] && [ "$(cat "$path/nsid")" = "$2" ] || continue
        for device in /sys/class/nvme-subsystem/*/"$1"; do
            device=${device%/*}
            echo "nvme${device##*nvme-subsys}n${path##*n}"
            return 0
        done
    done
    return 1
}

# found_namespace CONTROLLER: sets DEV (/dev/nvme0n1) and NG (/dev/ng0n1) to its namespace 1, which appears some time after the connection.
found_namespace() {
    wait_for 20 namespace "$1" 1 >/dev/null || fail "no namespace at $1"
    DEV=/dev/$(namespace "$1" 1)
    NG=/dev/ng${DEV#/dev/nvme}
    wait_for 5 test -b "$DEV" && wait_for 5 test -c "$NG" || fail "no $DEV, $NG"
}

# connect [OPTIONS]: connects to the target, and sets CTRL (nvme0), DEV and NG.
connect() {
    local before
    before=$(controllers)
    # shellcheck disable=SC2086
    nvme connect $AT -n "$NQN" --nr-io-queues=2 "$@" || return 1
    found_controller "$before"
}

# connect_more OPTIONS: another connection to the target, which nvme-cli would not make. OPTIONS are the kernel's.
connect_more() {
    local before
    before=$(controllers)
    echo "transport=tcp,traddr=10.0.2.2,trsvcid=$PORT,nqn=$NQN,nr_io_queues=2,$1" >/dev/nvme-fabrics || return 1
    found_controller "$before"
}

found_controller() {
    local name
    CTRL=$(for name in $(controllers); do echo "$1" | grep -qx "$name" || echo "$name"; done)
    [ -n "$CTRL" ] || return 1
    found_namespace "$CTRL"
}

disconnect() {
    nvme disconnect -d "$CTRL"
}

# is_live CONTROLLER
is_live() {
    [ "$(cat "/sys/class/nvme/$1/state" 2>/dev/null)" = live ]
}

# refused TEXT COMMAND...: the command must fail and its output contain the text (whatever its case).
refused() {
    local text=$1 output
    shift
    ! output=$("$@" 2>&1) || fail "not refused: $*"
    echo "$output" | grep -qi -- "$text" || fail "$* says: $output"
}

random() {
    dd if=/dev/urandom of="$1" bs=64k count=$(($2 / 65536)) 2>/dev/null
}

put() {
    dd "$@" oflag=direct conv=notrunc 2>/dev/null || fail "dd $*"
}

get() {
    dd "$@" iflag=direct 2>/dev/null || fail "dd $*"
}

# field FILE NAME: a value in the output of nvme-cli ("name : value").
field() {
    sed -n "s/^$2[[:space:]]*:[[:space:]]*//p" "$1" | head -1
}

# run_fio OPTIONS: fio with direct I/O; it must succeed.
run_fio() {
    fio --name=verify --direct=1 --randrepeat=0 --group_reporting --minimal "$@" >/tmp/fio.out 2>&1 || {
        cat /tmp/fio.out
        fail "fio $*"
    }
}

# begin_load SIZE OPTIONS...: has fio write and verify in the background, again and again, in SIZE from 8 MiB on, until end_load.
begin_load() {
    local size=$1
    shift
    rm -f /tmp/enough
    (
        # Linux 6.12 sends a process that submits I/O a SIGPIPE where the target has just closed the connection.
        trap '' PIPE
        while [ ! -e /tmp/enough ]; do
            run_fio --filename="$DEV" --ioengine=libaio --rw=randrw --iodepth=8 --offset=8M --size="$size" \
                --verify=crc32c --verify_fatal=1 --do_verify=1 "$@"
        done
    ) &
    load=$!
    sleep 0.7
}

end_load() {
    kill -0 "$load" 2>/dev/null || fail "the load ended by itself"
    touch /tmp/enough
    wait "$load" || fail "fio under $1"
}
