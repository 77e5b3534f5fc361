# Resets of the controller while fio writes and verifies: no error, nothing lost.
connect --hdr-digest --data-digest
begin_load 12M --bsrange=4k-64k --blockalign=4k
for _ in 1 2 3; do
    sleep 0.5
    nvme reset "/dev/$CTRL" || fail "reset"
    wait_for 20 is_live "$CTRL" || fail "not live after a reset"
done
end_load resets
nvme id-ctrl "$DEV" >/dev/null || fail "identify after resets"
# A subsystem reset is not offered, and must not break the connection.
nvme subsystem-reset "/dev/$CTRL" && echo "subsystem reset done"
is_live "$CTRL" || fail "the controller is $(cat /sys/class/nvme/$CTRL/state)"
