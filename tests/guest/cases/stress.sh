# Connections come and go: many in turn, several at once as paths to one namespace, with short queues and long ones.
random /tmp/data 65536
for turn in 1 2 3 4 5 6; do
    connect --queue-size=$((turn * 20)) --keep-alive-tmo=$turn
    put if=/tmp/data of="$DEV" bs=64k seek=$turn
    disconnect
done
# Queues of their own for writes and for polling.
connect --nr-write-queues=1 --nr-poll-queues=1
put if=/tmp/data of="$DEV" bs=64k seek=7
run_fio --filename="$DEV" --ioengine=io_uring --hipri --rw=randread --bs=16k --iodepth=8 --size=512k
disconnect
for turn in 1 2 3 4; do
    connect_more "hostnqn=$HOST,hostid=$HOSTID,duplicate_connect" || fail "connection $turn beside others"
done
[ "$(controllers | wc -l)" = 4 ] || fail "controllers: $(controllers)"
device=$DEV
for name in $(controllers); do
    found_namespace "$name"
    [ "$DEV" = "$device" ] || fail "$name is no path to $device but to $DEV"
done
# The paths go one by one, under load, and the last one serves on.
begin_load 4M --bs=16k
for name in $(controllers | sed 1d); do
    nvme disconnect -d "$name" || fail "disconnect $name"
done
end_load "the loss of paths"
get if="$device" of=/tmp/back bs=64k skip=3 count=1
cmp /tmp/data /tmp/back || fail "content by the last path"
nvme disconnect -n "$NQN" || fail "disconnect"
[ -z "$(controllers)" ] || fail "controllers that stay: $(controllers)"
for _ in 1 2 3 4; do
    nvme discover $AT >/dev/null || fail "discover"
done
