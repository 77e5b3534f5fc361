# Only hosts on the list see the subsystem and connect.
connect --hostnqn="$ALLOWED"
random /tmp/data 65536
put if=/tmp/data of="$DEV" bs=64k
disconnect
nvme discover $AT --hostnqn="$ALLOWED" | grep -q "$NQN" || fail "an allowed host does not find the subsystem"
! nvme discover $AT --hostnqn="$STRANGER" | grep -q "$NQN" || fail "a stranger finds the subsystem"
refused "" nvme connect $AT -n "$NQN" --hostnqn="$STRANGER"
refused "" nvme connect $AT -n "$NQN"
dmesg | grep -i "invalid host\|not allowed" || fail "the kernel was told another reason"
[ -z "$(controllers)" ] || fail "connected: $(controllers)"
connect --hostnqn="$ALLOWED"
get if="$DEV" of=/tmp/back bs=64k count=1
cmp /tmp/data /tmp/back || fail "data differ"
